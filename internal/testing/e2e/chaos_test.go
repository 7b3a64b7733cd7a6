package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// Chaos is a test and not a program of its own: the rig, the model, the comparisons and the servers
// that it needs are those of the other tests. Its options are flags of the test binary.
var chaos struct {
	runs, events, uids, faults int
	seed                       uint64
	only, report, logs         string
	strict                     bool
}

func init() {
	flag.IntVar(&chaos.runs, "chaos.runs", 1, "play so many plans")
	flag.IntVar(&chaos.events, "chaos.events", 0, "events of a plan (0: few, for CI)")
	flag.IntVar(&chaos.uids, "chaos.uids", 20_000, "uids of a plan")
	flag.IntVar(&chaos.faults, "chaos.faults", 4, "faults of a plan")
	flag.Uint64Var(&chaos.seed, "chaos.seed", 0, "the first plan's `seed`, each further one's is one more (0: of chance)")
	flag.StringVar(&chaos.only, "chaos.only", "", "draw faults that match this `expression` only")
	flag.BoolVar(&chaos.strict, "chaos.strict", false, "strict rules in each plan, and brief ones in none")
	flag.StringVar(&chaos.logs, "chaos.logs", "", "write the programs' logs into this `folder`")
	flag.StringVar(&chaos.report, "chaos.report", "", "write the table of faults to this `file`, as Markdown")
}

// Whatever befalls the servers, the network and the programs: in the end every counter, every
// verdict, Redis and the enforcers hold what a single pass over the same records gives; and
// meanwhile no enforcer lets an entry go early or holds it for too long. Clients that ask for permits
// before they act never exceed a strict limit, by their own log.
func TestChaos(t *testing.T) {
	servers.Nightly(t, "chaos")
	only, err := regexp.Compile(chaos.only)
	if err != nil {
		t.Fatal(err)
	}
	from := slices.DeleteFunc(faults(), func(f *fault) bool { return !only.MatchString(f.String()) })
	if len(from) == 0 {
		t.Fatalf("no fault matches %q", chaos.only)
	}
	// Without them the test is skipped here, under a name that does not change with the seed.
	servers.Kafka(t)
	servers.Redis(t)
	events, uids, seed := chaos.events, chaos.uids, chaos.seed
	if events == 0 {
		events, uids = scaled(40_000), scaled(4_000)
	}
	if seed == 0 {
		seed = newRand(t).Uint64() >> 32 // short enough to type
	}
	var all tally
	for i := range chaos.runs {
		p := drawPlan(seed+uint64(i), events, uids, chaos.faults, from)
		t.Run(fmt.Sprintf("seed=%d", p.seed), func(t *testing.T) { play(t, p, &all) })
	}
	t.Logf("%v", &all)
	if all.packs == 0 && all.whole > 0 {
		t.Error("nothing was forwarded in packs")
	}
	if chaos.report != "" {
		if err := all.writeFile(chaos.report); err != nil {
			t.Error(err)
		}
	}
}

func play(t *testing.T, p *plan, all *tally) {
	again := fmt.Sprintf("make chaos SEED=%d RUNS=1 EVENTS=%d UIDS=%d FAULTS=%d", p.seed, p.events, p.uids, chaos.faults)
	if chaos.strict {
		again += " STRICT=1"
	}
	if chaos.only != "" {
		again += fmt.Sprintf(" ONLY='%s'", chaos.only)
	}
	t.Logf("%s\n%v", again, p)
	before, began := differencesFound.Load(), time.Now()
	defer func() {
		found := int(differencesFound.Load() - before)
		if t.Failed() { // a program that hangs is a difference too
			found = max(found, 1)
		}
		all.blame(p, found)
		if t.Failed() {
			t.Logf("to play it again: %s", again)
		}
	}()
	s := newStage(t, p)
	if chaos.logs != "" {
		t.Cleanup(func() { s.writeLogs(filepath.Join(chaos.logs, fmt.Sprintf("seed-%d", p.seed))) })
	}
	t.Logf("the servers were ready after %v", time.Since(began).Round(time.Millisecond))
	all.injected([]*fault{firstStart(len(p.aggregators))}, s.start(), 0)
	t.Logf("all programs were ready %v after the start", time.Since(began).Round(time.Millisecond))
	s.lookout = s.watchEnforcers()
	s.load = s.emitPlan()
	if p.strict {
		hammer(s, p.seed)
	}
	for i := range p.steps {
		s.step(i, all)
	}
	s.load.wait()
	if p.strict {
		s.strict.end()
	}
	s.inStep()
	t.Logf("all is counted %v after the start", time.Since(began).Round(time.Millisecond))
	s.compareAll()
	all.forwards(s)
	t.Logf("all is compared %v after the start", time.Since(began).Round(time.Millisecond))
	s.end()
	t.Logf("ended %v after the start", time.Since(began).Round(time.Millisecond))
}

