package tallygatetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/engine/enginetest"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// A test that uses the harness and `tallygate replay` make the same verdicts of the same events, late ones
// and repeats among them, and who is denied in the test is who has one of these verdicts in force.
func TestTheSameVerdictsAsReplay(t *testing.T) {
	seed := testrun.Seed(t)
	r := rand.New(rand.NewPCG(seed, 1))
	events := enginetest.Traffic(seed, 3000)
	for i := range events {
		events[i].BrokerTime = events[i].Time + event.Micros(r.Int64N(int64(20*event.Minute)))
		if i > 0 && r.IntN(20) == 0 {
			events[i].ID = events[i-1].ID
		}
	}
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.BrokerTime, b.BrokerTime) })
	folder := t.TempDir()
	ruleFile, eventFile := filepath.Join(folder, "rules.yaml"), filepath.Join(folder, "events.ndjson")
	var text []byte
	for i := range events {
		text = append(event.AppendJSON(text, &events[i]), '\n')
	}
	for name, content := range map[string][]byte{ruleFile: []byte(enginetest.ShopRules), eventFile: text} {
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want := replayed(t, ruleFile, eventFile)

	h := New(t, ruleFile)
	var got []map[string]any
	held := map[string]verdict.Verdict{} // by record key
	denied := 0
	for i := range events {
		e := &events[i]
		h.AdvanceTo(e.BrokerTime.Time())
		h.Emit(*e)
		for j := range h.out.Changes {
			v := &h.out.Changes[j]
			got = append(got, decoded(t, verdict.AppendJSON(nil, v)))
			held[string(verdict.AppendRecordKey(nil, v))] = *v
		}
		who := fmt.Sprintf("ip=%v&uid=%s", e.IP, e.UID)
		is := slices.ContainsFunc(h.who(who), func(d event.Dim) bool {
			for _, v := range held {
				if v.Key[0] == d && v.Decides() && v.InForce(h.now()) && v.Covers(e.API) {
					return true
				}
			}
			return false
		})
		if h.Blocked(who, e.API) != is {
			t.Fatalf("event %d: %s is blocked for %s: %v; by the verdicts it is %v", i, who, e.API, !is, is)
		}
		if is {
			denied++
		}
	}
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("verdicts (- in replay, + in the test)\n%s", diff)
	}
	if len(want) < 20 || denied < 20 {
		t.Errorf("%d verdicts and %d denials: too few to show anything", len(want), denied)
	}
}

// replayed are the verdicts of the command, in order.
func replayed(t *testing.T, ruleFile, eventFile string) (all []map[string]any) {
	t.Helper()
	none := func(*ops.Options) func() (replay.Aggregator, error) { return nil }
	var out, errs bytes.Buffer
	args := []string{"--rules", ruleFile, "--json", eventFile}
	if status := replay.Command(none)(context.WithoutCancel(t.Context()), args, nil, &out, &errs, testrun.NoEnv); status != 0 {
		t.Fatalf("replay ends with %d: %s", status, &errs)
	}
	for one := range strings.Lines(out.String()) {
		if object := decoded(t, []byte(one)); object["rule"] != nil { // the last line is the summary
			all = append(all, object)
		}
	}
	return all
}

// decoded is a verdict without its order.
func decoded(t *testing.T, text []byte) (object map[string]any) {
	t.Helper()
	if err := json.Unmarshal(text, &object); err != nil {
		t.Fatal(err)
	}
	delete(object, "seq")
	return object
}

// granted is a permit in a simple model: what it weighs, from when on.
type granted struct {
	at      event.Micros
	permit  enforce.Admission
	over    bool // it was ended
	weights bool // it counts, or may
}

// A strict limit lets in exactly what fits: what is counted, what is under way and what was lost, in the
// window, and nothing else. The model keeps every permit.
func TestStrictLimitsAgainstAModel(t *testing.T) {
	seed := testrun.Seed(t)
	for name, window := range map[string]struct {
		rule  string
		ended func(at, now event.Micros) bool
	}{
		"sliding":  {"window: sliding", func(at, now event.Micros) bool { return now >= at+event.Minute }},
		"tumbling": {"window: tumbling", func(at, now event.Micros) bool { return at/event.Minute != now/event.Minute }},
		"calendar": {"window: calendar, timezone: UTC", func(at, now event.Micros) bool { return at/event.Day != now/event.Day }},
	} {
		t.Run(name, func(t *testing.T) {
			per := "1m"
			if name == "calendar" {
				per = "day"
			}
			h := New(t, Rules(fmt.Sprintf(`apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  rules: [{name: a, match: {api: x, outcome: success}, limit: 3, per: %s, %s, strict: {hold: 20s}}]
`, per, window.rule)))
			r := rand.New(rand.NewPCG(seed, 2))
			var all []*granted
			in, out := 0, 0
			for step := range 4000 {
				if all = slices.DeleteFunc(all, func(g *granted) bool { return g.over && (!g.weights || window.ended(g.at, h.now())) }); r.IntN(3) == 0 {
					h.Advance(time.Duration(r.Int64N(int64(12 * time.Second))))
					if name == "calendar" && r.IntN(3) == 0 { // a day has to end often, for more to be let in
						h.Advance(time.Duration(r.Int64N(int64(8 * time.Hour))))
					}
				}
				if len(all) > 0 && r.IntN(2) == 0 {
					end(h, r, all[r.IntN(len(all))])
					continue
				}
				room := 3
				for _, g := range all {
					if g.weights && !window.ended(g.at, h.now()) {
						room--
					}
				}
				a, err := h.Admitter().AdmitRequest(t.Context(), enforce.Request{API: "x", Dims: []event.Dim{{Name: "uid", Value: "7"}}})
				if err != nil || a.Decision.Unavailable() || a.Decision.Allowed != (room > 0) {
					t.Fatalf("step %d: %v, it is let in: %v, and there is room for %d", step, err, a.Decision.Allowed, room)
				}
				if !a.Decision.Allowed {
					out++
					continue
				}
				in++
				all = append(all, &granted{at: h.now(), permit: a, weights: true})
			}
			if in < 100 || out < 100 {
				t.Errorf("%d were let in and %d were not: too few to show anything", in, out)
			}
		})
	}
}

// end ends a permit in one of the ways in which actions end, or leaves it to be lost.
func end(h *Harness, r *rand.Rand, g *granted) {
	if g.over {
		return
	}
	lost := h.now() > g.at+20*event.Second // it counts by itself
	g.over = true
	switch r.IntN(4) {
	case 0:
		h.Emit(event.Event{UID: "7", API: "x", Outcome: "success", Permit: g.permit.Permit})
		g.permit.Held.Done("success")
	case 1:
		h.Emit(event.Event{UID: "7", API: "x", Outcome: "failure", Permit: g.permit.Permit})
		g.permit.Held.Done("failure")
		g.weights = lost
	case 2:
		g.permit.Held.Cancel()
		g.weights = lost
	default: // its process has died
	}
}
