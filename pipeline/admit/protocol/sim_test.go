package protocol

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const (
	ms            = event.Millisecond
	simPartitions = 3
	simShards     = 2
	simEnforcers  = 3
	simHold       = 10 * event.Second
	simShort      = 3 * event.Second   // the hold of some limits with faultHolds
	simLong       = 45 * event.Second  // and of the others
	simChaos      = 300 * event.Second // how long things fail
	simDrift      = 0.1                // clocks run so much faster or slower, at most
	simStart      = 1_000_000 * event.Second
)

// fault is a way to fail.
type fault string

const (
	faultEnforcer fault = "enforcer" // an enforcer is killed
	faultPause    fault = "pause"    // an enforcer stands still
	faultCut      fault = "cut"      // an enforcer is cut off from Redis
	faultOwner    fault = "owner"    // an owner is killed, and another one takes over
	faultZombie   fault = "zombie"   // an owner's publisher stands still, and goes on when another has taken over
	faultFlush    fault = "flush"    // Redis loses all
	faultFailover fault = "failover" // a replica takes over, which is behind
	faultSplit    fault = "split"    // and the old primary goes on for a while
	faultRedis    fault = "redis"    // Redis stands still
	faultClock    fault = "clock"    // Redis' clock jumps
	faultSkew     fault = "skew"     // clocks differ, and run at different rates
	faultSlow     fault = "slow"     // packets take seconds
	faultTwice    fault = "twice"    // requests arrive twice, the second time late
	faultDrop     fault = "drop"     // events are lost
	faultRules    fault = "rules"    // rules change
	faultCommands fault = "commands" // reset, exempt
	faultRefunds  fault = "refunds"  // events take back what others counted
	faultCompact  fault = "compact"  // the verdict topic is compacted
	faultStranger fault = "stranger" // actions happen without a permit
	faultHolds    fault = "holds"    // holds differ, and change
)

var (
	faultsOften = []fault{faultEnforcer, faultPause, faultCut, faultOwner, faultZombie, faultSkew, faultSlow, faultTwice, faultDrop}
	faultsRedis = []fault{faultFlush, faultFailover, faultSplit, faultRedis}
	faultsAll   = slices.Concat(faultsOften, faultsRedis, []fault{faultClock, faultRules, faultCommands, faultRefunds, faultCompact, faultStranger})
)

// sim is a simulation of enforcers, shards, owners and publishers, and of what lies between them.
type sim struct {
	seed   uint64
	rng    *rand.Rand
	faults map[fault]bool
	queue  simQueue
	n      uint64
	now    event.Micros // true time
	steps  int
	calm   bool
	bad    string
	log    []string
	trace  bool

	keys   []*simKey
	shards [simShards]*simShard
	input  [simPartitions]*simLog[simEvent]
	loop   [simPartitions]*simLog[simForward]
	topic  [simPartitions]*simLog[Record]
	owners [simPartitions]*simOwner
	enf    [simEnforcers]*simEnforcer
	lost   event.Micros // when Redis last lost its memory
	broker event.Micros // its clock's offset
	runs   int
	ids    int
	ghosts map[string]bool  // actions that began
	inTime map[string]bool  // by id and key: the event was in Kafka before the permit's hold ended
	covers map[string]int64 // by id and key: the offset behind the level that settles it
	never  map[string]bool  // actions whose handler never ran, though nothing kept their enforcer from saying so
	stats  map[string]int
	rules  []map[string]simRule // versions of all limits
}

// simRule is a strict limit.
type simRule struct {
	Limit
	of        string        // the limit's name among counters: the same as long as it is the same limit
	threshold event.Decimal // of the lower tier
	pro       event.Decimal // of the higher one
	loose     bool          // it is not strict yet
}

// simKey is a key and its limits, by the names in simRules.
type simKey struct {
	text      string
	partition int32
	limits    []string
	forwarded bool // its events lie in any partition
	truth     map[string]map[string]simAct
	exempt    event.Micros
}

