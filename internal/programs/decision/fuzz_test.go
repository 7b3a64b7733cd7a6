package decision_test

import (
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// Whatever the body is, the answer is a decision, or says what is wrong.
func FuzzCheckBody(f *testing.F) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	for _, body := range []string{`{"api": "a", "uid": 42, "ip": "::1", "attrs": {"x": 1e5, "y": true, "z": null}}`, `{"checks": [{"api": "a"}]}`,
		`{"api": "a", "uid": -0}`, `{"api": "a", "attrs": {"x": 1e999999999}}`, `[[`, "\xff", `{"api":"a"}{`} {
		f.Add(body)
	}
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	server, err := decision.New(decision.Config{Table: table})
	if err != nil {
		f.Fatal(err)
	}
	handler := server.Handler(http.NewServeMux())
	f.Fuzz(func(t *testing.T, body string) {
		for _, path := range []string{"/v1/check", "/v1/check/batch"} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
			content, _ := io.ReadAll(w.Result().Body)
			if w.Code != http.StatusOK && w.Code != http.StatusBadRequest || !json.Valid(content) {
				t.Errorf("%s answers %d %q", path, w.Code, content)
			}
		}
	})
}

// Whatever path and headers a proxy hands on, it gets a decision.
func FuzzForwardedRequest(f *testing.F) {
	f.Add("/v1/ext-authz/a/b?c", "X-Forwarded-Uri", "/a")
	f.Add("/v1/ext-authz//..//%2e%2e/%zz", "X-Tallygate-Ip", "1.2.3.4:5")
	f.Add("/v1/forward-auth?denied=403", "X-Original-Url", "http://[::1")
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	server, err := decision.New(decision.Config{Table: table})
	if err != nil {
		f.Fatal(err)
	}
	handler := server.Handler(http.NewServeMux())
	f.Fuzz(func(t *testing.T, target, name, value string) {
		if !strings.HasPrefix(target, "/v1/ext-authz/") && !strings.HasPrefix(target, "/v1/forward-auth?") {
			return
		}
		req, err := http.NewRequest(http.MethodGet, "http://tallygate"+target, nil)
		if err != nil {
			return // net/http refuses it
		}
		req.Header.Set(name, value)
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, req)
		if w.Code != http.StatusOK && w.Code != http.StatusNoContent {
			t.Errorf("%s with %s: %q is answered with %d", target, name, value, w.Code)
		}
	})
}
