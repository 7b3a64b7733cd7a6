package classics

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/instance"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// ten is ten o'clock of this day, UTC: calendar windows of strict rules are those of about now.
var ten = event.FromTime(time.Now().UTC().Truncate(24*time.Hour)) + 10*event.Hour

// limiter is a rule of this module, or a classic one: it decides, and counts as it does.
type limiter interface {
	admit(at event.Micros, n int64) bool
}

// here is a rule of one process.
type here struct {
	*instance.Limits
	now event.Micros
}

func newHere(t *testing.T, line string) *here {
	set, _ := compile(t, line)
	if len(set.Instance) != 1 {
		t.Fatalf("%s: it is not of one process", line)
	}
	h := &here{}
	h.Limits = instance.New(set, instance.Options{Now: func() event.Micros { return h.now }})
	return h
}

func (h *here) admit(at event.Micros, n int64) bool {
	admitted, _ := h.permit(at, n)
	return admitted
}

func (h *here) permit(at event.Micros, n int64) (bool, *instance.Permit) {
	h.now = at
	e := subject(at)
	e.Cost = event.Decimal(n) * event.One
	r, p := h.Admit(&e)
	return r.Allowed, p
}

// before is a strict rule: an Admitter, a Redis in memory with a clock that is set by hand, and
// what an owner and a publisher do with the events.
type before struct {
	t        *testing.T
	rng      *rand.Rand
	redis    *miniredis.Miniredis
	shards   *script.Shards
	admitter *admit.Admitter
	matcher  *rules.Matcher
	stepper  *rules.Stepper
	state    []byte
	next     int64
	seq      int64
	way      []underWay

	// settles is how often an action ends, in one of so many turns; 0: never.
	settles int
	// ended tells that an action has ended, and whether it counts.
	ended func(n int64, counts bool)
}

type underWay struct {
	*admit.Permit
	n      int64
	counts bool
}

// always is behind all that happens here.
var always = ten + 1000*event.Day

func newBefore(t *testing.T, line string, rng *rand.Rand) *before {
	t.Helper()
	set, source := compile(t, line)
	if len(set.Strict()) != 1 {
		t.Fatalf("%s: it is not strict", line)
	}
	return newBeforeOf(t, source, rng)
}

func newBeforeOf(t *testing.T, source string, rng *rand.Rand) *before {
	t.Helper()
	set, err := rules.Compile("rules.yaml", []byte(source))
	if err != nil {
		t.Fatal(err)
	}
	b := &before{t: t, rng: rng, redis: miniredis.RunT(t), matcher: set.NewMatcher(), stepper: set.NewStepper(), settles: 2}
	client := redis.NewClient(&redis.Options{Addr: b.redis.Addr(), MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	b.redis.SetTime(ten.Time())
	b.shards = &script.Shards{Client: client, Prefix: "t", Shards: 1, Partitions: 1}
	text, err := json.Marshal(map[string]any{"format": 1, "file": "rules.yaml", "source": source})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.shards.PutRules(t.Context(), 1, text); err != nil {
		t.Fatal(err)
	}
	first := b.apply(protocol.Record{Version: 1})
	b.apply(protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: always}})
	if b.admitter, err = admit.New(admit.Config{Redis: client, Prefix: "t"}); err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, func(ctx context.Context) error { return b.admitter.Run(ctx) })
	testrun.Eventually(t, "the rules are read", func() bool { return b.admitter.Stats().Version > 0 })
	return b
}

func (b *before) apply(r protocol.Record) protocol.Applied {
	b.t.Helper()
	a, err := b.shards.Apply(b.t.Context(), &protocol.Batch{Of: 1, Start: b.next, Next: b.next + 1, Beat: always, Records: []protocol.Record{r}})
	if err != nil || !a.OK {
		b.t.Fatal(a, err)
	}
	b.next = a.Reached
	return a
}

func (b *before) admit(at event.Micros, n int64) bool {
	b.t.Helper()
	for b.settles > 0 && len(b.way) > 0 && b.rng.IntN(b.settles) == 0 {
		b.settle()
	}
	p := b.permit(at, n)
	if p.Admitted {
		b.way = append(b.way, underWay{p, n, b.ended == nil || b.rng.IntN(3) > 0})
	}
	return p.Admitted
}

func (b *before) permit(at event.Micros, n int64) *admit.Permit {
	b.t.Helper()
	b.redis.SetTime(at.Time())
	e := subject(at)
	return b.ask(admit.Request{API: e.API, Dims: []event.Dim{{Name: "uid", Value: e.UID}}, Cost: event.Decimal(n) * event.One})
}

func (b *before) ask(q admit.Request) *admit.Permit {
	b.t.Helper()
	for range 10 { // a busy machine may be late
		p, err := b.admitter.Admit(b.t.Context(), q)
		if err != nil {
			b.t.Fatal(err)
		}
		if !p.InDoubt {
			return p
		}
		testrun.Eventually(b.t, "what may have been granted is given back", func() bool { return b.admitter.Stats().CancelsWaiting == 0 })
	}
	b.t.Fatal("the limit stays in doubt")
	return nil
}