// simAct is an action: when it was let in, and how much it counts.
type simAct struct {
	at        event.Micros
	n         event.Decimal
	threshold event.Decimal
}

// counters names the limit's counters and its truth.
func (r *simRule) counters() string { return cmp.Or(r.of, r.Name) }

// long tells whether the limit's hold is a long one, with faultHolds.
func (r *simRule) long() bool { return !r.Returns && r.counters()[0] != 't' }

func one(n int) event.Decimal { return event.Decimal(n) * event.One }

var simRules = map[string]simRule{
	"tumbling": {Limit: Limit{Name: "tumbling", Kind: Window, Grain: 40 * event.Second, Keeps: 40 * event.Second, Hold: simHold}, threshold: one(6), pro: one(8)},
	"sliding":  {of: "sliding", Limit: Limit{Name: "sliding", Formers: []string{"sliding by panes"}, Kind: Window, Grain: 1, Keeps: 30 * event.Second, Hold: simHold}, threshold: one(5), pro: one(7)},
	"panes":    {Limit: Limit{Name: "panes", Kind: Window, Grain: 5 * event.Second, Keeps: 35 * event.Second, Hold: simHold}, threshold: one(6), pro: one(6)},
	"hopping":  {Limit: Limit{Name: "hopping", Kind: Window, Grain: 10 * event.Second, Keeps: 40 * event.Second, Hold: simHold}, threshold: one(6), pro: one(9)},
	"bucket":   {Limit: Limit{Name: "bucket", Kind: Bucket, Rate: one(6), Per: 36 * event.Second, Hold: simHold}, threshold: one(6), pro: one(6)},
	"returns":  {Limit: Limit{Name: "returns", Kind: Window, Grain: 40 * event.Second, Keeps: 40 * event.Second, Hold: simHold, Returns: true}, threshold: one(6), pro: one(6)},
	"inflight": {Limit: Limit{Name: "inflight", Kind: InFlight, Hold: simHold, Returns: true}, threshold: one(3), pro: one(3)},
}

func newSim(seed uint64, faults []fault) *sim {
	s := &sim{
		seed: seed, rng: rand.New(rand.NewPCG(seed, 1)), faults: map[fault]bool{}, now: simStart,
		ghosts: map[string]bool{}, inTime: map[string]bool{}, covers: map[string]int64{}, never: map[string]bool{}, stats: map[string]int{}, rules: []map[string]simRule{simRules},
	}
	for _, f := range faults {
		s.faults[f] = true
	}
	if s.faults[faultHolds] {
		s.rules[0] = maps.Clone(simRules)
		for name, r := range simRules {
			if r.Hold = simShort; r.long() {
				r.Hold = simLong
			}
			s.rules[0][name] = r
		}
	}
	for i, limits := range [][]string{{"tumbling"}, {"sliding", "hopping"}, {"panes"}, {"bucket"}, {"returns"}, {"inflight"}, {"tumbling", "bucket"}, {"hopping"}, {"sliding"}, {"returns"}} {
		s.keys = append(s.keys, &simKey{
			text: fmt.Sprintf("k%d", i), partition: int32(i % simPartitions), limits: limits, forwarded: i >= 6,
			truth: map[string]map[string]simAct{},
		})
	}
	if s.faults[faultSkew] {
		s.broker = s.in(-3*event.Second, 3*event.Second)
	}
	for i := range s.shards {
		s.shards[i] = &simShard{s: s, number: i}
		s.shards[i].primary = s.newRedis(s.shards[i], &Memory{})
		s.shards[i].snapshots()
	}
	for p := range int32(simPartitions) {
		s.input[p], s.loop[p], s.topic[p] = &simLog[simEvent]{}, &simLog[simForward]{}, &simLog[Record]{}
	}
	for p := range int32(simPartitions) {
		s.owners[p] = newSimOwner(s, p)
		s.owners[p].takeOver()
	}
	for i := range s.enf {
		s.enf[i] = newSimEnforcer(s, i)
	}
	s.after(8*event.Second, s.chaos)
	return s
}

