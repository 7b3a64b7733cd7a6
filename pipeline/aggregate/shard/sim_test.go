package shard

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

var (
	simSeed  = flag.Uint64("sim.seed", 0, "the first simulation's seed; 0: of chance")
	simSteps = flag.Int("sim.steps", testrun.Depth(1_000_000), "steps of all simulations together")
)

const (
	simPartitions = 3
	simUIDs       = 40
	simIPs        = 12
	simEmitters   = 250 // more than a checkpoint has in its own record
	simQueues     = 2 + simPartitions
	simRound      = 10_000 // steps of one simulation
)

var simTopics = Topics{Events: Topic{"events", "e"}, Loop: Topic{"loop", "l"}, Table: Topic{"table", "t"}, Verdicts: Topic{"verdicts", "v"}}

var (
	simConfig = Config{Of: simPartitions, Topics: simTopics, MaxDeadLetter: 1 << 20, Instance: "sim", Seed: 1, PackAfter: 300 * event.Millisecond}
	simFound  = Found{Committed: -1}
)

// simRules are versions of one rule set: limits change, a rule goes and comes back, another one is not strict for a while.
var simRules = []string{`
  rules:
    - {name: yearly, public: some, quota: true, strict: true, match: {api: "a.*", outcome: done}, limit: 20, per: year, window: calendar, then: {block: until-reset}}
    - {name: addresses, strict: true, key: ip, match: {api: "*"}, limit: 100, per: year, window: calendar, then: {block: until-reset}}
    - {name: both, public: some, quota: true, key: [uid, ip], match: {api: "*"}, limit: 5, per: year, window: calendar, then: {block: 1h}}
    - {name: each, key: [api, ip/31], match: {api: "*"}, limit: 90, per: year, window: calendar, then: {block: 1h}}
    - {name: everything, key: all, match: {api: "a.*"}, limit: 500, per: year, window: calendar, then: {block: until-reset}}
    - {name: upgrades, key: ip, match: {api: c.x, outcome: [done, failed]}, limit: 20, per: year, window: calendar, tiers: [{when: 'attrs.plan == "big"', limit: 30}], then: {block: until-reset}}
    - {name: bucket, match: {api: "b.*"}, window: bucket, limit: 6, per: 1h, then: {block: until-reset}}`, `
  rules:
    - {name: yearly, public: some, quota: true, strict: true, match: {api: "a.*", outcome: done}, limit: 10, per: year, window: calendar, then: {block: until-reset}}
    - {name: addresses, strict: true, key: ip, match: {api: "*"}, limit: 60, per: year, window: calendar, then: {block: until-reset}}
    - {name: both, public: some, quota: true, key: [uid, ip], match: {api: "*"}, limit: 5, per: year, window: calendar, then: {block: 1h}}
    - {name: each, key: [api, ip/31], match: {api: "*"}, limit: 90, per: year, window: calendar, then: {block: 1h}}
    - {name: sometimes, key: ip, match: {api: "b.*"}, limit: 90, per: year, window: calendar, then: {block: 1h}}
    - {name: everything, key: all, match: {api: "a.*"}, limit: 500, per: year, window: calendar, then: {block: until-reset}}
    - {name: upgrades, key: ip, match: {api: c.x, outcome: [done, failed]}, limit: 20, per: year, window: calendar, tiers: [{when: 'attrs.plan == "big"', limit: 30}], then: {block: until-reset}}
    - {name: bucket, match: {api: "b.*"}, window: bucket, limit: 6, per: 1h, then: {block: until-reset}}`, `
  rules:
    - {name: yearly, public: some, quota: true, strict: true, match: {api: "a.*", outcome: done}, limit: 40, per: year, window: calendar, then: {block: until-reset}}
    - {name: addresses, strict: true, key: ip, match: {api: "*"}, limit: 400, per: year, window: calendar, then: {block: until-reset}}
    - {name: both, public: some, quota: true, key: [uid, ip], match: {api: "*"}, limit: 9, per: year, window: calendar, then: {block: 1h}}
    - {name: each, key: [api, ip/31], match: {api: "*"}, limit: 90, per: year, window: calendar, then: {block: 1h}}
    - {name: everything, key: all, match: {api: "a.*"}, limit: 500, per: year, window: calendar, then: {block: until-reset}}
    - {name: upgrades, key: ip, match: {api: c.x, outcome: [done, failed]}, limit: 20, per: year, window: calendar, tiers: [{when: 'attrs.plan == "big"', limit: 30}], then: {block: until-reset}}`, `
  rules:
    - {name: yearly, public: some, quota: true, strict: true, match: {api: "a.*", outcome: done}, limit: 40, per: year, window: calendar, then: {block: until-reset}}
    - {name: addresses, key: ip, match: {api: "*"}, limit: 400, per: year, window: calendar, then: {block: until-reset}}
    - {name: both, public: some, quota: true, key: [uid, ip], match: {api: "*"}, limit: 9, per: year, window: calendar, then: {block: 1h}}
    - {name: each, key: [api, ip/31], match: {api: "*"}, limit: 90, per: year, window: calendar, then: {block: 1h}}
    - {name: sometimes, key: ip, match: {api: "b.*"}, limit: 90, per: year, window: calendar, then: {block: 1h}}
    - {name: everything, key: all, match: {api: "a.*"}, limit: 500, per: year, window: calendar, then: {block: until-reset}}
    - {name: upgrades, key: ip, match: {api: c.x, outcome: [done, failed]}, limit: 20, per: year, window: calendar, tiers: [{when: 'attrs.plan == "big"', limit: 30}], then: {block: until-reset}}`}