// settle ends the oldest action: the owner counts its event, and publishes the key's level.
func (b *before) settle() {
	b.t.Helper()
	one := b.way[0]
	b.way = b.way[1:]
	if b.ended != nil {
		b.ended(one.n, one.counts)
	}
	e := subject(one.Event.At)
	e.Cost, e.Outcome = event.Decimal(one.n)*event.One, "failure"
	if one.counts {
		e.Outcome = "success"
	}
	key := []byte("uid=" + e.UID)
	for _, work := range b.matcher.Match(&e, e.Time) {
		in := rules.Input{Key: work.Key, Hits: work.Hits, At: e.Time, Permit: one.ID, PermitAt: one.Event.At}
		b.state, _ = b.stepper.Step(nil, b.state, in)
	}
	b.seq++
	level := &protocol.Level{Key: string(key), Seq: b.seq, Settles: []string{one.ID}}
	if b.state != nil {
		is := b.stepper.Level(b.state)
		level.Latest = is.Latest
		for i := range is.Limits {
			l := &is.Limits[i]
			s := protocol.Section{Name: hex.EncodeToString(l.Limit.Hash[:]), Level: l.Level, Tier: l.Tier}
			for _, step := range l.Steps {
				s.Steps = append(s.Steps, protocol.Step{Until: step.Until, Amount: step.Amount})
			}
			s.Steps = protocol.Coalesce(s.Steps)
			level.Sections = append(level.Sections, s)
		}
	}
	b.apply(protocol.Record{Level: level})
	one.Done(e.Outcome)
}

// subject is the event that all requests here are.
func subject(at event.Micros) event.Event {
	e := event.Event{
		API: "x", UID: "u1", Cost: event.One, Time: at, IP: address,
		Attrs: []event.Attr{{Name: "item", Value: event.StringValue("i1")}},
	}
	e.Canonicalize()
	return e
}

// traffic is when requests come.
type traffic struct {
	start    event.Micros
	requests int
	gap      event.Micros // at most
	pause    event.Micros // at most, at times
	grain    event.Micros // of all times; 0: a µs
	cost     int          // at most; 0: 1
}

// each calls do for each request.
func (w *traffic) each(rng *rand.Rand, do func(i int, at event.Micros, n int64)) {
	at, grain := w.start, max(w.grain, 1)
	for i := range w.requests {
		gap := event.Micros(rng.Int64N(int64(w.gap) + 1))
		if w.pause > 0 && rng.IntN(40) == 0 {
			gap += event.Micros(rng.Int64N(int64(w.pause)))
		}
		at += gap / grain * grain
		do(i, at, 1+int64(rng.IntN(max(w.cost, 1))))
	}
}

// seeds of the tests here: the same each time, and printed by what fails.
var seeds = []uint64{1, 2, 3}[:testrun.Depth(3)]

func rngOf(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 12)) }

// same compares a rule with a classic limiter, request by request.
func same(t *testing.T, w traffic, make func(rng *rand.Rand) (ours, theirs limiter)) {
	t.Helper()
	admitted, denied := 0, 0
	for _, seed := range seeds {
		rng := rngOf(seed)
		ours, theirs := make(rng)
		w.each(rng, func(i int, at event.Micros, n int64) {
			got, want := ours.admit(at, n), theirs.admit(at, n)
			if got != want {
				t.Fatalf("seed %d, request %d, %v, %d at once: ours %t, theirs %t", seed, i, (at - w.start).Duration(), n, got, want)
			}
			if got {
				admitted++
			} else {
				denied++
			}
		})
	}
	if total := len(seeds) * w.requests; admitted < total/20 || denied < total/20 {
		t.Errorf("%d were let in, and %d denied: that shows little", admitted, denied)
	}
}

// other tells how often each of the two lets in what the other one does not.
func other(w traffic, seed uint64, make func(rng *rand.Rand) (ours, theirs limiter)) (more, less, admitted int) {
	rng := rngOf(seed)
	ours, theirs := make(rng)
	w.each(rng, func(_ int, at event.Micros, n int64) {
		got, want := ours.admit(at, n), theirs.admit(at, n)
		switch {
		case got && !want:
			more++
		case want && !got:
			less++
		}
		if got {
			admitted++
		}
	})
	return more, less, admitted
}

// perSecond tells how many of a flood of four requests a millisecond are let in, second by second.
func perSecond(l limiter, start event.Micros, seconds int) []int {
	out := make([]int, seconds)
	for s := range out {
		for i := range event.Micros(4000) {
			if l.admit(start+event.Micros(s)*event.Second+i*event.Millisecond/4, 1) {
				out[s]++
			}
		}
	}
	return out
}

func sum(of []int) (n int) {
	for _, x := range of {
		n += x
	}
	return n
}
