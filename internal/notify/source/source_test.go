package source

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func block(rule, uid string, change func(*verdict.Verdict)) verdict.Verdict {
	v := verdict.Verdict{Rule: rule, Key: []event.Dim{{Name: "uid", Value: uid}}, State: verdict.Block, Action: verdict.ActBlock, APIs: []string{"x"},
		Count: 101 * event.One, Limit: 100 * event.One, Since: event.FromTime(noon), Until: event.FromTime(noon.Add(time.Hour)), Seq: 7}
	if change != nil {
		change(&v)
	}
	return v
}

func entryOf(v verdict.Verdict, notify string) string {
	return fmt.Sprintf(`{"type":"verdict","at":"2026-11-21T12:00:01Z","by":"agg-1"%s,"verdict":%s}`, notify, verdict.AppendJSON(nil, &v))
}

// What entries of the audit tell, in words. Those that are for nobody are no Notes.
func TestEntries(t *testing.T) {
	const told = `,"notify":["fraud"]`
	for _, c := range []struct{ entry, want string }{
		{entryOf(block("r", "42", nil), told), "verdict r [uid 42]: block until 2026-11-21 13:00:00Z: 101 of 100 [fraud]"},
		{entryOf(block("r/day", "42", func(v *verdict.Verdict) { v.Mode = verdict.Shadow }), `,"notify":true`), "verdict r/day [uid 42]: block until 2026-11-21 13:00:00Z: 101 of 100 (in shadow mode) []"},
		{entryOf(block("r", "42", func(v *verdict.Verdict) { v.State, v.Step = verdict.Warn, "80%" }), told), "verdict r [uid 42]: 80% of the limit reached: 101 of 100 [fraud]"},
		{entryOf(block("r", "42", func(v *verdict.Verdict) { v.State = verdict.Clear }), told), ""},
		{entryOf(block("r", "42", nil), ""), ""},
		{`{"type":"command","at":"2026-11-21T12:00:01Z","by":"support","on_behalf_of":"alice","command":"block","key":"uid=42","until":"2026-11-21T13:00:00Z","reason":"stolen","id":"X"}`,
			"command  block [uid 42] by support for alice: block until 2026-11-21 13:00:00Z (stolen) []"},
		{`{"type":"command","at":"2026-11-21T12:00:01Z","by":"support","command":"forget","keys":12,"reason":"gdpr","id":"X"}`, "command  forget by support: erase, 12 keys (gdpr) []"},
		{`{"type":"command","by":"support","command":"unblock","key":"uid=1","keys":2,"reason":"asked","id":"X"}`,
			"command  unblock [uid 1] by support: unblock, 2 keys; permits that strict limits deny stay denied (asked) []"},
		{`{"type":"command","by":"support","command":"exempt","key":"uid=1","reason":"","id":"X"}`, "command  exempt [uid 1] by support: exempt ended []"},
		{`{"type":"fuse","at":"2026-11-21T12:00:01Z","by":"agg-1","rule":"r","partition":3,"keys":81233,"reason":"…"}`,
			"fuse r: in partition 3, of 81233 keys: it is in shadow mode there until changed rules are loaded []"},
		{`{"type":"rules","at":"2026-11-21T12:00:01Z","by":"ada","version":9,"name":"shop","file":"r.yaml","hash":"x","from":5,"reason":"too strict"}`,
			"rules-changed  by ada: version 9 of shop, with the text of version 5 (too strict) []"},
		{`{"type":"kill-switch","at":"2026-11-21T12:00:01Z","by":"agg-1","enforcer":"shop-1","enforcer_id":"x","enabled":false,"cause":"file","since":"2026-11-21T12:00:00Z"}`,
			"kill-switch  shop-1: allows everything, by its file []"},
		{`{"type":"kill-switch","by":"agg-1","enforcer":"shop-1","enabled":true}`, "kill-switch  shop-1: enforces again []"},
		{`{"type":"dead-letters","by":"ada","letters":2,"events":3,"id":"x"}`, "command  send dead letters again by ada: 2 dead letters sent again, 3 events []"},
		{`{"type":"read","by":"ada","key":"uid=42","what":"explain","id":"x"}`, ""},
		{`{"type":7}`, ""},
	} {
		n, err := new(Audit).Note([]byte(c.entry), noon)
		if err != nil {
			t.Errorf("%s: %v", c.entry, err)
			continue
		}
		got := ""
		if n != nil {
			got = fmt.Sprintf("%s %s", n.Kind, n.Rule)
			if n.Subject != "" {
				got += " " + n.Subject
			}
			for _, d := range n.Key {
				got += fmt.Sprintf(" [%s %s]", d.Name, d.Value)
			}
			if n.By != "" {
				got += " by " + n.By
			}
			if n.For != "" {
				got += " for " + n.For
			}
			got += ": " + n.What
			if n.Reason != "" {
				got += " (" + n.Reason + ")"
			}
			got += fmt.Sprint(" ", n.Routes)
			if n.State != note.Happened || n.At.Before(noon) {
				t.Errorf("%s: %+v", c.entry, n)
			}
		}
		if got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.entry, got, c.want)
		}
	}
	for _, bad := range []string{"", "[]", `{"type":"verdict","notify":true,"verdict":{}}`} {
		if n, err := new(Audit).Note([]byte(bad), noon); err == nil {
			t.Errorf("%q is read: %+v", bad, n)
		}
	}
}