func partitionOfUID(uid string) int32 { return event.Partition([]byte(uid), simPartitions) }

// simGroup is a group of owners over logs in memory, and what the logs' events come to.
type simGroup struct {
	t     testing.TB
	seed  uint64
	rng   *rand.Rand
	steps int
	now   event.Micros
	cfg   Config // of the owners to come, their partition aside
	found Found  // what they find, the ends of the logs aside

	input, loop, table, verdicts [simPartitions]*simLog

	crashes, replaced, reloads int // of 1000 steps: each simulation has its own mix

	packs         bool // owners pack what they forward
	permitted     bool // most events have permits: those are forwarded whole
	packed, whole int  // events that were asked to be forwarded
	behind        int  // owners that were forwarded something by newer rules

	epochs   [simPartitions]int
	owners   [simPartitions]*simOwner
	zombies  []*simOwner
	rules    Rules
	sets     []Rules
	counts   map[string]int64 // by limit and key
	permits  []simPermit
	told     int             // numbers of what is left that were compared
	named    map[string]bool // Redis processes in the changelogs, by partition
	emitters [simEmitters]simEmitter
	spans    simSpans
}

// simEmitter numbers its records by partition, and sends the last one again where the answer was
// lost.
type simEmitter struct {
	seq  [simPartitions]uint64
	last []simEntry
}

func newSimGroup(t testing.TB, seed uint64, sets []Rules) *simGroup {
	w := &simGroup{t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), now: event.FromTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)),
		cfg: simConfig, found: simFound, sets: sets, counts: map[string]int64{}, named: map[string]bool{}}
	w.rules = Rules{Number: 1, Published: 1, Set: sets[0].Set}
	w.cfg.Spans, w.cfg.SpanEvery = true, 3
	w.crashes, w.replaced, w.reloads = w.rng.IntN(4), w.rng.IntN(4), w.rng.IntN(6)
	w.packs, w.permitted = w.rng.IntN(4) > 0, w.rng.IntN(2) == 0
	for p := range int32(simPartitions) {
		w.input[p], w.loop[p], w.table[p], w.verdicts[p] = &simLog{}, &simLog{}, &simLog{}, &simLog{}
	}
	for p := range int32(simPartitions) {
		w.owners[p] = w.takeOver(p)
	}
	return w
}

func (w *simGroup) fail(format string, args ...any) {
	w.t.Helper()
	w.t.Fatalf("seed %d, after %d steps: %s", w.seed, w.steps, fmt.Sprintf(format, args...))
}

