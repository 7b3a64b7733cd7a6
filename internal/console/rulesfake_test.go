package console

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/tools/replay"
)

// group is an aggregator that answers about rules, as the real one does.
type group struct {
	mu       sync.Mutex
	texts    []string // of versions 1, 2, …
	files    map[string][]byte
	matches  float64 // of every rule
	rolled   map[string]any
	rolledBy string   // the token
	tokens   []string // that requests had
	dead     bool
	noCounts bool
	loads    int // versions that no member has loaded yet
}

// ruleNoon is the time of tests' pages.
var ruleNoon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

const manyAPIs = "search.query"

// shopRules is a rule file with so many rules.
func shopRules(n int, limit string) string {
	var b strings.Builder
	b.WriteString("# The shop's limits.\napiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n  rules:\n")
	for i := range n {
		fmt.Fprintf(&b, "    # What search may cost, part %d: <script>alert(1)</script>\n    - name: rule-%03d\n      match: {api: [%s, api-%d]}\n      limit: %s\n      per: 1m\n      then: {block: 5m}\n\n", i, i, manyAPIs, i, limit)
	}
	return b.String()
}

func (g *group) listed(v int) api.RuleVersion {
	l := api.RuleVersion{Version: int64(v), Name: "shop", File: "/etc/tallygate/rules.yaml", By: "aggregator-1:8081", At: ruleNoon.Add(time.Duration(v-len(g.texts)) * 26 * time.Hour).Add(-time.Hour), Bytes: len(g.texts[v-1])}
	if v%2 == 0 {
		l.By, l.OnBehalfOf, l.Reason = "console", "alice", "ticket <b>"+strconv.Itoa(v)+"</b>"
	}
	return l
}

func (g *group) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.tokens = append(g.tokens, strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer "))
	if g.dead && r.URL.Path != "/v1/whoami" {
		httpjson.Problem(w, http.StatusServiceUnavailable, "the instance is stopping")
		return
	}
	switch r.Method + " " + r.URL.Path {
	case "GET /v1/whoami": // a token is its role
		if token := g.tokens[len(g.tokens)-1]; token != "" {
			httpjson.Reply(w, map[string]string{"name": "carol", "role": token, "credential": "token"})
			return
		}
		httpjson.Reply(w, map[string]string{"role": "admin", "credential": "none"})
	case "GET /v1/cluster":
		httpjson.Reply(w, g.cluster())
	case "GET /v1/rules/versions":
		before, _ := strconv.Atoi(r.URL.Query().Get("before"))
		limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
		var list api.RuleVersions
		for v := len(g.texts); v > 0; v-- {
			if before != 0 && v >= before {
				continue
			}
			if list.More = len(list.Versions) == limit; list.More {
				break
			}
			list.Versions = append(list.Versions, g.listed(v))
		}
		httpjson.Reply(w, list)
	case "GET /v1/rules":
		v := len(g.texts)
		if at := r.URL.Query().Get("version"); at != "" {
			v, _ = strconv.Atoi(at)
		}
		if v < 1 || v > len(g.texts) {
			httpjson.Problem(w, http.StatusNotFound, "there is no such version of the rules")
			return
		}
		l := g.listed(v)
		httpjson.Reply(w, api.Rules{Version: l.Version, RuleRecord: api.RuleRecord{Name: l.Name, File: l.File, By: l.By, OnBehalfOf: l.OnBehalfOf, At: l.At, Reason: l.Reason, Source: g.texts[v-1], Files: g.files}})
	case "POST /v1/rules/rollback":
		g.rolled, g.rolledBy = map[string]any{}, g.tokens[len(g.tokens)-1]
		_ = json.NewDecoder(r.Body).Decode(&g.rolled)
		g.texts = append(g.texts, g.texts[int(g.rolled["version"].(float64))-1])
		httpjson.Reply(w, map[string]any{"version": len(g.texts), "changed": true})
	case "GET /v1/rules/distribution":
		g.distribution(w, r.URL.Query().Get("rule"))
	case "GET /v1/unmatched":
		httpjson.Reply(w, map[string]any{"events": 12, "unmatched": []map[string]any{{"api": "serch.query", "outcome": "", "events": 10}, {"api": manyAPIs, "outcome": "denied", "events": 1}, {"api": manyAPIs, "outcome": "", "events": 1, "no_uid": true}, {"api": "<script>", "outcome": "", "events": 1}},
			"instances": 2, "missing": []map[string]any{{"instance": "agg-2", "reason": "it has not answered within 1.2s"}}})
	default:
		httpjson.Problem(w, http.StatusNotFound, "no such path")
	}
}

func (g *group) distribution(w http.ResponseWriter, rule string) {
	if g.noCounts {
		httpjson.Problem(w, http.StatusNotFound, "no such path")
		return
	}
	buckets := []map[string]any{}
	for from := 0; from < 100; from += 10 {
		buckets = append(buckets, map[string]any{"from": strconv.Itoa(from), "to": strconv.Itoa(from + 10), "keys": 1000 / (1 + from)})
	}
	buckets = append(buckets, map[string]any{"from": "100", "to": "200", "keys": 7}, map[string]any{"from": "200", "to": "400", "keys": 2})
	httpjson.Reply(w, map[string]any{"rule": rule, "limits": []map[string]any{{"limit": "", "number": "100", "keys": 1300, "over": 9, "near": 21, "buckets": buckets}}, "sampled": false, "partitions": []int{0, 1}})
}

