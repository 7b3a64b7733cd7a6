package rulewatch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// group is an aggregator's answers.
type group struct {
	texts   []string // of versions 1, 2, …
	asked   map[string]int
	dead    bool
	matches float64
}

func text(rules ...string) string {
	out := "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: shop}\nspec:\n  rules:\n"
	for _, r := range rules {
		name, limit, _ := strings.Cut(r, "=")
		out += "    - {name: " + name + ", match: {api: a}, limit: " + limit + ", per: 1m, then: {block: 1m}}\n"
	}
	return out
}

func (g *group) get(_ context.Context, path string) ([]byte, error) {
	name, query, _ := strings.Cut(path, "?")
	g.asked[name]++
	if g.dead {
		return nil, errors.New("no route to host")
	}
	listed := func(v int) api.RuleVersion {
		return api.RuleVersion{Version: int64(v), By: "alice", Reason: fmt.Sprint("ticket ", v), At: time.Date(2026, 11, v, 0, 0, 0, 0, time.UTC)}
	}
	switch name {
	case "/v1/cluster":
		return json.Marshal(api.Cluster{Members: []api.Status{{Instance: "a", Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{Version: int64(len(g.texts))}},
			Metrics: map[string][]api.Sample{"tallygate_rule_matches_total": {{Labels: map[string]string{"rule": "one"}, Value: g.matches}}}}}})
	case "/v1/rules/versions":
		var list api.RuleVersions
		for v := len(g.texts); v > 0; v-- {
			list.Versions = append(list.Versions, listed(v))
		}
		return json.Marshal(list)
	case "/v1/rules":
		v := len(g.texts)
		if at, ok := strings.CutPrefix(query, "version="); ok {
			v, _ = strconv.Atoi(at)
		}
		return json.Marshal(api.Rules{Version: int64(v), RuleRecord: api.RuleRecord{Source: g.texts[v-1]}})
	}
	return nil, fmt.Errorf("unknown path %s", path)
}

// Versions never change: each is read once, however many pages show it.
func TestChangesOfARule(t *testing.T) {
	g := &group{asked: map[string]int{}, texts: []string{
		text("one=1"), text("one=1", "two=1"), text("one=2", "two=1"), "# more\n" + text("one=2", "two=1"), text("two=1"), text("one=3", "two=1"), text("one=3", "two=1"),
	}}
	b := NewBook(g.get)
	for range 3 {
		if err := b.Refresh(t.Context(), 7); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, name := range []string{"one", "two", "three"} {
		for _, c := range b.Changes(name) {
			got = append(got, fmt.Sprintf("%s: %d %s by %s, %s", name, c.Version, c.What, c.Who(), c.Reason))
		}
	}
	want := []string{
		"one: 6 new by alice, ticket 6", "one: 5 gone by alice, ticket 5", "one: 3 changed by alice, ticket 3", "one: 1 there by alice, ticket 1",
		"two: 2 new by alice, ticket 2",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(- want)\n%s", d)
	}
	if last := b.LastChanges(); len(last) != 2 || last["one"].Version != 6 || last["two"].Version != 2 {
		t.Errorf("%+v", last)
	}
	if g.asked["/v1/rules"] != 7 || g.asked["/v1/rules/versions"] != 1 || len(b.opened) != maxOpened {
		t.Errorf("asked %v, %d open", g.asked, len(b.opened))
	}
	o, err := b.Open(t.Context(), 0)
	if err != nil || o.Version != 7 || o.Rule("one") == nil || o.Rule("three") != nil {
		t.Errorf("%+v, %v", o, err)
	}
	if o, err := b.Open(t.Context(), 1); err != nil || o.Version != 1 || len(b.opened) != maxOpened {
		t.Errorf("an old version: %+v, %v", o, err)
	}
	g.texts = append(g.texts, text("one=3"))
	if err := b.Refresh(t.Context(), 8); err != nil || b.Running() != 8 || len(b.Changes("two")) != 2 {
		t.Errorf("a new version: %v, running %d", err, b.Running())
	}
	g.texts = append(g.texts, "no rules")
	if err := b.Refresh(t.Context(), 9); err != nil {
		t.Errorf("a version of a newer program: %v", err)
	}
	if o, err := b.Open(t.Context(), 0); err != nil || o.Broken == nil || o.Rule("one") != nil {
		t.Errorf("%+v, %v", o, err)
	}
}

func TestWho(t *testing.T) {
	for want, c := range map[string][2]string{"alice": {"alice", ""}, "bob": {"bob", "bob"}, "alice (by console)": {"console", "alice"}} {
		if got := Who(c[0], c[1]); got != want {
			t.Errorf("%v: %s", c, got)
		}
	}
}

// What is known stays, with what went wrong, while nobody answers.
func TestTheLastStateStays(t *testing.T) {
	g := &group{asked: map[string]int{}, texts: []string{text("one=1")}}
	enforcer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "" || r.URL.Path != "/v1/status" {
			t.Errorf("%s with %q", r.URL, r.Header.Get("Authorization"))
		}
		_ = json.NewEncoder(w).Encode(api.Status{Metrics: map[string][]api.Sample{"tallygate_rule_blocked_keys": {{Labels: map[string]string{"rule": "one"}, Value: 3}}}})
	}))
	defer enforcer.Close()
	now := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	w := New(Config{Get: g.get, Enforcers: apiclient.NewEnforcers(enforcer.Client().Transport), Now: func() time.Time { return now }, Beats: func() []presence.Beat {
		return []presence.Beat{{ID: "1", URL: enforcer.URL}, {ID: "2"}, {ID: "3", URL: "http://127.0.0.1:1"}, {ID: "4", URL: enforcer.URL, Age: time.Hour}}
	}})
	if s := w.State(); !s.At.IsZero() || s.Rule("one").Blocked != -1 {
		t.Errorf("before the first round: %+v", s)
	}
	w.Round(t.Context())
	now, g.matches = now.Add(10*time.Second), 50
	w.Round(t.Context())
	s := w.State()
	if r := s.Rule("one"); r.Matches != 5 || r.Blocked != 3 || s.Enforcers != 1 || s.Silent != 3 || s.Span != 10*time.Second || s.Changes["one"].What != "there" {
		t.Errorf("%+v, %+v", r, s)
	}
	if r := s.Rule("two"); r.Blocked != 0 {
		t.Errorf("a rule that nothing is said of: %+v", r)
	}
	g.dead = true
	w.Round(t.Context())
	if dead := w.State(); dead.Err == nil || !dead.At.Equal(s.At) || dead.Rule("one").Matches != 5 {
		t.Errorf("%+v", dead)
	}
	enforcer.CloseClientConnections()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
