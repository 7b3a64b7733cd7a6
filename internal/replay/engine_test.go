package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/internal/accesslog"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

const shopRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: search
      match: {api: search.*}
      limit: 5
      per: 1m
      window: sliding
      then: {block: 2m}
    - name: many
      match: {api: "*"}
      limit: 100
      per: 1h
      window: sliding
      then: {block: until-reset}
    - name: orders
      match: {api: order.create}
      limit: 3
      per: day
      window: calendar
      timezone: Asia/Shanghai
      then: {block: until-reset}
    - name: from-one-address
      key: ip
      match: {api: login}
      limit: 4
      per: 10m
      window: tumbling
      then: {block: 5m}
`

func compiled(t testing.TB) *rules.Set {
	set, err := rules.Compile("shop.yaml", []byte(shopRules))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// traffic is events of a few users over some hours, ids and all, in the order of their times.
func traffic(seed uint64, n int) []event.Event {
	r := rand.New(rand.NewPCG(seed, 1))
	at, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	apis := []string{"search.query", "search.suggest", "order.create", "login", "home"}
	out := make([]event.Event, n)
	for i := range out {
		at += event.Micros(r.Int64N(int64(4 * event.Second)))
		out[i] = event.Event{
			ID: fmt.Sprint("e", i), UID: fmt.Sprint("u", r.IntN(9)), API: apis[r.IntN(len(apis))],
			Cost: event.One, Time: at, BrokerTime: event.NoTime,
		}
		_ = out[i].IP.UnmarshalText(fmt.Appendf(nil, "203.0.113.%d", r.IntN(4)))
	}
	return out
}

// counted applies events and returns the last verdict of every limit and key, and where each
// key stands at the end.
func counted(e *Engine, events []event.Event) (map[string]verdict.Verdict, []rules.Explanation) {
	var out Outcome
	var end event.Micros
	for i := range events {
		e.Apply(&events[i], events[i].BrokerTime, verdict.Cause{}, &out)
		end = max(end, events[i].Time)
	}
	last := map[string]verdict.Verdict{}
	for h := range e.Held() {
		last[h.Key+"|"+h.Rule] = h.Verdict
	}
	var stand []rules.Explanation
	for u := range 9 {
		stand = append(stand, e.Explain([]event.Dim{{Name: "uid", Value: fmt.Sprint("u", u)}}, "", end)...)
	}
	return last, stand
}

var ignoreSeq = cmpopts.IgnoreFields(verdict.Verdict{}, "Seq")

// The same events give the same verdicts and counts, however they come.
func TestSameEventsSameVerdicts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	events := traffic(seed, 4000)
	wantLast, wantStand := counted(New(compiled(t)), events)
	if len(wantLast) < 10 {
		t.Fatalf("only %d verdicts fell: the traffic is too thin to show anything", len(wantLast))
	}
	same := func(t *testing.T, last map[string]verdict.Verdict, stand []rules.Explanation) {
		t.Helper()
		if diff := cmp.Diff(wantLast, last, ignoreSeq); diff != "" {
			t.Errorf("last verdicts (- once, + this way)\n%s", diff)
		}
		if diff := cmp.Diff(wantStand, stand, ignoreSeq); diff != "" {
			t.Errorf("counts (- once, + this way)\n%s", diff)
		}
	}

	t.Run("with pieces repeated", func(t *testing.T) {
		var again []event.Event
		for i := range events {
			again = append(again, events[i])
			if from := max(0, i-r.IntN(20)); r.IntN(50) == 0 {
				again = append(again, events[from:i+1]...)
			}
		}
		last, stand := counted(New(compiled(t)), again)
		same(t, last, stand)
	})
	t.Run("split by partition and merged differently", func(t *testing.T) {
		const partitions = 5
		parts := make([][]event.Event, partitions)
		for _, e := range events {
			p := event.Partition([]byte(e.UID), partitions)
			parts[p] = append(parts[p], e)
		}
		uid := func(last map[string]verdict.Verdict) map[string]verdict.Verdict {
			out := map[string]verdict.Verdict{} // keys of addresses have no fixed order over partitions
			for k, v := range last {
				if strings.HasPrefix(k, "uid=") {
					out[k] = v
				}
			}
			return out
		}
		last, stand := counted(New(compiled(t)), slices.Concat(parts...))
		if diff := cmp.Diff(uid(wantLast), uid(last), ignoreSeq); diff != "" {
			t.Errorf("last verdicts (- once, + this way)\n%s", diff)
		}
		if diff := cmp.Diff(wantStand, stand, ignoreSeq); diff != "" {
			t.Errorf("counts (- once, + this way)\n%s", diff)
		}
	})
	t.Run("stopped and resumed", func(t *testing.T) {
		e := New(compiled(t))
		for rest := events; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(700))
			counted(e, rest[:n])
			rest = rest[n:]
			e = resumed(t, e)
		}
		// The last event again is a repeat: it moves nothing, and its time is the end.
		last, stand := counted(e, events[len(events)-1:])
		same(t, last, stand)
	})
	t.Run("from files", func(t *testing.T) {
		names := written(t, r, events)
		src, err := Files(names, nil, accesslog.NDJSON)
		if err != nil {
			t.Fatal(err)
		}
		var read []event.Event
		for {
			rec, err := src.Next(t.Context())
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, rec.Clone())
		}
		last, stand := counted(New(compiled(t)), read)
		same(t, last, stand)
	})
}

// resumed is an engine that has only what the first one's states say.
func resumed(t *testing.T, from *Engine) *Engine {
	e := New(from.Set)
	for ref := range from.table.All() {
		block := from.table.Block(ref)
		if err := errors.Join(rules.CheckState(block), e.Set.CheckWindows(block)); err != nil {
			t.Fatal(err)
		}
		e.table.Load(from.table.Key(ref), block)
	}
	e.held, e.shapes = from.held, from.shapes
	return e
}

// written puts events into a few files.
func written(t *testing.T, r *rand.Rand, events []event.Event) (names []string) {
	folder := t.TempDir()
	for rest := events; len(rest) > 0; {
		n := min(len(rest), 1+r.IntN(2000))
		var text []byte
		for i := range rest[:n] {
			text = append(event.AppendJSON(text, &rest[i]), '\n')
		}
		name := filepath.Join(folder, fmt.Sprintf("%03d.ndjson", len(names)))
		if err := os.WriteFile(name, text, 0o600); err != nil {
			t.Fatal(err)
		}
		names, rest = append(names, name), rest[n:]
	}
	return names
}

// An event counts as covered by the verdicts that are in force for it, whatever the rule counts.
func TestCovered(t *testing.T) {
	set, err := rules.Compile("ads.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: ads}
spec:
  rules:
    - name: shown
      match: {api: ad.shown}
      limit: 2
      per: 1h
      window: tumbling
      then: {block: until-reset, apis: [ad.select]}
`))
	if err != nil {
		t.Fatal(err)
	}
	e := New(set)
	var out Outcome
	start, _ := event.ParseMicros("2026-11-21T10:00:00Z")
	for i, api := range []string{"ad.shown", "ad.select", "ad.shown", "ad.select", "ad.shown", "ad.select"} {
		e.Apply(&event.Event{UID: "u", API: api, Cost: event.One, Time: start + event.Micros(i)*event.Minute, BrokerTime: event.NoTime}, event.NoTime, verdict.Cause{}, &out)
	}
	for h := range e.Held() {
		if h.Covered != 2 || h.Falls != 1 {
			t.Errorf("%d events are covered by %d verdicts, want 2 by 1", h.Covered, h.Falls)
		}
	}
	who := event.Event{UID: "u", API: "ad.select"}
	if got := e.Decide(&who, start+10*event.Minute); len(got) != 1 || got[0].Rule != "shown" {
		t.Errorf("ten minutes on %v is in force, want shown", got)
	}
	if got := e.Decide(&who, start+event.Hour); len(got) != 0 {
		t.Errorf("an hour on %v is in force, want nothing", got)
	}
}

func TestInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	src, err := Files([]string{"-"}, strings.NewReader(""), accesslog.Auto)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := src.Next(ctx); !errors.Is(err, io.EOF) {
		t.Errorf("reading after the end of the context: %v, want the end", err)
	}
}
