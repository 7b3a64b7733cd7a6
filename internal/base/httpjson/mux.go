package httpjson

import (
	"net/http"
	"strings"
)

// methods are those that a mux is asked about.
var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

// Fallback has a mux answer what none of its patterns takes as everything else is answered: problem+json
// instead of text, 404, or 405 with the methods that the path has. The mux must have no pattern "/".
func Fallback(mux *http.ServeMux) {
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		var allowed []string
		for _, method := range methods {
			as := r.WithContext(r.Context())
			as.Method = method
			if _, pattern := mux.Handler(as); pattern != "/" && pattern != "" {
				allowed = append(allowed, method)
			}
		}
		if len(allowed) == 0 {
			Problem(w, http.StatusNotFound, "there is nothing at this path")
			return
		}
		list := strings.Join(allowed, ", ")
		w.Header().Set("Allow", list)
		Problem(w, http.StatusMethodNotAllowed, "this path takes "+list)
	})
}