func (s *sim) in(from, to event.Micros) event.Micros {
	return from + event.Micros(s.rng.Int64N(int64(to-from)+1))
}

// idle returns the time for which there is nothing to do.
func (s *sim) idle(from, to event.Micros) event.Micros {
	if s.calm {
		return s.in(to, 10*to)
	}
	return s.in(from, to)
}

func (s *sim) chance(share float64) bool { return s.rng.Float64() < share }

func (s *sim) has(f fault) bool { return s.faults[f] && !s.calm }

func (s *sim) say(format string, args ...any) {
	if s.trace {
		s.log = append(s.log, fmt.Sprintf("%9.3f ", float64(s.now-simStart)/1e6)+fmt.Sprintf(format, args...))
	}
}

func (s *sim) fail(format string, args ...any) {
	if s.bad == "" {
		s.bad = fmt.Sprintf("seed %d, after %d steps: ", s.seed, s.steps) + fmt.Sprintf(format, args...)
		s.say("FAILED %s", s.bad)
	}
}

// ---- time

type simTask struct {
	at event.Micros
	n  uint64
	do func()
}

type simQueue []simTask

func (q simQueue) Len() int { return len(q) }
func (q simQueue) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].n < q[j].n
}
func (q simQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *simQueue) Push(x any)   { *q = append(*q, x.(simTask)) }
func (q *simQueue) Pop() any     { old := *q; x := old[len(old)-1]; *q = old[:len(old)-1]; return x }

func (s *sim) after(d event.Micros, do func()) {
	s.n++
	heap.Push(&s.queue, simTask{s.now + max(0, d), s.n, do})
}

func (s *sim) run(until event.Micros) {
	for len(s.queue) > 0 && s.queue[0].at <= until && s.bad == "" {
		t := heap.Pop(&s.queue).(simTask)
		s.now = t.at
		s.steps++
		t.do()
	}
	s.now = max(s.now, until)
}

// delay draws a packet's time on the way.
func (s *sim) delay(slow float64) event.Micros {
	if s.has(faultSlow) && s.chance(slow) {
		return s.in(300*ms, 8000*ms)
	}
	return s.in(1*ms, 8*ms)
}

func (s *sim) brokerTime() event.Micros { return s.now + s.broker }

// rules

func (s *sim) version() uint64 { return uint64(len(s.rules) - 1) }

// check holds the guarantee for an action and those that were let in behind it: each of them, with
// all that was let in before, is within its limit.
func (s *sim) check(k *simKey, r *simRule, from event.Micros) {
	var acts []simAct
	for _, a := range k.truth[r.counters()] {
		acts = append(acts, a)
	}
	slices.SortFunc(acts, func(a, b simAct) int { return cmp.Compare(a.at, b.at) })
	level, last := int64(0), event.Micros(0) // of a bucket, in events × µs
	for i, a := range acts {
		level = max(0, level-int64(a.at-last)*int64(r.Rate/event.One)) + int64(a.n/event.One)*int64(r.Per)
		if last = a.at; i+1 < len(acts) && acts[i+1].at == a.at {
			acts[i+1].threshold = max(a.threshold, acts[i+1].threshold) // either may have come first
			continue
		}
		if a.at < from {
			continue
		}
		if top := r.top(acts[:i+1], a.at, level); top > a.threshold {
			s.fail("%s of %s: %v are counted or under way, the limit is %v", r.Name, k.text, top, a.threshold)
		}
	}
}

// top returns the count at a moment, of all that was let in until then.
func (r *simRule) top(acts []simAct, at event.Micros, level int64) event.Decimal {
	since := at - r.Keeps + 1
	switch {
	case r.Kind == Bucket:
		return event.Decimal((level*int64(event.One) + int64(r.Per) - 1) / int64(r.Per))
	case r.Kind == InFlight:
		since = 0
	case r.Name[0] == 'p' || r.of != "" && r.Grain > 1: // panes count a sliding window that is shorter than they are kept
		since += r.Grain
	case r.Grain > 1:
		since = (at-r.Keeps)/r.Grain*r.Grain + r.Grain
	}
	sum := event.Decimal(0)
	for _, a := range acts {
		if a.at >= since {
			sum += a.n
		}
	}
	return sum
}

