package httpjson

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What no pattern takes was answered as text, by an API whose other errors are problem+json.
func TestWhatAMuxDoesNotHave(t *testing.T) {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /a", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("POST /a", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("GET /deep/", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/any", func(http.ResponseWriter, *http.Request) {})
	Fallback(mux)
	for request, want := range map[string]string{
		"GET /a": "200 ", "HEAD /a": "200 ", "POST /a": "200 ", "GET /deep/er": "200 ", "BREW /any": "200 ",
		"PUT /a":      "405 GET, HEAD, POST",
		"BREW /a":     "405 GET, HEAD, POST",
		"POST /deep/": "405 GET, HEAD",
		"GET /":       "404 ", "GET /b": "404 ", "POST /a/b": "404 ", "OPTIONS /b": "404 ",
		"GET /deep": "307 ",
	} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		mux.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		got := w.Result().Status[:4] + w.Header().Get("Allow")
		if w.Code == http.StatusMovedPermanently {
			got = "307 "
		}
		if got != want {
			t.Errorf("%s answers %s, want %s", request, got, want)
		}
		if kind := w.Header().Get("Content-Type"); (w.Code >= 400) != (kind == "application/problem+json") {
			t.Errorf("%s answers %d as %s", request, w.Code, kind)
		}
	}
}
