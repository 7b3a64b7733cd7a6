package decision_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// blocking is a decision server that denies the user 42 everything.
func blocking(f *testing.F, cfg decision.Config) http.Handler {
	f.Helper()
	slog.SetDefault(slog.New(slog.DiscardHandler))
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	v := block("r", "uid", "42", func(v *verdict.Verdict) { v.Until += event.Hour })
	table.Replace(0, []verdict.Verdict{v})
	table.Heartbeat(0, event.FromTime(time.Now()))
	cfg.Table = table
	server, err := decision.New(cfg)
	if err != nil {
		f.Fatal(err)
	}
	return server.Handler(http.NewServeMux())
}

// Whatever a client puts where a proxy passes it on, who is blocked gets no answer that a proxy could take
// for a permission, or for a server that is away: it is a problem, with a length, at once.
func FuzzProxiesNeverLetInWhoIsBlocked(f *testing.F) {
	f.Add("GET", "/search?\xff", "Accept-Language", "de\x80")
	f.Add("OPTIONS", "*", "X-Tallygate-Api", "harmless")
	f.Add("CONNECT", "/..//%zz#x", "X-Original-Uri", "/other")
	f.Add("HEAD", "/"+strings.Repeat("a", 50<<10), "X-Tallygate-Uid", "43")
	f.Add("P\x7fT", "/\x01", "X-User", "4\x012")
	l := bufconn.Listen(64 << 10)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	handler := blocking(f, decision.Config{RequireDimensions: true})
	go func() { ended <- ops.Serve(ctx, l, handler, func(s *http.Server) { s.MaxHeaderBytes = 2 << 20 }) }()
	f.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			f.Error(err)
		}
	})
	f.Fuzz(func(t *testing.T, method, path, name, value string) {
		if strings.ContainsAny(method+path+name+value, "\r\n\x00") || strings.ContainsAny(method+path+name, " \t:") || method == "" || name == "" {
			return // these bytes end what a proxy writes
		}
		for about, request := range map[string]string{
			"forward-auth": fmt.Sprintf("GET /v1/forward-auth HTTP/1.1\r\nHost: t\r\nX-Tallygate-Uid: 42\r\nX-Original-Method: %s\r\nX-Original-Uri: %s\r\n%s: %s\r\n\r\n", method, path, name, value),
			"ext_authz":    fmt.Sprintf("%s /v1/ext-authz%s HTTP/1.1\r\nHost: t\r\nX-Tallygate-Uid: 42\r\n%s: %s\r\n\r\n", method, path, name, value),
		} {
			conn, err := l.DialContext(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = io.WriteString(conn, request) }()
			resp, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
			if err != nil {
				t.Fatalf("%s: %v", about, err)
			}
			if resp.StatusCode < 400 || resp.StatusCode >= 500 && resp.StatusCode != http.StatusNotImplemented && resp.StatusCode != http.StatusHTTPVersionNotSupported {
				t.Errorf("%s: %s", about, resp.Status)
			}
			if resp.ContentLength < 0 && method != http.MethodHead {
				t.Errorf("%s: %s without a length", about, resp.Status)
			}
			if kind := resp.Header.Get("Content-Type"); kind != "application/problem+json" && resp.StatusCode != http.StatusExpectationFailed {
				t.Errorf("%s: %s of type %s", about, resp.Status, kind)
			}
			_ = conn.Close()
		}
	})
}

// quote writes bytes into JSON as a lenient encoder does: what is not UTF-8 stays.
func quote(text string) string {
	var out strings.Builder
	out.WriteByte('"')
	for i := range len(text) {
		if c := text[i]; c < ' ' || c == '"' || c == '\\' {
			fmt.Fprintf(&out, `\u%04x`, c)
		} else {
			out.WriteByte(c)
		}
	}
	return out.String() + `"`
}

// Whatever a client puts where a service passes it on, who is blocked is not let in: the answer is a denial,
// or says what is wrong with the question.
func FuzzQuestionsNeverLetInWhoIsBlocked(f *testing.F) {
	f.Add("search", "192.0.2.1", "attr", "\xff")
	f.Add("\xff", "x", "\x00", strings.Repeat("é", 5000))
	f.Add("", "::1", "uid", "43")
	handler := blocking(f, decision.Config{Admit: newPermits(f, miniredis.RunT(f).Addr()).admitter()})
	f.Fuzz(func(t *testing.T, what, ip, name, value string) {
		question := fmt.Sprintf(`{"uid": "42", "api": %s, "ip": %s, "attrs": {%s: %s}}`, quote(what), quote(ip), quote(name), quote(value))
		for path, body := range map[string]string{"/v1/check": question, "/v1/admit": question, "/v1/check/batch": `{"checks": [` + question + `]}`} {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
			if w.Code == http.StatusBadRequest || w.Code == http.StatusRequestEntityTooLarge {
				continue
			}
			var a struct {
				Allowed, Admitted, Limited bool
				Action                     string
				Results                    []api.Decision
			}
			if err := json.Unmarshal(w.Body.Bytes(), &a); err != nil || w.Code != http.StatusOK {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			for _, r := range a.Results {
				a.Allowed, a.Action = r.Allowed, r.Action
			}
			if a.Allowed || a.Admitted || a.Action != "block" {
				t.Errorf("%s of %s: %s", path, body, w.Body)
			}
		}
	})
}