// step plays one step: strikes, heals, and waits until all is in step again.
func (s *stage) step(i int, all *tally) {
	s.t.Helper()
	select {
	case <-s.load.due[i]:
	case <-time.After(3 * within):
		s.t.Fatalf("step %d is not reached: events do not get out", i+1)
	}
	defer close(s.load.over[i])
	st := &s.plan.steps[i]
	rnd := rand.New(rand.NewPCG(st.seed, uint64(i)))
	began, missed := time.Now(), s.missed
	var heals []func()
	for _, f := range st.faults {
		heals = append(heals, f.strike(s, rnd))
	}
	s.healing = true
	for _, heal := range slices.Backward(heals) {
		heal()
	}
	s.healing = false
	lasted := time.Since(began)
	s.allReady()
	inStep := s.inStep()
	s.t.Logf("step %d: %s: lasted %v, in step after %v", i+1, st, lasted.Round(time.Millisecond), inStep.Round(time.Millisecond))
	if s.missed == missed { // else a moment that a fault waits for did not come
		all.injected(st.faults, lasted, inStep)
	}
}

// compareAll is the end: everything equals the model's.
func (s *stage) compareAll() {
	t := s.t
	t.Helper()
	s.caughtUp()
	m := newModel(s.rig)
	m.forgets = s.plan.brief
	if m.events < s.plan.events*6/10 || len(m.issued) == 0 {
		t.Errorf("the model has %d events and %d verdicts: too few to prove anything", m.events, len(m.issued))
	}
	var ps []*Process
	for _, member := range s.members {
		ps = append(ps, member.Process)
	}
	m.compareOrder(t)
	m.compareCounters(t, m.keys(), ps...)
	if s.plan.brief {
		s.countTombstones()
	} else {
		s.tellLost(newNaive(s.rig).compare(t, "yearly-utc", "bytes-utc", ps...))
	}
	topic := m.compareVerdicts(s.rig)
	m.compareLeft(s.rig)
	s.compareRedis(readVerdicts(s.rig))
	last := m.lastPublished(s.rig)
	for _, g := range s.guards {
		compareTable(t, g.Process, last)
		compareChecks(t, g.Process, m, last, "order.create")
		compareChecks(t, g.Process, m, last, "search.query")
	}
	s.lookout.stop()
	s.lookout.judge(topic)
	if s.plan.strict {
		s.strict.check()
		s.strict.counted(s.members[0].Process)
	}
}

// tellLost helps to find what was not counted, or twice: records of many events, all of whose users
// have a wrong count.
func (s *stage) tellLost(uids map[string]bool) {
	var decoder event.Decoder
	for p := range s.partitions {
		if len(uids) == 0 {
			return
		}
		s.records(s.names.Events, p, func(rec *sarama.ConsumerMessage) {
			events, _ := decoder.Decode(rec.Value, nil, rec.Key, nil)
			n := 0
			for i := range events {
				if uids[events[i].UID] {
					n++
				}
			}
			if n > 4 && n == len(events) {
				s.t.Logf("maybe wrong: all %d events of %s at %d, appended at %v", n, repeatKey(rec), rec.Offset, rec.Timestamp)
			}
		})
	}
}

// end stops all programs, which end well.
func (s *stage) end() {
	t := s.t
	t.Helper()
	for _, p := range s.all() {
		if status := p.Stop(); status != 0 {
			t.Errorf("%s exits with %d after SIGTERM", p.name, status)
		}
		if strings.Contains(p.Logs(), "panic") {
			t.Errorf("%s has panicked", p.name)
		}
	}
}

// countTombstones says how many times keys have left.
func (s *stage) countTombstones() {
	s.t.Helper()
	n := 0
	for p := range s.partitions {
		s.records(s.names.Table, p, func(m *sarama.ConsumerMessage) {
			if m.Value == nil {
				n++
			}
		})
	}
	s.t.Logf("keys have left %d times", n)
}
