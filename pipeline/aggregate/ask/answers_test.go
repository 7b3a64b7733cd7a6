package ask_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask/asktest"
	"github.com/tallygate/tallygate/rules"
)

const calls = "  rules:\n    - {name: calls, match: {api: a}, limit: 5, per: 1h, then: {block: 1m}}\n"

// compile compiles the spec of a rule set.
func compile(t *testing.T, spec string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n"+spec))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// group is one that is asked over HTTP.
type group struct {
	*asktest.Group
	servers []*httptest.Server
}

// start starts members whose answers are held against the API's document.
func start(t *testing.T, spec string, members int) *group {
	t.Helper()
	g := &group{Group: asktest.New(t, compile(t, spec))}
	for range members {
		server := httptest.NewUnstartedServer(nil)
		m := g.Join(ask.Config{Advertise: server.Listener.Addr().String()}, false)
		server.Config.Handler = apitest.Open(t, apidocs.Aggregator).Handler(t, handler(m))
		server.Start()
		t.Cleanup(server.Close)
		g.servers = append(g.servers, server)
	}
	return g
}

// handler lets in anybody, and other members by their signature.
func handler(m *asktest.Member) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/commands", m.ServeCommand)
	mux.HandleFunc("GET /v1/unmatched", m.ServeUnmatched)
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) { httpjson.Reply(w, status) })
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		actor, ok, err := m.Peer(r)
		if err != nil {
			httpjson.Problem(w, http.StatusUnauthorized, err.Error())
			return
		}
		if ok {
			r = r.WithContext(ask.WithActor(r.Context(), actor))
		}
		mux.ServeHTTP(w, r)
	})
}

// status is that of a program which has just begun.
var status = api.Status{Component: "aggregator", Config: []api.Setting{}, Errors: []api.LoggedError{}}

// do asks a member.
func (g *group) do(member int, method, path, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, path, strings.NewReader(body)) //nolint:noctx // answered at once
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	g.servers[member].Config.Handler.ServeHTTP(w, r)
	return w
}

func block(uid string) string {
	return fmt.Sprintf(`{"command":"block","for":"1h","key":{"uid":%q},"reason":"a test"}`, uid)
}

func hit(uid, api string) *event.Event {
	return &event.Event{UID: uid, API: api, Cost: event.One, Time: event.FromTime(time.Now())}
}

// More keys than are looked at are estimated from a sample of them.
func TestDistributionOfASample(t *testing.T) {
	g := start(t, calls, 1)
	const users = 6000
	for u := range users {
		g.Emit(hit(fmt.Sprint("u", u), "a"))
	}
	n, sampled, err := ask.Sample(t.Context(), g.Current(), "calls", g.Members[0].Owned(), 3)
	if err != nil || !sampled || n < users*8/10 || n > users*12/10 {
		t.Errorf("a third of %d keys says that there are %d, %v", users, n, err)
	}
}
