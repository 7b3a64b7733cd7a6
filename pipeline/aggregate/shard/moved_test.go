package shard

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// movingEnds are rules whose blocks' ends move at each event, or nearly so.
var movingEnds = map[string]string{
	"bucket":         `{name: r, match: {api: "*"}, window: bucket, limit: 60, per: 1m, then: {block: until-reset}}`,
	"quick bucket":   `{name: r, match: {api: "*"}, window: bucket, limit: 50, per: 1s, burst: 100, debt: 9, then: {block: until-reset}}`,
	"hourly bucket":  `{name: r, match: {api: "*"}, window: bucket, limit: 60, per: 1h, then: {block: until-reset}}`,
	"exact times":    `{name: r, match: {api: "*"}, limit: 60, per: 1m, then: {block: until-reset}}`,
	"panes":          `{name: r, match: {api: "*"}, limit: 100, per: 2m, then: {block: until-reset}}`,
	"extended":       `{name: r, match: {api: "*"}, limit: 9, per: 1m, then: {block: 5m, extend: true}}`,
	"with candidate": `{name: r, match: {api: "*"}, limit: 60, per: 1m, candidate: {limit: 20}, then: {block: until-reset}}`,
}

// follower is one key under one rule, its ends that move, and what is published of it.
type follower struct {
	set       *rules.Set
	stepper   *rules.Stepper
	matcher   *rules.Matcher
	moved     movedEnds
	state     []byte
	now       event.Micros
	published map[string]verdict.Verdict
	issued    int
	moves     map[string]int // since the block, by rule
}

func follow(set *rules.Set, from event.Micros) *follower {
	return &follower{
		set: set, stepper: set.NewStepper(), matcher: set.NewMatcher(), now: from,
		published: map[string]verdict.Verdict{}, moves: map[string]int{},
	}
}

const followed = "uid=u1"

func (f *follower) event() {
	e := event.Event{UID: "u1", API: "a", Cost: event.One}
	for _, w := range f.matcher.Match(&e, f.now) {
		next, res := f.stepper.Step(nil, f.state, rules.Input{Key: w.Key, Hits: w.Hits, At: f.now})
		f.state = next
		for i := range res.Changes {
			v := &res.Changes[i]
			waits := false
			for j := range res.Moves {
				if res.Moves[j].Rule == v.Rule {
					waits = f.moved.keep(followed, v, &res.Moves[j], f.now)
				}
			}
			if !waits {
				f.moved.overtaken(followed, v)
				f.publish(v)
			}
		}
	}
}

func (f *follower) publish(v *verdict.Verdict) {
	if before, ok := f.published[v.Rule]; ok && before.Since == v.Since {
		f.moves[v.Rule]++
	} else {
		f.issued, f.moves[v.Rule] = f.issued+1, 0
	}
	f.published[v.Rule] = cloneVerdict(v)
}

// until lets time pass as the partition does.
func (f *follower) until(at event.Micros) {
	for tick := event.FromDuration(lookAtEnds); f.now < at; {
		f.now = min(f.now+tick, at)
		for _, key := range f.moved.due(f.now, false) {
			for _, v := range f.moved.take(key, f.now, false) {
				f.publish(&v)
			}
		}
	}
}

// inForce lists the verdicts in the key's state, of the rule and of its candidate.
func (f *follower) inForce() (vs []verdict.Verdict) {
	for _, e := range f.set.Explain(f.state, []byte(followed), f.now, "") {
		for _, v := range []*verdict.Verdict{e.Verdict, e.Candidate} {
			if v != nil {
				vs = append(vs, *v)
			}
		}
	}
	return vs
}

