package proxies

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// What a model's answers use is counted, as Envoy reports it at their end, once for each call: whether the answer is
// one piece or a stream, or has a header that says it. Who has used up the limit gets 429, which uses nothing.
func TestUsageIsReported(t *testing.T) {
	for _, file := range []string{"envoy-usage.yaml", "envoy-usage-header.yaml"} {
		t.Run(file, func(t *testing.T) {
			t.Parallel()
			program(t, "envoy")
			commands := readPage(t, "../../docs/proxies.md", "Tokens of a model")
			for i := range commands {
				commands[i].command = strings.ReplaceAll(commands[i].command, "envoy-usage.yaml", file)
			}
			p := newPage(t)
			call := func(headers ...string) answer { return p.ask(http.MethodPost, "/v1/chat/completions", headers...) }
			p.warms = func() { call("X-User: warm-up") }
			p.run(commands)
			if n := p.count("uid=42"); n != 2100 {
				t.Errorf("three calls of 700 tokens, and some that were denied, are counted as %v", n)
			}
			counted := func(user string, want float64) {
				t.Helper()
				p.eventually("the calls of "+user+" are counted", func() bool { return p.count("uid="+user) == want })
			}
			for range 2 { // a client's own names are not those of its calls
				if a := call("X-User: 45", "X-Call-Id: mine", "X-Request-Id: mine", "X-Tallygate-Permit: forged", "X-Used-Tokens: 1"); a.status != http.StatusOK {
					t.Errorf("another user: %+v", a)
				}
			}
			counted("45", 1400)
			if a := p.ask(http.MethodGet, "/v1/chat/completions", "X-User: 44"); a.status != http.StatusOK && a.status != http.StatusMethodNotAllowed {
				t.Errorf("an answer without tokens: %+v", a)
			}
			call("X-User: 44")
			counted("44", 700)
			http.DefaultClient.CloseIdleConnections()
		})
	}
}

// The permit that a call was admitted by comes with the report of what it used, which settles it.
func TestReportsCarryThePermit(t *testing.T) {
	program(t, "envoy")
	s := newStrictRig(t, envoy("envoy-usage-header.yaml", "", "", 0))
	envoy("envoy-usage-header.yaml", "", "", 0).run(s.rig)
	var told []string
	s.eventually("the whole limit is reserved", func() bool {
		a := s.ask(http.MethodPost, "/v1/chat/completions", "X-User: "+buyer, event.PermitHeader+": "+forged)
		if a.status == http.StatusOK {
			told = append(told, s.heard()...)
		}
		return a.header.Get("Retry-After") != "" && a.header.Get("Retry-After") != "1"
	})
	s.eventually("each call is reported", func() bool { return len(s.reported()) >= len(told) })
	for _, e := range s.reported() {
		if e.Cost != 700*event.One || e.API != "llm.call" || e.UID != buyer || e.ID == "" || !slices.Contains(told, e.Permit.ID) {
			t.Errorf("%+v is reported, and the app was told of %q", e, told)
		}
	}
	if len(told) != 2 || told[0] == told[1] || told[0] == "" {
		t.Errorf("of a limit of two calls %q got through", told)
	}
}
