package httpjson

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
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

func TestCauseNamesNoAddress(t *testing.T) {
	_, err := http.Get("http://user:secret@127.0.0.1:1/v1/explain?uid=somebody") //nolint:noctx // nobody listens there
	if got := Cause(fmt.Errorf("ask: %w", err)); err == nil || strings.Contains(got.Error(), "somebody") || strings.Contains(got.Error(), "secret") || !strings.Contains(got.Error(), "127.0.0.1:1") {
		t.Errorf("%v", got)
	}
	other := errors.New("else")
	if got := Cause(other); got != other { //nolint:errorlint // the same one
		t.Errorf("%v", got)
	}
	if got := Cause(nil); got != nil {
		t.Errorf("%v", got)
	}
}