// A verdict whose end moves comes again, with the same beginning: it is told once. The next block is told.
func TestMovedEndsAreToldOnce(t *testing.T) {
	a := &Audit{}
	told := 0
	for i, v := range []verdict.Verdict{block("r", "1", nil), block("r", "1", func(v *verdict.Verdict) { v.Until += event.Second }), block("r", "2", nil),
		block("r", "1", func(v *verdict.Verdict) { v.Since += event.Second })} {
		n, err := a.Note([]byte(entryOf(v, `,"notify":true`)), noon)
		if err != nil {
			t.Fatal(err)
		}
		if n != nil {
			told++
		}
		if (n == nil) != (i == 1) {
			t.Errorf("%d: %+v", i, n)
		}
	}
	for i := range 3 * remembered {
		a.again(&verdict.Verdict{Rule: fmt.Sprint(i)})
	}
	if told != 3 || len(a.seen)+len(a.before) > 2*remembered {
		t.Errorf("%d are told; %d are remembered", told, len(a.seen)+len(a.before))
	}
}

func TestBlocksByRule(t *testing.T) {
	b := &Blocks{}
	if _, ok := b.ByRule(noon); ok {
		t.Error("they are known before they are")
	}
	b.Replace(0, []verdict.Verdict{block("a", "1", nil), block("a", "2", nil), block("b", "1", nil),
		block("shadow", "1", func(v *verdict.Verdict) { v.Mode = verdict.Shadow }), block("log", "1", func(v *verdict.Verdict) { v.Action = verdict.ActLog })})
	later := block("a", "3", func(v *verdict.Verdict) { v.Since += 10 * event.Second })
	cleared := block("a", "2", func(v *verdict.Verdict) { v.State, v.Seq = verdict.Clear, 8 })
	older := block("b", "1", func(v *verdict.Verdict) { v.State, v.Seq = verdict.Clear, 6 })
	b.Apply(0, []verdict.Verdict{cleared, older, later})
	b.Apply(1, []verdict.Verdict{block("c", "9", nil)})
	b.Remove(1, []byte("uid=9|c"))
	b.Heartbeat(0, 0)
	by := func(at time.Time) string { keys, ok := b.ByRule(at); return fmt.Sprint(keys, ok) }
	if is := by(noon); is != "map[a:1 b:1] true" {
		t.Error(is)
	}
	if is := by(noon.Add(time.Minute)); is != "map[a:2 b:1] true" {
		t.Error(is)
	}
	if is := by(noon.Add(time.Hour)); is != "map[] true" || len(b.shards[0]) != 0 {
		t.Error(is, len(b.shards[0]))
	}
}

// world is the installation that States looks at.
type world struct {
	now     time.Time
	cluster api.Cluster
	down    error
	beats   []presence.Beat
	noRedis error
	blocked map[string]int
}

func (w *world) states() *States {
	watch := config.Watch{HitsAbove: 0.1, HitsBelow: 0.05, HitsFor: 20 * time.Second, HitsKeys: 5, LagAbove: 30 * time.Second, LagFor: 10 * time.Second, StaleFor: 10 * time.Second, GoneFor: 10 * time.Second}
	return &States{Watch: watch, Now: func() time.Time { return w.now },
		Cluster: func(context.Context) ([]byte, error) {
			body, _ := json.Marshal(w.cluster)
			return body, w.down
		},
		Beats:   func(context.Context) ([]presence.Beat, error) { return w.beats, w.noRedis },
		Blocked: func(time.Time) (map[string]int, bool) { return w.blocked, true },
	}
}