// emit appends an event to its partition, or one that was there before once more.
func (w *simGroup) emit() {
	n := w.rng.IntN(simEmitters)
	em := &w.emitters[n]
	if len(em.last) > 0 && w.rng.IntN(5) == 0 {
		w.input[em.last[0].partition()].append(-1, 0, em.last[0])
		return
	}
	host := w.rng.IntN(simIPs)
	uid, ip, api := fmt.Sprintf("u%d", w.rng.IntN(simUIDs)), fmt.Sprintf("10.0.0.%d", host), []string{"a.x", "a.x", "b.x", "b.x", "c.x"}[w.rng.IntN(5)]
	p := partitionOfUID(uid)
	em.seq[p]++
	outcome, attrs := []string{"done", "done", "failed"}[w.rng.IntN(3)], ""
	if w.rng.IntN(8) == 0 { // it only tells
		outcome, attrs = event.OutcomeLimited, `,"attrs":{"plan":"big"}`
	}
	var traced []byte // one of three or nine, and its header is there then
	if em.seq[p]%3 == 0 && (w.permitted || em.seq[p]%9 == 0) {
		traced = simTraceOf(n, em.seq[p]).AppendTo(nil)
	}
	e := simEntry{
		value: fmt.Appendf(nil, `{"uid":%q,"ip":%q,"api":%q,"outcome":%q%s%s}`, uid, ip, api, outcome, attrs, w.permit(uid, ip, api)), at: w.now,
		headers: record.HeadersOf([]byte(event.HeaderInstance), fmt.Appendf(nil, "emitter %08d", n), []byte(event.HeaderSequence), event.AppendSequence(nil, em.seq[p]),
			[]byte(event.HeaderPartition), event.AppendPartition(nil, p), []byte(event.HeaderTrace), traced),
		key: []byte(uid),
	}
	w.input[p].append(-1, 0, e)
	em.last = append(em.last[:0], e)
	if outcome == event.OutcomeLimited {
		return
	}
	if api == "a.x" && outcome == "done" {
		w.counts["yearly uid="+uid]++
	}
	if api == "c.x" {
		w.counts["upgrades ip="+ip]++
	}
	w.counts["addresses ip="+ip]++
	w.counts["both ip="+ip+"&uid="+uid]++
	w.counts[fmt.Sprintf("each api=%s&ip/31=10.0.0.%d%%2F31", api, host&^1)]++
	if api == "a.x" {
		w.counts["everything all=true"]++
	}
}

func (e *simEntry) partition() int32 { return partitionOfUID(string(e.key)) }

// step is one thing that happens.
func (w *simGroup) step() {
	w.steps++
	w.now += event.Micros(w.rng.IntN(20_000))
	p := w.rng.IntN(simPartitions)
	n := w.rng.IntN(1000)
	happens := func(permille int) bool { n -= permille; return n < 0 }
	switch {
	case happens(200):
		w.emit()
	case happens(w.crashes):
		w.owners[p] = w.takeOver(int32(p))
	case happens(w.replaced): // and goes on
		w.zombies = append(w.zombies, w.owners[p])
		w.owners[p] = w.takeOver(int32(p))
	case happens(w.reloads):
		w.rules = Rules{Number: w.rules.Number + 1, Published: w.rules.Published + 1, Set: w.sets[w.rng.IntN(len(w.sets))].Set}
	case happens(1):
		w.table[p].compact(w.table[p].end() * 3 / 4)
	case happens(50) && len(w.zombies) > 0:
		i := w.rng.IntN(len(w.zombies))
		if w.zombies[i].act(w.rng); w.zombies[i].dead {
			w.zombies = append(w.zombies[:i], w.zombies[i+1:]...)
		}
	default:
		o := w.owners[p]
		if o.act(w.rng); o.dead {
			w.fail("the owner of partition %d is refused", p)
		}
		if o.torn {
			w.owners[p] = w.takeOver(int32(p))
		}
	}
}

// covered counts the checkpoints of the present owners.
func (w *simGroup) covered() (n int) {
	for _, o := range w.owners {
		n += o.covered
	}
	return n
}

// settle lets all owners do what is to do, and compares what they have counted and published.
func (w *simGroup) settle() {
	w.zombies = nil
	for any := true; any; {
		any = false
		for _, o := range w.owners {
			any = o.settle() || any
		}
	}
	for key, want := range w.counts {
		w.compareCount(key, want)
	}
	levels := map[string]*protocol.Level{}
	settled := map[string]bool{}
	for _, o := range w.owners {
		w.compareVerdicts(o)
		w.readLevels(o.id, levels, settled)
	}
	w.compareLevels(levels, settled)
}

func (w *simGroup) compareCount(limitAndKey string, want int64) {
	var limit, key string
	if _, err := fmt.Sscan(limitAndKey, &limit, &key); err != nil {
		w.fail("%v", err)
	}
	owner := event.Partition([]byte(key), simPartitions)
	if _, uid, ok := strings.Cut(key, "uid="); ok {
		owner = partitionOfUID(uid)
	}
	state, err := w.owners[owner].s.State([]byte(key))
	if err != nil {
		w.fail("%v", err)
	}
	for _, e := range w.rules.Set.Explain(state, []byte(key), w.now, "") {
		if e.Rule == limit && e.Count != event.Decimal(want)*event.One {
			w.fail("%s of %s has counted %v, want %d", limit, key, e.Count, want)
		}
		if over := e.Count >= e.Limit; (limit == "yearly" || limit == "addresses" || limit == "upgrades") && e.Rule == limit && over != (e.Verdict != nil) {
			w.fail("%s of %s has counted %v of %v, and in force is %v", limit, key, e.Count, e.Limit, e.Verdict)
		}
	}
}

