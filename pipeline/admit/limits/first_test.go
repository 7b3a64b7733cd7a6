package limits

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

const firstRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: first}
spec:
  rules: [{name: agent, match: {api: x}, count: {sum: cost}, limit: %d, per: 20s, window: from-first, strict: true}]
`

// started is a window that begins with the first event that was counted, as docs/rules.md says it.
type started struct {
	start, end event.Micros
	sum        event.Decimal
}

// firstStory is one key's permits, whose actions end in any order, and its owner.
type firstStory struct {
	t       *testing.T
	rng     *rand.Rand
	limit   *Limit
	of      *rules.Set
	step    *rules.Stepper
	m       *protocol.Memory
	now     event.Micros
	offset  int64
	seq     int64
	state   []byte
	ids     int
	pending []pendingPermit
	windows []started
	latest  event.Micros
}

type pendingPermit struct {
	id   string
	at   event.Micros
	cost event.Decimal
}

func newFirstStory(t *testing.T, seed uint64) *firstStory {
	t.Helper()
	rng := rand.New(rand.NewPCG(seed, 1))
	set, err := rules.Compile("first.yaml", fmt.Appendf(nil, firstRules, 2+rng.IntN(5)))
	if err != nil {
		t.Fatal(err)
	}
	s := &firstStory{
		t: t, rng: rng, limit: Of(set.Limits[0]), of: set, step: set.NewStepper(), m: &protocol.Memory{},
		now: 1_790_000_000 * event.Second,
	}
	a := s.apply(protocol.Record{Version: 1})
	s.apply(protocol.Record{Grants: &protocol.Grants{Run: "r", Life: a.Life, Until: s.now + 1000*event.Hour}})
	return s
}

func (s *firstStory) process() protocol.Process {
	return protocol.Process{Run: "r", Time: s.now, New: "e"}
}

func (s *firstStory) apply(r ...protocol.Record) protocol.Applied {
	s.t.Helper()
	b := &protocol.Batch{Of: 1, Beat: s.now, Start: s.offset, Next: s.offset + int64(len(r)), Records: r}
	s.offset = b.Next
	a := s.m.Apply(s.process(), b)
	if !a.OK {
		s.t.Fatalf("%+v", a)
	}
	return a
}

// ask asks for a permit, and holds what callers are told against the window that there is.
func (s *firstStory) ask() {
	s.t.Helper()
	s.ids++
	amount := event.Decimal(1+s.rng.IntN(2)) * event.One
	w := s.limit.Want(&rules.Want{Amount: amount, Threshold: s.of.Limits[0].Limit}, s.now)
	q := &protocol.Ask{Key: "uid=1", IDs: []string{fmt.Sprint(s.ids)}, Before: s.now + event.Hour, Version: 1, Wants: []protocol.Want{w}}
	a := s.m.Admit(s.process(), q)
	granted := a.Status == protocol.Granted
	if !granted && a.Status != protocol.Denied {
		s.t.Fatalf("%+v", a)
	}
	per := s.of.Limits[0].Window.Per
	n := Numbers(q.Wants, &a, granted)
	if reset := event.FromDuration(n.ResetAfter); reset > per {
		s.t.Fatalf("at %v the reset is said to be in %v, a window lasts %v", s.now, n.ResetAfter, per.Duration())
	} else if last := len(s.windows) - 1; last >= 0 && s.windows[last].end > a.Now && s.windows[last].sum > 0 && a.Now+reset != s.windows[last].end {
		s.t.Fatalf("at %v the reset is said to be at %v, the window ends at %v", a.Now, a.Now+reset, s.windows[last].end)
	}
	if retry := event.FromDuration(n.RetryAfter); !granted && retry > per {
		s.t.Fatalf("at %v it is said to try again in %v", s.now, n.RetryAfter)
	}
	if granted {
		s.pending = append(s.pending, pendingPermit{q.IDs[0], a.At, amount})
	}
}

// settle has one of the actions end, whichever, and its owner count it or not.
func (s *firstStory) settle() {
	if len(s.pending) == 0 {
		return
	}
	i := s.rng.IntN(len(s.pending))
	p := s.pending[i]
	s.pending = slices.Delete(s.pending, i, i+1)
	in := rules.Input{Key: []byte("uid=1"), At: s.now, ID: "e" + p.id, Permit: p.id, PermitAt: p.at}
	if s.rng.IntN(4) > 0 {
		in.Hits = []rules.Hit{{Limit: s.of.Limits[0], Amount: p.cost, Cost: p.cost}}
		s.count(p.at, p.cost)
	}
	s.state, _ = s.step.Step(nil, s.state, in)
	s.seq++
	l := &protocol.Level{Key: "uid=1", Seq: s.seq, Settles: []string{p.id}}
	level := s.step.Level(s.state)
	l.Latest = level.Latest
	for _, one := range level.Limits {
		sec := protocol.Section{Name: one.Limit.Hash.String()}
		for _, step := range one.Steps {
			sec.Steps = append(sec.Steps, protocol.Step{Until: step.Until, Amount: step.Amount})
		}
		l.Sections = append(l.Sections, sec)
	}
	s.apply(protocol.Record{Level: l})
}

// count finds an event's window by the page's words.
func (s *firstStory) count(at event.Micros, n event.Decimal) {
	per, last := s.of.Limits[0].Window.Per, len(s.windows)-1
	held := func(end event.Micros) bool { return s.latest < end+per }
	if last < 0 || at >= s.windows[last].end {
		s.windows = append(s.windows, started{at, at + per, n})
		s.latest = at
		return
	}
	cur, before := &s.windows[last], &started{}
	if last > 0 {
		before = &s.windows[last-1]
	}
	own := started{at, min(at+per, cur.start-per+1), n}
	switch {
	case at >= cur.start, at > cur.start-per && at >= before.end:
		cur.sum += n
		s.latest = max(s.latest, at)
	case at >= before.start && at < before.end && held(before.end):
		before.sum += n
	case at >= before.end && held(own.end):
		s.windows = slices.Insert(s.windows, last, own)
	}
}

// worst is the count of the fullest window, less the limit.
func (s *firstStory) worst() event.Decimal {
	most := event.Decimal(0)
	for _, w := range s.windows {
		most = max(most, w.sum)
	}
	return most - s.of.Limits[0].Limit
}

func (s *firstStory) play() {
	slow := s.rng.IntN(3) // some actions take as long as a window, and longer
	for range 200 {
		s.now += event.Micros(s.rng.Int64N(int64(3 * event.Second)))
		s.ask()
		for s.rng.IntN(2+3*slow) == 0 || len(s.pending) > 6 || len(s.pending) > 0 && s.now > s.pending[0].at+30*event.Second {
			s.settle()
			if len(s.pending) == 0 {
				break
			}
		}
		if s.worst() > 0 {
			return
		}
	}
	for len(s.pending) > 0 {
		s.settle()
	}
}

// Whatever order actions end in, no window has more than was let in, and callers are told its true end.
func TestNoWindowFromFirstHasMoreThanItsLimit(t *testing.T) {
	begun, seed := 0, testrun.Seed(t)
	for i := range uint64(testrun.Depth(1000)) {
		s := newFirstStory(t, seed+i)
		s.play()
		if s.worst() > 0 {
			t.Fatalf("seed %d: a window has %v more than its limit: %+v", seed+i, s.worst(), s.windows)
		}
		begun += len(s.windows)
	}
	if begun < 1000 {
		t.Errorf("only %d windows", begun)
	}
}

// A permit that is under way for longer than a window may hold an amount in one that began up to a window later.
func TestAPermitWeighsForTwoWindows(t *testing.T) {
	for seed := range uint64(2000) {
		s := newFirstStory(t, seed)
		s.limit.Shape.Keeps = s.of.Limits[0].Window.Per
		s.limit.Shape.Lasts = s.limit.Shape.Keeps
		s.play()
		if s.worst() > 0 {
			return
		}
	}
	t.Error("permits that weigh for one window only do no harm")
}