func TestSimulation(t *testing.T) {
	steps, want := 0, *simSteps
	seed := *simSeed
	if seed == 0 {
		seed = testrun.Seed(t)
	}
	stats := map[string]int{}
	for steps < want {
		s := simulate(seed, faultsOf(seed), *simTrace)
		if s.bad != "" {
			for _, line := range s.log {
				t.Log(line)
			}
			t.Fatalf("%s\nfaults: %v", s.bad, faultsOf(seed))
		}
		steps += s.steps
		for name, n := range s.stats {
			stats[name] += n
		}
		seed++
	}
	t.Logf("%d steps to seed %d: %v", steps, seed, stats)
}

// faultsOf draws a simulation's faults: the usual ones, and some of the others.
func faultsOf(seed uint64) []fault {
	rng := rand.New(rand.NewPCG(seed, 2))
	var list []fault
	for _, f := range faultsAll {
		if rng.IntN(10) < 6 {
			list = append(list, f)
		}
	}
	if rng.IntN(10) < 3 { // behind the others, which are as they were drawn before
		list = append(list, faultHolds)
	}
	return list
}

// simulate runs one simulation to its end.
func simulate(seed uint64, faults []fault, trace bool) *sim {
	s := newSim(seed, faults)
	s.trace = trace
	s.run(simStart + simChaos)
	s.rest()
	return s
}

// rest lets all become healthy, and then uses the whole limit of each key.
func (s *sim) rest() {
	s.calm = true
	for _, e := range s.enf {
		e.paused, e.cut = false, false
	}
	for _, o := range s.owners {
		o.paused = false
	}
	for _, sh := range s.shards {
		sh.primary.paused = false
		sh.primary.offset, sh.primary.rate = 0, 1
	}
	s.run(s.now + 300*event.Second)
	ahead := event.Micros(0)
	for _, sh := range s.shards {
		ahead = max(ahead, sh.primary.memory.Clock-s.now)
	}
	// A clock that is ahead goes on at 0.9 of its rate; and exempt keys count far above their limits.
	s.run(s.now + max(11*ahead, 1200*event.Second))
	if s.bad != "" {
		return
	}
	for _, k := range s.keys {
		s.useUp(k)
	}
}

func (s *sim) useUp(k *simKey) {
	rules := s.rules[s.version()]
	want := event.Decimal(1 << 60)
	for _, name := range k.limits {
		r := rules[name]
		want = min(want, r.threshold)
	}
	got := event.Decimal(0)
	var last Answer
	redis := s.shards[k.partition%simShards].primary
	for i := range int(want/event.One) + 2 {
		ask := s.ask(k, fmt.Sprintf("last %d", i), s.version(), one(1), false)
		ask.Before = 1 << 62
		last = redis.memory.Admit(redis.process(), &ask)
		if last.Status == Granted {
			got += event.One
		}
	}
	if got != want {
		s.fail("%s: only %v of %v could be used at rest (%+v, %d permits)", k.text, got, want, last, len(redis.memory.key(k.text, 0).Permits))
	}
}

// ask is a question for a key's permits by a version of the rules.
func (s *sim) ask(k *simKey, id string, version uint64, n event.Decimal, pro bool) Ask {
	q := Ask{Partition: k.partition, Key: k.text, IDs: []string{id}, Version: version}
	for _, name := range k.limits {
		r := s.rules[version][name]
		w := Want{Limit: r.Limit, Amount: n, Threshold: r.threshold, Lowest: min(r.threshold, r.pro)}
		if pro {
			w.Threshold = r.pro
		}
		q.Wants = append(q.Wants, w)
	}
	return q
}
