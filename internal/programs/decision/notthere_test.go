package decision_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// What is not there was answered as text.
func TestWhatTheServerDoesNotHave(t *testing.T) {
	h := newRig(t).server.Handler(http.NewServeMux())
	for request, want := range map[string]int{"GET /v1/nothing": 404, "GET /v1/check": 405, "POST /v1/quota": 405, "PUT /v1/blocklist": 405, "GET /": 404} {
		method, path, _ := strings.Cut(request, " ")
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
		if kind := w.Header().Get("Content-Type"); w.Code != want || kind != "application/problem+json" || (w.Code == 405) != (w.Header().Get("Allow") != "") {
			t.Errorf("%s: %d %s %s, want %d", request, w.Code, kind, w.Body, want)
		}
	}
}