func look(t *testing.T, s *States, wrong bool) string {
	t.Helper()
	active, err := s.Look(t.Context())
	if (err != nil) != wrong {
		t.Errorf("looked: %v", err)
	}
	var names []string
	for i := range active {
		names = append(names, strings.Trim(active[i].ID(), "|"))
	}
	return strings.Join(names, ", ")
}

// A rule's share has to last before it is a state, and to fall below the lower bound before it is none.
func TestHitsHaveTwoBounds(t *testing.T) {
	w := &world{now: noon, cluster: api.Cluster{Members: []api.Status{
		{Instance: "a", Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{FileOK: true}, Partitions: []api.PartitionStatus{{Keys: 60}}}},
		{Instance: "b", Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{FileOK: true}, Partitions: []api.PartitionStatus{{Partition: 1, Keys: 40}}}}}}}
	s := w.states()
	for i, step := range []struct {
		blocked int
		want    string
	}{{9, ""}, {10, ""}, {12, ""}, {11, "hits|r"}, {9, "hits|r"}, {5, "hits|r"}, {4, ""}, {9, ""}, {50, ""}, {0, ""}} {
		w.blocked = map[string]int{"r": step.blocked, "other": 1}
		if is := look(t, s, false); is != step.want {
			t.Errorf("step %d: %s, want %s", i, is, step.want)
		}
		w.now = w.now.Add(10 * time.Second)
	}
	w.cluster.Members[0].Aggregator.Partitions[0].Keys, w.blocked = 0, map[string]int{"r": 4}
	w.cluster.Members[1].Aggregator.Partitions[0].Keys = 8
	for range 5 {
		if is := look(t, s, false); is != "" {
			t.Errorf("%s of four keys", is)
		}
		w.now = w.now.Add(10 * time.Second)
	}
}

func TestEnforcersAndAggregators(t *testing.T) {
	lagging := api.PartitionStatus{Partition: 3, Keys: 1, Lag: 9000, LagSeconds: 45}
	w := &world{now: noon, cluster: api.Cluster{
		Members: []api.Status{{Instance: "agg-1", Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{FileError: "rules.yaml:1:1: no\n  more"}, Partitions: []api.PartitionStatus{lagging}}}, {Instance: "agg-2"}},
		Unowned: []api.MissingPartition{{Partition: 2, Reason: "recovering"}},
	}, beats: []presence.Beat{
		{ID: "1", Name: "shop", Stale: true, Staleness: 31}, {ID: "2", Name: "gone", Age: time.Minute, Seen: noon},
		{ID: "3", Name: "again", Age: time.Minute}, {ID: "4", Name: "again"}, {ID: "5", Name: "fine"},
	}}
	s := w.states()
	if is, want := look(t, s, false), "enforcer-gone||gone, rules-rejected||agg-1"; is != want {
		t.Errorf("at once: %s, want %s", is, want)
	}
	w.now = noon.Add(10 * time.Second)
	const all = "aggregators-gone||partition 2, enforcer-gone||gone, enforcer-stale||shop, lag||partition 3, rules-rejected||agg-1"
	if is := look(t, s, false); is != all {
		t.Errorf("later: %s", is)
	}
	w.noRedis, w.down = errors.New("away"), errors.New("away")
	w.now = noon.Add(20 * time.Second)
	if is := look(t, s, true); is != strings.Replace(all, "aggregators-gone||partition 2, ", "", 1) {
		t.Errorf("while nobody answers, what was stays: %s", is)
	}
	w.now = noon.Add(30 * time.Second)
	active, _ := s.Look(t.Context())
	if i := slices.IndexFunc(active, func(n note.Note) bool { return n.Kind == note.AggregatorsGone }); i < 0 || active[i].At != noon.Add(20*time.Second) || active[i].State != note.Firing {
		t.Errorf("%+v", active)
	}
	w.down = &api.Refusal{Status: 403, Detail: "no role"}
	look(t, s, true)
	w.noRedis, w.down, w.beats = nil, nil, []presence.Beat{{Name: "shop"}}
	w.cluster = api.Cluster{Members: []api.Status{{Instance: "agg-1", Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{FileOK: true}}}}}
	if is := look(t, s, false); is != "" {
		t.Errorf("when all is well: %s", is)
	}
}

// A finding that is told by notifications is of a kind that routes may name.
func TestFindingsAreOfKinds(t *testing.T) {
	for _, f := range health.Findings {
		if f.Kind != "" && !slices.Contains(note.Kinds(), note.Kind(f.Kind)) {
			t.Errorf("%s is told as %s, which is no kind", f.Name, f.Kind)
		}
	}
}