// compareVerdicts compares what a partition's states have in force with what is published of them.
// Each published verdict is of a state that is in the changelog: none is an orphan.
func (w *simGroup) compareVerdicts(o *simOwner) {
	log := w.verdicts[o.id]
	published, left := map[string]verdict.Verdict{}, map[string]verdict.Verdict{}
	for _, e := range log.entries {
		if isOwnerRecord(e.key) || e.value == nil {
			continue
		}
		v, err := verdict.Parse(e.value)
		if err != nil {
			w.fail("verdict %s: %v", e.value, err)
		}
		if v.State == verdict.Left { // by the records' order
			left[string(e.key)] = v
			continue
		}
		if was, ok := published[string(e.key)]; ok && v.Seq < was.Seq {
			w.fail("%s is published with seq %d, behind %d", e.key, v.Seq, was.Seq)
		}
		if s := w.table[o.id].entries[v.Seq]; !s.gone && string(s.key) != v.KeyText() {
			w.fail("the verdict %s is an orphan: at %d is the state of %q", e.value, v.Seq, s.key)
		}
		published[string(e.key)] = v
	}
	inForce := 0
	for part := range Parts {
		keys, _ := o.s.KeysBehind(part, "", 1<<20)
		for _, key := range keys {
			state, err := o.s.State(key)
			o.must(err)
			for _, e := range w.rules.Set.Explain(state, key, w.now, "") {
				w.compareLeft(&e, string(key), left)
				if e.Verdict == nil {
					continue
				}
				inForce++
				v, ok := published[string(verdict.AppendRecordKey(nil, e.Verdict))]
				if !ok || v.State != verdict.Block || v.Until != e.Verdict.Until {
					w.fail("%s has %s in force until %v, and published is %+v", key, e.Rule, e.Verdict.Until, v)
				}
			}
		}
	}
	for key, v := range published {
		if v.State == verdict.Block && v.Until > w.now {
			inForce--
		}
		_ = key
	}
	if inForce != 0 {
		w.fail("partition %d: %d more verdicts are in force than published", o.id, inForce)
	}
}

// compareLeft compares what a key has left with what is published of it. A pass over changed rules that
// was killed may have left out some keys: they wait for their next event.
func (w *simGroup) compareLeft(e *rules.Explanation, key string, left map[string]verdict.Verdict) {
	if e.Public == "" || e.Count == 0 {
		return
	}
	switch v, ok := left[key+"|"+e.Rule+"|left"]; {
	case !ok:
		w.fail("%s has %v left under %s, and nothing is published", key, e.Left, e.Rule)
	case v.Limit == e.Limit && v.Count != e.Count:
		w.fail("%s has counted %v of %v under %s, and published is %v", key, e.Count, e.Limit, e.Rule, v.Count)
	case v.Limit == e.Limit:
		w.told++
	}
}

// TestSimulation: whatever is killed, replaced or reloaded between any two steps, each event counts
// once, and what is in force is what is published.
func TestSimulation(t *testing.T) {
	sets := make([]Rules, len(simRules))
	for i, src := range simRules {
		sets[i] = Rules{Set: compile(t, src)}
	}
	seed := *simSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	steps, checkpoints, told, packed, whole, behind := *simSteps, 0, 0, 0, 0, 0
	var spans simSpans
	t.Logf("seeds from %d on: -sim.seed=%d -sim.steps=%d", seed, seed, steps)
	for ; steps > 0; seed++ {
		w := newSimGroup(t, seed, sets)
		for range simRound {
			w.step()
		}
		w.settle()
		steps -= simRound
		checkpoints += w.covered()
		told += w.told
		packed, whole = packed+w.packed, whole+w.whole
		behind += w.behind
		spans.add(&w.spans)
	}
	t.Logf("%d checkpoints were made, %d numbers of what is left compared, %d events forwarded in packs and %d whole, %d times by newer rules", checkpoints, told, packed, whole, behind)
	if checkpoints == 0 || told == 0 || packed == 0 || whole == 0 {
		t.Error("no checkpoint was made, nothing was left, or nothing forwarded in packs or whole")
	}
	if spans.forwarded == 0 || spans.begun == 0 || spans.ofVerdicts == 0 {
		t.Errorf("of traced events %d were forwarded, %d began their traces, and %d verdicts followed", spans.forwarded, spans.begun, spans.ofVerdicts)
	}
}
