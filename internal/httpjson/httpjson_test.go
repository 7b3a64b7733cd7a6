package httpjson

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAnswers(t *testing.T) {
	for want, answer := range map[string]func(http.ResponseWriter){
		"200 application/json [1,2]\n": func(w http.ResponseWriter) { Reply(w, []int{1, 2}) },
		"404 application/problem+json {\"detail\":\"no such key\",\"status\":404,\"title\":\"Not Found\",\"type\":\"about:blank\"}\n": func(w http.ResponseWriter) {
			Problem(w, http.StatusNotFound, "no such key")
		},
	} {
		w := httptest.NewRecorder()
		answer(w)
		if got := w.Result().Status[:4] + w.Header().Get("Content-Type") + " " + w.Body.String(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
