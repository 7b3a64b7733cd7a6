package engine_test

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/internal/tools/engine/enginetest"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
	"github.com/tallygate/tallygate/windows"
)

// The same events give the same verdicts and counts, however they come.
func TestSameEventsSameVerdicts(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 2))
	events := enginetest.Traffic(seed, 4000)
	wantLast, wantStand := enginetest.Counted(engine.New(enginetest.Set(t)), events)
	if len(wantLast) < 10 {
		t.Fatalf("only %d verdicts were issued: the traffic is too thin to show anything", len(wantLast))
	}
	same := func(t *testing.T, want, last map[string]verdict.Verdict, stand []rules.Explanation) {
		t.Helper()
		if diff := gocmp.Diff(want, last, enginetest.IgnoreSeq); diff != "" {
			t.Errorf("last verdicts (- once, + this way)\n%s", diff)
		}
		if diff := gocmp.Diff(wantStand, stand, enginetest.IgnoreSeq); diff != "" {
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
		last, stand := enginetest.Counted(engine.New(enginetest.Set(t)), again)
		same(t, wantLast, last, stand)
	})
	for _, partitions := range []int32{1, 2, 5, 16} {
		t.Run(fmt.Sprintf("from %d partitions", partitions), func(t *testing.T) {
			uid := func(last map[string]verdict.Verdict) map[string]verdict.Verdict {
				// Keys of addresses have no fixed order over partitions.
				out := map[string]verdict.Verdict{}
				for k, v := range last {
					if strings.HasPrefix(k, "uid=") {
						out[k] = v
					}
				}
				return out
			}
			last, stand := enginetest.Counted(engine.New(enginetest.Set(t)), interleaved(r, events, partitions))
			same(t, uid(wantLast), uid(last), stand)
		})
	}
	t.Run("stopped and resumed", func(t *testing.T) {
		e := newStopped(t, enginetest.Set(t))
		for rest := events; len(rest) > 0; {
			n := min(len(rest), 1+r.IntN(700))
			if len(rest) > 3500 {
				n = 1 // behind every one of the first five hundred
			}
			enginetest.Counted(e.Engine, rest[:n])
			rest = rest[n:]
			e = e.resumed(t)
		}
		// The last event again is a repeat: it moves nothing, and its time is the end.
		last, stand := enginetest.Counted(e.Engine, events[len(events)-1:])
		same(t, wantLast, last, stand)
	})
	t.Run("from files", func(t *testing.T) {
		names := written(t, r, events)
		src, err := replay.Files(names, nil, accesslog.Lines{Format: accesslog.NDJSON})
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
		last, stand := enginetest.Counted(engine.New(enginetest.Set(t)), read)
		same(t, wantLast, last, stand)
	})
}

// interleaved is events as they come from so many partitions: each one's in order, one partition
// far ahead of another.
func interleaved(r *rand.Rand, events []event.Event, partitions int32) (out []event.Event) {
	parts := make([][]event.Event, partitions)
	for _, e := range events {
		p := event.Partition([]byte(e.UID), partitions)
		parts[p] = append(parts[p], e)
	}
	for len(parts) > 0 {
		p := r.IntN(len(parts))
		n := min(len(parts[p]), 1+r.IntN(300))
		out = append(out, parts[p][:n]...)
		if parts[p] = parts[p][n:]; len(parts[p]) == 0 {
			parts = slices.Delete(parts, p, p+1)
		}
	}
	return out
}

// stopped keeps what an engine's shard writes to its changelog, for another one to go on from.
type stopped struct {
	*engine.Engine
	changelog map[string][]byte
}

func newStopped(t testing.TB, set *rules.Set) *stopped {
	s := &stopped{engine.New(set), map[string][]byte{}}
	s.Keep(func(a shard.Append) { s.changelog[string(a.Key)] = a.Value })
	return s
}

