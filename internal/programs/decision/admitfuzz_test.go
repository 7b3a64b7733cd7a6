package decision_test

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Whatever the body is, the answer is one, or says what is wrong. It never is a fault of the server.
func FuzzAdmitBody(f *testing.F) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for _, body := range []string{`{"api": "sms.send", "uid": 42, "attrs": {"item": 1e5}, "cost": 2, "id": "a~f"}`, `{"token": "1.AAAA", "outcome": "x"}`,
		`{"api": "export", "hold": null, "wait": 0}`, `{"token": "1."}`, `{"cost": null, "api": "bucket"}`, "\xff"} {
		f.Add(body)
	}
	a := newPermits(f, miniredis.RunT(f).Addr()).admitter()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	server, err := decision.New(decision.Config{Table: table, Admit: a})
	if err != nil {
		f.Fatal(err)
	}
	handler := server.Handler(http.NewServeMux())
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/admit", "/v1/done", "/v1/cancel"} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest && w.Code != http.StatusRequestEntityTooLarge {
				t.Fatalf("%s %q: %d %s", path, body, w.Code, w.Body)
			}
		}
	})
}
