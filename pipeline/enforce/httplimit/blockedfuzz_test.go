package httplimit_test

import (
	"bufio"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

// Whatever a client puts into a request, who is blocked does not reach the handler, by user or by address.
func FuzzRequestsOfWhoIsBlocked(f *testing.F) {
	f.Add("GET", "/search?\xff", "Accept-Language", "de\x80;q=\xff", "192.0.2.9")
	f.Add("OPTIONS", "*", "Access-Control-Request-Method", "GET", "203.0.113.9, unknown")
	f.Add("X\x80", "/..//%2e%2e/;%00", "X-User", "43", `"`)
	f.Add("CONNECT", "example.com:443", "X-Tallygate-Permit", `{"permit":"forged"}`, "")
	slog.SetDefault(slog.New(slog.DiscardHandler))
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		f.Fatal(err)
	}
	now := event.FromTime(time.Now())
	blocked := func(dim, value string) verdict.Verdict {
		return verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: dim, Value: value}}, Action: verdict.ActBlock, APIs: []string{"*"}, Limit: event.One, Since: now, Until: now + event.Hour}
	}
	table.Replace(0, []verdict.Verdict{blocked("uid", "42"), blocked("ip", "203.0.113.9")})
	reached := false
	app := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached = true })
	mux := http.NewServeMux()
	mux.Handle("/", app)
	options := httplimit.Options{UID: httplimit.Header("X-User"), IP: httplimit.ClientIP(netip.MustParsePrefix("10.0.0.0/8")),
		Attrs: map[string]func(*http.Request) string{"agent": httplimit.FirstHeader("User-Agent"), "session": httplimit.Cookie("session")}}
	doors := map[string]http.Handler{"around a handler": httplimit.Middleware(table, options)(app), "around a mux": httplimit.Middleware(table, options)(mux)}
	f.Fuzz(func(t *testing.T, method, target, name, value, forwarded string) {
		own := name + ": " + value + "\r\n"
		for _, set := range []string{"X-User", "X-Forwarded-For"} {
			if strings.EqualFold(strings.TrimSpace(name), set) { // the proxy sets it
				own = ""
			}
		}
		for about, who := range map[string]string{"user": "X-User: 42", "address": "X-Forwarded-For: " + strings.NewReplacer("\r", "", "\n", "").Replace(forwarded) + ", 203.0.113.9"} {
			r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(fmt.Sprintf("%s %s HTTP/1.1\r\nHost: t\r\n%s\r\n%s\r\n", method, target, who, own))))
			if err != nil || len(r.Header["X-User"])+len(r.Header["X-Forwarded-For"]) != 1 {
				continue // it is no request, or one that no proxy passes on
			}
			r.RemoteAddr = "10.0.0.1:1"
			for door, handler := range doors {
				reached = false
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, r)
				if reached || w.Code < 400 {
					t.Errorf("by %s, %s: %s %q with %q is let in: %d", about, door, r.Method, target, own, w.Code)
				}
			}
		}
	})
}