func (g *group) cluster() api.Cluster {
	samples := map[string][]api.Sample{}
	for i := range strings.Count(g.texts[len(g.texts)-1], "- name: rule-") {
		rule := fmt.Sprintf("rule-%03d", i)
		add := func(metric string, v float64, labels ...string) {
			l := map[string]string{"rule": rule}
			for j := 0; j+1 < len(labels); j += 2 {
				l[labels[j]] = labels[j+1]
			}
			samples[metric] = append(samples[metric], api.Sample{Labels: l, Value: v})
		}
		add("tallygate_rule_matches_total", g.matches*float64(1+i))
		add("tallygate_near_limit_events_total", g.matches/10)
		add("tallygate_overshoot_events_total", g.matches/100*float64(i%3), "mode", "enforce")
	}
	samples["tallygate_events_total"] = []api.Sample{{Labels: map[string]string{"result": "counted"}, Value: g.matches * 100}, {Labels: map[string]string{"result": "late"}, Value: g.matches}}
	samples["tallygate_vocabulary_mismatches_total"] = []api.Sample{{Labels: map[string]string{"what": "api", "name": "<img src=x>"}, Value: g.matches}}
	return api.Cluster{Members: []api.Status{{Component: "aggregator", Instance: "aggregator-1:8081", Started: ruleNoon.Add(-time.Hour),
		Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{Version: int64(len(g.texts) - g.loads), Blown: []string{"rule-002"}}, Partitions: []api.PartitionStatus{{Keys: 1000}}}, Metrics: samples}}}
}

// site is a console over a group.
type site struct {
	*httptest.Server
	t      *testing.T
	group  *group
	rules  *ruleSide
	client *http.Client
	now    time.Time
}

// pastEvents makes events for a replay in tests: searches of a few users in a minute.
func pastEvents(n int) func(context.Context, time.Time) (replay.Source, error) {
	return func(context.Context, time.Time) (replay.Source, error) { return &past{n: n}, nil }
}

type past struct{ n, done int }

func (p *past) Next(context.Context) (*replay.Record, error) {
	if p.done == p.n {
		return nil, io.EOF
	}
	at := event.FromTime(ruleNoon.Add(-time.Hour)) + event.Micros(p.done)*event.Millisecond*100
	p.done++
	return &replay.Record{Event: event.Event{UID: fmt.Sprint("user-", p.done%3), API: manyAPIs, Cost: event.One, Time: at, BrokerTime: event.NoTime}, Broker: at}, nil
}
func (p *past) Where() string        { return "" }
func (p *past) Total() (int64, bool) { return int64(p.n), false }
func (p *past) Done() int64          { return int64(p.done) }
func (p *past) Close() error         { return nil }

// serve starts a console for a reader of a role.
func serve(t *testing.T, g *group, role access.Role, bench workbench.Config) *site {
	t.Helper()
	agg := httptest.NewServer(g)
	t.Cleanup(agg.Close)
	s := &site{t: t, group: g, now: ruleNoon}
	w := watch.Still(&watch.State{At: ruleNoon, Chain: health.Chain{Links: []health.Link{{Name: "events", Title: "Events", Level: health.OK}}}})
	s.Server = httptest.NewUnstartedServer(nil)
	p := &Program{
		API: apiclient.New(agg.URL, agg.Client()).WithToken("the-consoles-own"), Health: w, HTTP: s.Listener,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)), Now: func() time.Time { return s.now },
	}
	srv, err := newServer(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	s.rules = srv.rules
	bench.Mask = srv.rules.maskText
	srv.rules.bench = workbench.New(bench)
	for range 2 { // ten seconds apart
		s.rules.watch.Round(t.Context())
		s.now = s.now.Add(10 * time.Second)
		g.mu.Lock()
		g.matches += 100
		g.mu.Unlock()
	}
	s.Config.Handler = srv.handler()
	s.Start()
	t.Cleanup(s.Close)
	s.client = s.Client()
	s.client.Jar, _ = cookiejar.New(nil)
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.post("/login", url.Values{"token": {role.String()}}, http.StatusSeeOther)
	return s
}

// get returns a page, which has to have the status.
func (s *site) get(path string, status int) string {
	s.t.Helper()
	resp, err := s.client.Get(s.URL + path)
	return s.read("GET "+path, status, resp, err)
}

func (s *site) post(path string, form url.Values, status int) string {
	s.t.Helper()
	resp, err := s.client.PostForm(s.URL+path, form)
	return s.read("POST "+path, status, resp, err)
}

func (s *site) read(what string, status int, resp *http.Response, err error) string {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != status {
		s.t.Fatalf("%s: %s, want %d: %v\n%s", what, resp.Status, status, err, text)
	}
	return string(text)
}

// has fails for each text that a page lacks.
func (s *site) has(page string, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if !strings.Contains(page, text) {
			s.t.Errorf("the page lacks %q\n%.3000s", text, inside(page))
		}
	}
}

// lacks fails for each text that a page has.
func (s *site) lacks(page string, texts ...string) {
	s.t.Helper()
	for _, text := range texts {
		if strings.Contains(page, text) {
			s.t.Errorf("the page has %q\n%.3000s", text, inside(page))
		}
	}
}

// inside returns a page's text below its head.
func inside(page string) string {
	if _, main, ok := strings.Cut(page, "<main"); ok {
		return main
	}
	return page
}

func kafkaAt(brokers ...string) *kafkaconn.Kafka { return &kafkaconn.Kafka{Brokers: brokers} }
