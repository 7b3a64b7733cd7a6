package proxies

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"google.golang.org/grpc"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/admit/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

const (
	strictLimit = 5 // for each user
	strictRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  rules:
    - {name: coupon-abuse, public: coupons, match: {api: get.buy}, limit: 5, per: 1h, strict: true}
    - {name: crowd, key: ip, match: {api: get.buy}, limit: 1000, per: 1h, strict: true}
    - {name: models, match: {api: llm.call}, count: {sum: cost}, limit: 2000, per: 1h, strict: true}
    - {name: unknown, match: {api: get.doubt}, count: {sum: attrs.n}, limit: 5, per: 1h, strict: true}
`
	buyer  = `43; $x %y "z"`
	forged = `{"permit":"forged","permit_at":"2026-11-23T00:00:00Z"}`
)

// buyerKey is in the buyer's permits.
var buyerKey = string(event.AppendDim(nil, "uid", buyer))

// grants is an admitter, and a Redis that grants permits by strictRules.
func grants(t *testing.T) *admit.Admitter {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { _ = client.Close() })
	shards := publish.OnRedis(client, "tallygate", 1, 1)
	text, err := json.Marshal(map[string]any{"format": 1, "file": "rules.yaml", "source": strictRules})
	if err != nil {
		t.Fatal(err)
	}
	if err := shards.PutRules(t.Context(), 1, text); err != nil {
		t.Fatal(err)
	}
	apply := func(at int64, r protocol.Record) protocol.Applied {
		a, err := shards.Apply(t.Context(), &protocol.Batch{Of: 1, Start: at, Next: at + 1, Beat: event.FromTime(time.Now()), Records: []protocol.Record{r}})
		if err != nil || !a.OK {
			t.Fatal(a, err)
		}
		return a
	}
	first := apply(0, protocol.Record{Version: 1})
	apply(1, protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: event.FromTime(time.Now()) + event.Hour}})
	a, err := admit.New(admit.Config{Redis: client, Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, a.Run)
	testrun.Eventually(t, "the rules are read", func() bool { return a.Stats().Version > 0 })
	return a
}

// strictRig is an app that notes the permits which it is told, and a server that grants them.
type strictRig struct {
	*rig
	mu   sync.Mutex
	told []string // the permits' ids; "" for a request without
	bad  []string // headers that are no permits of the buyer's

	reports []event.Event
}

// Emit takes the events of reports.
func (s *strictRig) Emit(e event.Event) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = append(s.reports, e)
	return true
}

func (s *strictRig) reported() []event.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.reports)
}

func newStrictRig(t *testing.T, c recipe) *strictRig {
	t.Helper()
	s := &strictRig{rig: &rig{t: t, proxy: servers.FreeAddr(t), patient: true}}
	s.app = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.app.Close)
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, nil)
	asked, options := grants(t), runsWith(t, c.file)
	fa, err := forwardauth.New(forwardauth.Config{Decider: table, Headers: options.Headers, RequireDimensions: true, Admit: asked})
	if err != nil {
		t.Fatal(err)
	}
	envoy, err := envoylimit.New(envoylimit.Config{Decider: table, Headers: options.Headers, RequireDimensions: true, Admit: asked,
		Usage: envoylimit.Usage{Entries: options.Usage.Entries, Events: s}})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(http.ResponseWriter, *http.Request) {})
	mux.Handle("/v1/forward-auth", fa)
	mux.Handle("/v1/ext-authz/", fa.ExtAuthz("/v1/ext-authz"))
	decider, g := httptest.NewServer(mux), grpc.NewServer()
	envoy.Register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	s.http, s.grpc = decider.Listener.Addr().String(), l.Addr().String()
	s.stopOnce = sync.OnceFunc(func() {
		decider.CloseClientConnections()
		decider.Close()
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(s.stopOnce)
	return s
}

// serve is the app.
func (s *strictRig) serve(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := ""
	for _, text := range r.Header.Values(event.PermitHeader) {
		p, err := event.ParsePermit(text)
		if err != nil || p.ID != "" && !slices.ContainsFunc(p.Keys, func(k event.PermitKey) bool { return k.Key == buyerKey && k.At > 0 }) {
			s.bad = append(s.bad, text)
		}
		id += p.ID
	}
	s.told = append(s.told, id)
	w.Header().Set("X-Used-Tokens", "700")
	fmt.Fprintf(w, "the app got %s %s", r.Method, r.URL.Path)
}

// heard returns what the app was told since the last call.
func (s *strictRig) heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	told := s.told
	s.told = nil
	return told
}

// A strict limit of N lets N through, each with its permit, and no permit that a client makes up.
func TestStrictLimits(t *testing.T) {
	for name, c := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program(t, c.program)
			s := newStrictRig(t, c)
			c.run(s.rig)
			s.eventually("the proxy finds the decision server", func() bool { return s.ask(http.MethodGet, "/doubt", "X-User: 42").status != http.StatusOK })
			s.heard()
			exactly(s, strings.HasPrefix(name, "envoy"))
			for _, header := range []string{forged, ""} {
				if a := s.ask(http.MethodGet, "/free", "X-User: 42", event.PermitHeader+": "+header); a.status != http.StatusOK {
					t.Errorf("what needs no permit: %+v", a)
				}
			}
			if diff := cmp.Diff([]string{"", ""}, s.heard()); diff != "" {
				t.Errorf("what needs no permit has one: %s", diff)
			}
			a := s.ask(http.MethodGet, "/doubt", "X-User: 42", event.PermitHeader+": "+forged)
			if a.status != http.StatusTooManyRequests { // what the sum asks for is not there: a wrong question is no doubt
				t.Errorf("what cannot be counted: %+v, want 429", a)
			}
			if !c.never {
				whileAway(s)
			}
			if len(s.bad) > 0 {
				t.Errorf("the app is told of %q", s.bad)
			}
		})
	}
}

// whileAway checks that no permit is told while the decision server is away and the proxy open.
func whileAway(s *strictRig) {
	s.t.Helper()
	s.stopOnce()
	s.eventually("requests pass while the decision server is away", func() bool {
		return s.ask(http.MethodGet, "/buy", "X-User: 42", event.PermitHeader+": "+forged).status == http.StatusOK
	})
	if heard := s.heard(); len(heard) == 0 || slices.ContainsFunc(heard, func(id string) bool { return id != "" }) {
		s.t.Errorf("while the decision server is away, the app is told of %q", heard)
	}
}

// exactly checks that of many requests the limit's number gets through. told says that clients hear what
// remains. On a slow machine some are in doubt at first, and what they were granted is given back.
func exactly(s *strictRig, told bool) {
	s.t.Helper()
	passed := 0
	buy := func() answer { return s.ask(http.MethodGet, "/buy", "X-User: "+buyer, event.PermitHeader+": "+forged) }
	look := func(a answer) {
		limit := a.header.Get("RateLimit")
		switch {
		case a.status == http.StatusOK:
			passed++
			// One whose permit was asked for again, as Redis was late, says how the other limit stands.
			tells := strings.HasPrefix(limit, `"coupons";r=`) || strings.HasPrefix(limit, `"limit";r=9`)
			if tells != told || a.header.Get(event.PermitHeader) != "" {
				s.t.Errorf("the client is told %v", a.header)
			}
		case a.header.Get("Retry-After") == "1": // in doubt
		case a.status != http.StatusTooManyRequests || !strings.HasPrefix(limit, `"coupons";r=0;t=`):
			s.t.Errorf("%+v", a)
		}
	}
	var asking sync.WaitGroup
	answers := make([]answer, 4*strictLimit)
	for i := range answers {
		asking.Go(func() { answers[i] = buy() })
	}
	asking.Wait()
	for _, a := range answers {
		look(a)
	}
	s.eventually("the whole limit is used", func() bool {
		if passed < strictLimit {
			look(buy())
		}
		return passed >= strictLimit
	})
	for range strictLimit {
		look(buy())
	}
	heard := s.heard()
	slices.Sort(heard)
	if different := slices.Compact(slices.Clone(heard)); passed != strictLimit || len(heard) != strictLimit || len(different) != strictLimit || different[0] == "" {
		s.t.Errorf("%d got through, and the app is told of the permits %q", passed, heard)
	}
}