// Whatever the window and whenever events come: no block ends early, what is published of one that
// moves is at most one end a grain, or a second where events are that rare, but for the first ones,
// and once it is quiet the last end is published.
func TestMovedEndsArePublishedOnceAGrain(t *testing.T) {
	for name, rule := range movingEnds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := compile(t, "  rules: ["+rule+"]")
			grain := max(set.Limits[0].Grain, event.Second/10)
			if steps := set.Limits[0].Rule.Then.Steps; len(steps) > 0 {
				grain = max(steps[0]/60, event.Second/10)
			}
			margin := max(grain/2, leastMargin)
			rapid.Check(t, func(t *rapid.T) {
				f := follow(set, now())
				gaps := []event.Micros{1, event.Millisecond, 20 * event.Millisecond, 300 * event.Millisecond, 2 * event.Second, grain}
				for range rapid.IntRange(1, 8).Draw(t, "stretches") {
					gap := rapid.SampledFrom(gaps).Draw(t, "gap")
					for range rapid.IntRange(1, 80).Draw(t, "events") {
						f.until(f.now + gap)
						f.event()
						for _, v := range f.inForce() {
							told := f.published[v.Rule]
							if told.Until <= f.now || told.State != verdict.Block {
								t.Fatalf("%s: blocked until %v, and %v is published", v.Rule, v.Until, told.Until)
							}
							if most := 2 + int((f.now-v.Since+margin)/min(grain, quietAfter)); f.moves[v.Rule] > most {
								t.Fatalf("%s: %d ends in %v, at most %d", v.Rule, f.moves[v.Rule], (f.now - v.Since).Duration(), most)
							}
						}
					}
				}
				last := f.inForce()
				f.until(f.now + quietAfter + event.FromDuration(lookAtEnds))
				for _, v := range last {
					if told := f.published[v.Rule]; told.Until != v.Until {
						t.Fatalf("%s: when it is quiet %v is published, want %v", v.Rule, told.Until, v.Until)
					}
				}
				if f.moved.waiting > 0 {
					t.Fatal("something waits for ever")
				}
			})
		})
	}
}

// The flood that published at each event: 33 verdicts of one key in its first second. Where a grain
// is longer than a second, an end that a flood moves more rarely is published when it has stood for
// one.
func TestAFloodPublishesOnceAGrain(t *testing.T) {
	for name, grain := range map[string]event.Micros{"bucket": event.Second, "exact times": event.Second, "hourly bucket": event.Minute} {
		set := compile(t, "  rules: ["+movingEnds[name]+"]")
		for _, rate := range []event.Micros{10, 100, 1000, 10_000} {
			f := follow(set, 1_795_000_000*event.Second) // its place in the grain matters
			for f.issued == 0 {
				f.until(f.now + event.Second/rate)
				f.event()
			}
			blocked := f.now
			for f.now < blocked+30*event.Second {
				f.until(f.now + event.Second/rate)
				f.event()
				if n := f.issued + f.moves["r"]; n > 2+int((f.now-blocked)/min(grain, quietAfter)) {
					t.Fatalf("%s, %d a second: %d publications after %v", name, rate, n, (f.now - blocked).Duration())
				}
			}
			if n, most := f.issued+f.moves["r"], 6+int(30*event.Second/grain); n < 2 || n > most {
				t.Errorf("%s, %d a second: %d publications in all, want 2 to %d", name, rate, n, most)
			}
		}
	}
}

// Memory for ends that move is bounded: beyond it, they are published at once.
func TestEndsThatMoveAreBounded(t *testing.T) {
	var m movedEnds
	at := now()
	v := verdict.Verdict{Rule: "r", State: verdict.Block, Until: at + event.Hour}
	mv := rules.Move{Rule: "r", From: at + event.Minute, Grain: event.Second}
	for i := range mostMoved {
		if !m.keep(fmt.Sprint(i), &v, &mv, at) {
			t.Fatalf("end %d does not wait", i)
		}
	}
	if m.keep("more", &v, &mv, at) {
		t.Error("there is no bound")
	}
	for _, key := range m.due(at, true) {
		if got := m.take(key, at, true); len(got) != 1 || got[0].Until != v.Until {
			t.Fatalf("%s: %+v", key, got)
		}
	}
	if !m.keep("more", &v, &mv, at) || m.n != mostMoved || m.waiting != 1 {
		t.Errorf("%d ends are known, %d wait", m.n, m.waiting)
	}
	if m.due(at+event.Second, false); m.n != 1 || len(m.byKey) != 1 {
		t.Errorf("%d ends of %d keys are still known", m.n, len(m.byKey))
	}
}

