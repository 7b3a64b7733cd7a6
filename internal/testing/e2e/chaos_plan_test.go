package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// plan is all that a seed decides: what there is, and what befalls it when. Moments are shares
// of the events, so that they do not depend on how fast the machine is.
type plan struct {
	seed        uint64
	events      int
	uids        int
	partitions  int32
	aggregators []bool // those with an instance id of their own
	brokers     int    // one, or three
	store       store
	brief       bool // nothing is remembered for long, and keys leave
	strict      bool // clients ask for permits, too
	rules       string
	steps       []step
}

// step is one fault, or two at once.
type step struct {
	at     int // events emitted before
	faults []*fault
	seed   uint64 // of what the faults draw themselves
}

const enforcers = 2

// drawPlan draws a plan with so many faults, each as often as any other.
func drawPlan(seed uint64, events, uids, faults int, from []*fault) *plan {
	rnd := rand.New(rand.NewPCG(seed, 1))
	p := &plan{seed: seed, events: events, uids: uids, partitions: int32(4 + rnd.IntN(5)), aggregators: make([]bool, 1+rnd.IntN(3))}
	for i := range p.aggregators {
		p.aggregators[i] = rnd.IntN(2) == 0
	}
	strict := chaos.strict || !slices.ContainsFunc(from, func(f *fault) bool { return !f.strict })
	p.brief = rnd.IntN(4) == 0 && !strict
	p.rules = drawRules(rnd, max(events/max(uids, 1), 5), p.brief)
	p.brokers, p.store = drawServers(rand.New(rand.NewPCG(seed, 3)), from)
	// A permit is held for longer than brief rules remember.
	if p.strict = strict || !p.brief && rand.New(rand.NewPCG(seed, 4)).IntN(2) == 0; p.strict {
		p.rules += strictRules
	}
	var deck []*fault
	for left := faults; left > 0; {
		if len(deck) == 0 {
			deck = slices.DeleteFunc(slices.Clone(from), func(f *fault) bool { return !f.fits(p) })
			if len(deck) == 0 {
				panic("no fault fits the plan's servers") // drawServers sees to it
			}
			rnd.Shuffle(len(deck), func(i, j int) { deck[i], deck[j] = deck[j], deck[i] })
		}
		s := step{faults: deck[:1:1], seed: rnd.Uint64()}
		deck, left = deck[1:], left-1
		if left > 0 && rnd.IntN(4) == 0 {
			if i := slices.IndexFunc(deck, s.faults[0].goesWith); i >= 0 {
				s.faults = append(s.faults, deck[i])
				deck, left = slices.Delete(deck, i, i+1), left-1
			}
		}
		slices.SortStableFunc(s.faults, func(a, b *fault) int { return int(a.kind) - int(b.kind) })
		p.steps = append(p.steps, s)
	}
	for i := range p.steps { // a little before the first, and after the last
		p.steps[i].at = int(int64(events) * int64(i*100+20+rnd.IntN(60)) / int64(len(p.steps)*100+20))
	}
	return p
}

func (p *plan) String() string {
	var b strings.Builder
	static := 0
	for _, s := range p.aggregators {
		if s {
			static++
		}
	}
	fmt.Fprintf(&b, "%d events over %d uids, %d partitions, %d aggregators (%d with an instance id), %d enforcers, %d brokers, Redis as %s\nrules:\n%s\nfaults:\n",
		p.events, p.uids, p.partitions, len(p.aggregators), static, enforcers, p.brokers, p.store, strings.Trim(p.rules, "\n"))
	for i, s := range p.steps {
		fmt.Fprintf(&b, "%3d. at %d events: %s\n", i+1, s.at, s)
	}
	return b.String()
}

func (s step) String() string {
	names := make([]string, len(s.faults))
	for i, f := range s.faults {
		names[i] = f.String()
	}
	return strings.Join(names, " + ")
}

// kind is what a fault befalls. Of two at once, the one of the lower kind strikes first and heals
// last: it may wait for what the other one breaks.
type kind int

const (
	ofAggregator kind = iota
	ofEnforcer
	ofKafka
	ofNetwork
	ofRedis
)

func (k kind) String() string {
	return [...]string{"aggregator", "enforcer", "Kafka", "network", "Redis"}[k]
}

// fault is one way in which things go wrong.
type fault struct {
	kind    kind
	name    string
	members int     // aggregators that it needs
	brokers int     // brokers that it needs; 0 is any number
	stores  []store // how Redis must run; none is anyhow
	alone   bool    // never beside another
	strict  bool    // it needs strict rules
	// strike does the damage, and returns what repairs it. It may wait for what must have happened
	// in between, such as another instance's takeover. What it returns waits for no program to be
	// well again: the fault beside it may not be healed yet. The stage waits, once all are.
	strike func(s *stage, rnd *rand.Rand) (heal func())
}

func (f *fault) String() string { return f.kind.String() + ": " + f.name }

// goesWith reports whether two faults may come at once.
func (f *fault) goesWith(other *fault) bool {
	return !f.alone && !other.alone && f.kind != other.kind && f.kind+other.kind != ofKafka+ofNetwork
}

// fits reports whether the plan has what the fault befalls.
func (f *fault) fits(p *plan) bool {
	return f.members <= len(p.aggregators) && (!f.strict || p.strict) && (f.brokers == 0 || f.brokers == p.brokers) && (len(f.stores) == 0 || slices.Contains(f.stores, p.store))
}

// drawServers draws how Kafka and Redis run: every third plan has three brokers, every third a
// Redis of several nodes. It draws what some fault fits.
func drawServers(rnd *rand.Rand, from []*fault) (brokers int, st store) {
	for {
		brokers, st = 1, single
		if rnd.IntN(3) == 0 {
			brokers = 3
		}
		if rnd.IntN(3) == 0 {
			st = []store{sentinel, cluster}[rnd.IntN(2)]
		}
		p := &plan{brokers: brokers, store: st, aggregators: make([]bool, 1), strict: true}
		if slices.ContainsFunc(from, func(f *fault) bool { needs := *f; needs.members = 0; return needs.fits(p) }) {
			return brokers, st
		}
	}
}

// faults are all there are.
func faults() []*fault {
	return slices.Concat(aggregatorFaults(), momentFaults(), kafkaFaults(), brokersFaults(), networkFaults(), redisFaults(), redisNodesFaults(), enforcerFaults())
}