// resumed is an engine that has only what the first one's changelog says.
func (s *stopped) resumed(t *testing.T) *stopped {
	cut, err := s.Shard().BeginCheckpoint()
	if err != nil {
		t.Fatal(err)
	}
	for more := true; more; {
		_, more = cut.CopyNext()
	}
	for _, a := range s.Shard().Effects().States {
		s.changelog[string(a.Key)] = a.Value
	}
	next := newStopped(t, s.Set)
	next.changelog = s.changelog
	next.GoOn(s.Engine)
	for key, value := range s.changelog {
		if _, err := next.Shard().Takeover().Load([]record.Record{{Key: []byte(key), Value: value}}); err != nil {
			t.Fatal(err)
		}
		state, err := next.Shard().State([]byte(key))
		if err := errors.Join(err, s.Set.Check(state)); err != nil {
			t.Fatal(err)
		}
	}
	if more, err := next.Shard().Takeover().CheckLoaded(len(s.changelog)); more || err != nil {
		t.Fatal(more, err)
	}
	return next
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

// Of these rules the order of events makes no difference, as long as their windows are held.
const orderlyRules = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: orderly}
spec:
  max_lateness: 1h
  rules:
    - {name: hour, match: {api: "*"}, limit: 20, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: hour-penalty, match: {api: search.*}, limit: 12, per: 1h, window: tumbling, then: {block: 10m}}
    - {name: civil-hour, match: {api: "*"}, limit: 18, per: hour, window: calendar, timezone: Asia/Kolkata, then: {block: until-reset}}
    - {name: day, match: {api: order.create}, limit: 9, per: day, window: calendar, timezone: America/New_York, then: {block: until-reset}}
    - {name: values, match: {api: "*"}, count: {distinct: ip}, limit: 3, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: exact, match: {api: search.*}, limit: 40, per: 2h, then: {block: until-reset}}
    - {name: panes, match: {api: "*"}, limit: 90, per: 2h, then: {block: until-reset}}
    - {name: sum, match: {api: "*"}, count: {sum: cost}, limit: 90, per: 2h, then: {block: 5m}}
    - {name: hops, match: {api: "*"}, limit: 15, per: 1h, window: hopping, every: 5m, then: {block: until-reset}}
    - {name: hops-penalty, match: {api: search.*}, limit: 9, per: 1h, window: hopping, every: 10m, offset: 3m, then: {block: 10m}}
    - {name: hops-sum, match: {api: "*"}, count: {sum: cost}, limit: 90, per: 2h, window: hopping, every: 7m30s, then: {block: 5m}}
    - {name: away, match: {api: "*"}, when: 'not inNetwork(ip, "203.0.113.0/31")', limit: 12, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: near, key: ip, match: {api: home}, limit: 5, per: 1h, window: tumbling, exempt: [{ip: 203.0.113.2/31, reason: ours}], then: {block: until-reset}}
    - {name: in-a-row, match: {api: search.*}, reset_on: {api: login}, limit: 4, per: 2h, then: {block: until-reset}}
    - {name: in-a-row-values, match: {api: "*"}, count: {distinct: ip}, reset_on: {api: login}, limit: 3, per: 2h, then: {block: until-reset}}
    - {name: session, match: {api: "*"}, window: session, gap: 1h, limit: 1000, then: {block: until-reset}}
    - {name: each, key: [api, ip/24], match: {api: "*"}, limit: 60, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: everything, key: all, match: {api: "*"}, limit: 300, per: 1h, window: tumbling, then: {block: 10m}}
    - {name: address, key: ip, match: {api: "*"}, limit: 60, per: 1h, window: tumbling, then: {block: until-reset}}
`

// Events that come late, each by a time of its own up to half an hour, count as if they had come in
// order: every count is the same, and so is every quota of a fixed window that is in force. So is
// who ever got a penalty; not when it began: a penalty is issued when its last event arrives.
func TestShuffledWithinTheLateness(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	set, err := rules.Compile("orderly.yaml", []byte(orderlyRules))
	if err != nil {
		t.Fatal(err)
	}
	events := enginetest.Traffic(seed, 6000)
	inOrder := engine.New(set)
	wantLast, want := enginetest.Counted(inOrder, events)
	rounds, moved := testrun.Depth(5), 0
	for round := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 10+round))
		late := slices.Clone(events)
		for i := range late {
			late[i].BrokerTime = late[i].Time + event.Micros(r.Int64N(int64(30*event.Minute)))
		}
		slices.SortStableFunc(late, func(a, b event.Event) int { return cmp.Compare(a.BrokerTime, b.BrokerTime) })
		for i := range late {
			if late[i].ID != events[i].ID {
				moved++
			}
		}
		last, got := enginetest.Counted(engine.New(set), late)
		if diff := gocmp.Diff(inAnyOrder(set, want), inAnyOrder(set, got)); diff != "" {
			t.Errorf("round %d: where keys stand (- in order, + shuffled)\n%s", round, diff)
		}
		if diff := gocmp.Diff(penalised(wantLast), penalised(last)); diff != "" {
			t.Errorf("round %d: who got a penalty (- in order, + shuffled)\n%s", round, diff)
		}
	}
	if moved < rounds*len(events)/5 || len(penalised(wantLast)) < 5 {
		t.Errorf("%d events moved, %d penalties: too few to show anything", moved, len(penalised(wantLast)))
	}
}

// inAnyOrder leaves of explanations what the order of events has no part in: the counts and
// windows, and which quotas of fixed windows are in force until when.
func inAnyOrder(set *rules.Set, list []rules.Explanation) (out []string) {
	for i, e := range list {
		line := fmt.Sprintf("%d %s: %v of %v, %v to %v, below it at %v", i, e.Rule, e.Count, e.Limit, e.From, e.Until, e.FreesAt)
		if l := limitOf(set, e.Rule); (l.Window.Kind == windows.Tumbling || l.Window.Kind == windows.Calendar) && l.Rule.Then.UntilReset && e.Verdict != nil {
			line += fmt.Sprintf(", %v until %v", e.Verdict.State, e.Verdict.Until)
		}
		out = append(out, line)
	}
	return out
}

func limitOf(set *rules.Set, name string) *rules.Limit {
	return set.Limits[slices.IndexFunc(set.Limits, func(l *rules.Limit) bool { return l.Name == name })]
}

// penalised are the keys with a penalty of windows that hold late events when they have ended.
func penalised(last map[string]verdict.Verdict) (out []string) {
	for key, v := range last {
		if v.Rule == "hour-penalty" || v.Rule == "hops-penalty" {
			out = append(out, key)
		}
	}
	slices.Sort(out)
	return out
}