// A checkpoint that is made while an end waits has it: what is in the checkpoint is not replayed.
func TestAStateHasTheEndThatWaits(t *testing.T) {
	s, at := New(Config{Of: 1}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")}), event.FromTime(time.Now())
	key := []byte(followed)
	ref := s.table.Set(key, putBlockHeader(append([]byte(nil), blockHeaderSpace[:]...), &block{}))
	v := verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: "uid", Value: "u1"}}, State: verdict.Block, Since: at, Until: at + event.Hour}
	if !s.table.moved.keep(followed, &v, &rules.Move{Rule: "r", From: at + event.Minute, Grain: event.Minute}, at) {
		t.Fatal("it does not wait")
	}
	waits := func() []unpublished {
		rec := s.table.stateRecord(new([]byte), ref)
		pending, _, err := decodeWire(rec.Value)
		if err != nil {
			t.Fatal(err)
		}
		return pending
	}
	if got := waits(); len(got) != 1 || got[0].seq != -1 || string(got[0].body) != string(verdict.AppendJSON(nil, &v)) {
		t.Errorf("the state has %d verdicts that are not published: %v", len(got), got)
	}
	v.State = verdict.Clear
	s.verdicts.overtake(followed, []verdict.Verdict{v}, false)
	if got := waits(); len(got) > 0 {
		t.Errorf("the block was cleared, and the state has %v", got)
	}
}

// An end that moves when the last one was published long ago goes out at once, as the first did.
// One that draws near goes out, too, though the last was not long ago.
func TestWhenAnEndThatMovesWaits(t *testing.T) {
	at := now()
	for name, tt := range map[string]struct {
		after event.Micros // the time between two moves
		known event.Micros // how far the known end is then
		waits bool
	}{
		"soon":                          {event.Second, event.Hour, true},
		"just before the grain is over": {event.Minute - 1, event.Hour, true},
		"a grain later":                 {event.Minute, event.Hour, true},
		"the known end is near":         {event.Second, 30 * event.Second, false},
		"it is not as near":             {event.Second, 30*event.Second + 1, true},
	} {
		var m movedEnds
		v := verdict.Verdict{Rule: "r", State: verdict.Block, Until: at + 2*event.Hour}
		mv := rules.Move{Rule: "r", From: at + tt.after + tt.known, Grain: event.Minute}
		if !m.keep("uid=1", &v, &mv, at) || m.waiting != 1 {
			t.Fatalf("%s: the first does not wait", name)
		}
		m.tell(m.find("uid=1", "r"), at) // it is published
		m.find("uid=1", "r").told = mv.From
		if got := m.keep("uid=1", &v, &mv, at+tt.after); got != tt.waits {
			t.Errorf("%s: it waits: %t", name, got)
		}
		e := m.find("uid=1", "r")
		if e == nil || (m.waiting == 1) != tt.waits || (e.v != nil) != tt.waits || m.n != 1 {
			t.Fatalf("%s: %+v, %d wait, %d are known", name, e, m.waiting, m.n)
		}
		if !tt.waits && (e.told != v.Until || e.next != at+tt.after+event.Minute) {
			t.Errorf("%s: known is %v, and the next may be told at %v", name, e.told, e.next)
		}
	}
}

// A verdict takes the place of an end that waits, and of what is known of the one that was
// published; a warning does not, nor the end itself.
func TestWhatTakesThePlaceOfAnEnd(t *testing.T) {
	at := now()
	for name, tt := range map[string]struct {
		waits     bool
		v         verdict.Verdict
		gaveWay   bool
		forgotten bool
	}{
		"a block":                {true, verdict.Verdict{Rule: "r", State: verdict.Block, Until: at}, true, true},
		"a clear":                {true, verdict.Verdict{Rule: "r", State: verdict.Clear}, true, true},
		"a warning":              {true, verdict.Verdict{Rule: "r", State: verdict.Warn}, false, false},
		"another rule's":         {true, verdict.Verdict{Rule: "s", State: verdict.Clear}, false, false},
		"the known end, waiting": {true, verdict.Verdict{Rule: "r", State: verdict.Block, Until: at + event.Hour}, true, true},
		"the known end":          {false, verdict.Verdict{Rule: "r", State: verdict.Block, Until: at + event.Hour}, false, false},
		"another end":            {false, verdict.Verdict{Rule: "r", State: verdict.Block, Until: at + event.Hour + 1}, false, true},
		"a clear behind it":      {false, verdict.Verdict{Rule: "r", State: verdict.Clear, Until: at + event.Hour}, false, true},
		"a warning behind it":    {false, verdict.Verdict{Rule: "r", State: verdict.Warn, Until: at}, false, false},
	} {
		var m movedEnds
		e := &movedEnd{rule: "r", told: at + event.Hour}
		m.add("uid=1", e)
		if tt.waits {
			m.waits(e, &verdict.Verdict{Rule: "r"})
		}
		if got := m.overtaken("uid=1", &tt.v); got != tt.gaveWay || (m.n == 0) != tt.forgotten {
			t.Errorf("%s: it gave way: %t, is forgotten: %t", name, got, m.n == 0)
		}
	}
}
