package protocol

import (
	"fmt"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
)

const simLateness = 2 * simHold // longer than hold by more than clocks differ

// simLog is a partition of a topic. Compacted records are nil.
type simLog[T any] struct{ records []*T }

func (l *simLog[T]) end() int64 { return int64(len(l.records)) }

func (l *simLog[T]) append(r T) { l.records = append(l.records, &r) }

// simEvent is an event, as Kafka has it.
type simEvent struct {
	id      string
	keys    map[string]event.Micros // by key: when its permit was granted; 0: without a permit
	n       event.Decimal
	ok      bool // it matches
	refund  bool // it takes back what id has counted
	pro     bool
	broker  event.Micros
	reset   bool // a command
	exempt  event.Micros
	counted []Part // a permit that was lost: what it holds
}

// simForward is an event that another partition forwarded, or a command.
type simForward struct {
	simEvent
	from   int32 // -1: a command
	offset int64
}

// simState is an owner's state of a key.
type simState struct {
	seq     int64
	latest  event.Micros
	ids     []string
	limits  map[string]*simCount // by simRule.counters
	exempt  event.Micros
	pro     bool
	settles []string // since the last level
}

// simCount is a limit's counter: exact times of a window, the level of a bucket.
type simCount struct {
	acts   map[string]simAct
	level  float64
	latest event.Micros
}

func (st *simState) copy() *simState {
	c := *st
	c.ids, c.settles, c.limits = slices.Clone(st.ids), nil, map[string]*simCount{}
	for name, count := range st.limits {
		one := *count
		one.acts = maps.Clone(count.acts)
		c.limits[name] = &one
	}
	return &c
}

// simDurable survives an owner.
type simDurable struct {
	input, loop int64
	origins     [simPartitions]int64
	states      map[string]*simState
	pending     []Record // that may not be in the verdict topic yet
	version     uint64
	said        uint64 // the version that is in the verdict topic
}

// simOwner counts a partition, and publishes it.
type simOwner struct {
	s       *sim
	p       int32
	alive   bool
	paused  bool
	mem     simDurable
	durable *simDurable // shared with the owners after it
	redis   [simShards]*simRedis

	progress Progress
	warden   Warden
	before   event.Micros // the longest hold of rules before
	reports  [simShards]Reporter
	reached  int64
	told     map[string]bool
}

func newSimOwner(s *sim, p int32) *simOwner {
	o := &simOwner{s: s, p: p, durable: &simDurable{states: map[string]*simState{}, version: 0}, told: map[string]bool{}, alive: true}
	for i := range o.redis {
		o.redis[i] = s.shards[i].primary
	}
	return o
}

func (o *simOwner) life() int {
	if o.alive {
		return 1
	}
	return 0
}
func (o *simOwner) standing() bool { return o.paused }
func (o *simOwner) severed() bool  { return false }

// mono is the owner's monotonic clock.
func (o *simOwner) mono() event.Micros { return o.s.now - simStart + event.Second }

// owns tells whether it is not fenced.
func (o *simOwner) owns() bool { return o.alive && o.s.owners[o.p] == o }

// takeOver begins to own: what was not published is published, and the last grants are read.
func (o *simOwner) takeOver() {
	d := o.durable
	o.mem = simDurable{input: d.input, loop: d.loop, origins: d.origins, version: d.version, said: d.said, states: map[string]*simState{}}
	for key, st := range d.states {
		o.mem.states[key] = st.copy()
	}
	for _, r := range d.pending {
		o.s.topic[o.p].append(r)
		o.s.covered(o.p, r.Level)
	}
	d.pending = nil
	o.progress = Progress{Input: d.input, Loop: d.loop, Verdicts: o.s.topic[o.p].end(), Rules: d.said}
	o.warden = Warden{Took: o.mono()}
	for _, r := range o.s.topic[o.p].records {
		if r != nil && r.Grants != nil {
			o.warden.Last = r.Grants
		}
	}
	o.s.say("owner %d takes over at %d, %d", o.p, d.input, d.loop)
	o.s.after(5*ms, o.count)
	o.s.after(5*ms, o.publish)
}

// replaced begins the owner after this one.
func (o *simOwner) replaced() {
	next := newSimOwner(o.s, o.p)
	next.durable = o.durable
	o.s.owners[o.p] = next
	next.takeOver()
}

// count takes in what came, makes it durable, and publishes levels.
func (o *simOwner) count() {
	s := o.s
	switch {
	case !o.owns():
		return
	case o.paused:
		s.after(50*ms, o.count)
		return
	}
	var recs []Record
	recs = o.reload(recs)
	changed := map[string]bool{}
	forwards := [simPartitions][]simForward{}
	in, from := s.input[o.p], o.mem.input
	for ; o.mem.input < in.end() && o.mem.input < from+20; o.mem.input++ {
		e := in.records[o.mem.input]
		targets := map[int32]bool{}
		for _, key := range slices.Sorted(maps.Keys(e.keys)) {
			k := s.keyOf(key)
			if k.partition == o.p {
				o.step(k, e, changed)
			} else if !targets[k.partition] {
				targets[k.partition] = true
				forwards[k.partition] = append(forwards[k.partition], simForward{*e, o.p, o.mem.input})
			}
		}
	}
	loop, from := s.loop[o.p], o.mem.loop
	for ; o.mem.loop < loop.end() && o.mem.loop < from+20; o.mem.loop++ {
		f := loop.records[o.mem.loop]
		if f.from >= 0 {
			if f.offset < o.mem.origins[f.from] {
				continue
			}
			o.mem.origins[f.from] = f.offset + 1
		}
		for _, key := range slices.Sorted(maps.Keys(f.keys)) {
			if k := s.keyOf(key); k.partition == o.p {
				o.step(k, &f.simEvent, changed)
			}
		}
	}
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		recs = append(recs, Record{Level: o.level(key)})
	}
	o.flush(recs, forwards)
}

// flush carries out: forwards, then the durable state, then the levels.
func (o *simOwner) flush(recs []Record, forwards [simPartitions][]simForward) {
	s := o.s
	for p, list := range forwards {
		for _, f := range list {
			s.loop[p].append(f)
		}
	}
	if len(recs) == 0 && o.mem.input == o.progress.Input && o.mem.loop == o.progress.Loop {
		s.after(s.idle(2*ms, 100*ms), o.count)
		return
	}
	d := simDurable{input: o.mem.input, loop: o.mem.loop, origins: o.mem.origins, version: o.mem.version, said: o.mem.said, states: map[string]*simState{}, pending: recs}
	for key, st := range o.mem.states {
		d.states[key] = st.copy()
	}
	s.after(s.delay(0.01), func() {
		if !o.owns() {
			return
		}
		*o.durable = d
		s.after(s.delay(0.01), func() {
			if !o.owns() {
				return
			}
			for _, r := range recs {
				s.topic[o.p].append(r)
				s.covered(o.p, r.Level)
			}
			if s.chance(0.5) { // else they are published twice if it is killed now
				o.durable.pending = nil
			}
			o.progress = Progress{Input: d.input, Loop: d.loop, Verdicts: s.topic[o.p].end(), Rules: d.said}
			o.durable.pending = nil
			s.after(ms, o.count)
		})
	})
}

// reload switches to the newest rules, some time after they were published, and says so behind the levels that
// this asks for, some time later: other levels, which are by the new rules, too, may come before.
func (o *simOwner) reload(recs []Record) []Record {
	s := o.s
	if o.mem.said != o.mem.version && s.chance(0.1) {
		o.mem.said = o.mem.version
		recs = append(recs, Record{Version: o.mem.said})
	}
	newest := s.version()
	if o.mem.version == newest || o.mem.said != o.mem.version || !s.chance(0.02) {
		return recs
	}
	old, rules := s.rules[o.mem.version], s.rules[newest]
	for _, r := range old {
		o.before = max(o.before, r.Hold)
	}
	o.mem.version = newest
	s.say("owner %d switches to rules %d", o.p, newest)
	for _, k := range s.keys {
		if k.partition != o.p {
			continue
		}
		st := o.state(k.text)
		touched := false
		for _, name := range k.limits {
			if old[name].loose && !rules[name].loose {
				r := rules[name]
				k.truth[r.counters()] = maps.Clone(st.count(&r).acts)
				touched = true
			}
			touched = touched || old[name].Name != rules[name].Name // levels call it otherwise now
		}
		if touched && !off.first {
			recs = append(recs, Record{Level: o.level(k.text)})
		}
	}
	return recs
}

func (o *simOwner) state(key string) *simState {
	st := o.mem.states[key]
	if st == nil {
		st = &simState{limits: map[string]*simCount{}}
		o.mem.states[key] = st
	}
	return st
}

func (st *simState) count(r *simRule) *simCount {
	name := r.counters()
	c := st.limits[name]
	if c == nil {
		c = &simCount{acts: map[string]simAct{}}
		st.limits[name] = c
	}
	return c
}

// step counts an event for a key.
func (o *simOwner) step(k *simKey, e *simEvent, changed map[string]bool) {
	st, rules := o.state(k.text), o.s.rules[o.mem.version]
	changed[k.text] = true
	switch {
	case e.reset:
		for _, c := range st.limits {
			for id := range c.acts {
				for _, truth := range k.truth {
					delete(truth, id)
				}
			}
		}
		st.limits = map[string]*simCount{}
		return
	case e.exempt > 0:
		st.exempt = e.exempt
		return
	case e.refund:
		for _, c := range st.limits {
			delete(c.acts, e.id)
		}
		return
	}
	at, permitted := e.keys[k.text], true
	if at == 0 {
		at, permitted = e.broker, false
	}
	if permitted && at < e.broker-simLateness {
		return // it does not count: the permit is lost, or was
	}
	st.settles = append(st.settles, e.id)
	o.s.say("%s: owner %d steps %s: %v, ok %v, counted before %v", k.text, o.p, e.id, e.n, e.ok, slices.Contains(st.ids, e.id))
	if slices.Contains(st.ids, e.id) {
		o.s.stats["repeat"]++
		return
	}
	st.ids = append(st.ids, e.id)
	if len(st.ids) > 64 {
		st.ids = st.ids[1:]
	}
	if !e.ok {
		return
	}
	st.latest, st.pro = max(st.latest, at), e.pro
	for _, name := range k.limits {
		r := rules[name]
		if r.Kind != InFlight && r.counts(e) {
			st.count(&r).add(e.id, at, e.n, &r)
		}
	}
}

// counts tells whether the limit counts an event: of a permit that was lost, if it holds something under it.
func (r *simRule) counts(e *simEvent) bool {
	return e.counted == nil || slices.ContainsFunc(e.counted, func(p Part) bool {
		return p.Name == r.Name || !off.lostFormers && slices.Contains(r.Formers, p.Name)
	})
}

func (c *simCount) add(id string, at event.Micros, n event.Decimal, r *simRule) {
	if r.Kind == Bucket {
		if at > c.latest {
			if c.latest > 0 {
				c.level = max(0, c.level-drained(at-c.latest, r.Rate, r.Per))
			}
			c.latest = at
		}
		c.level += float64(n)
	}
	c.acts[id] = simAct{at, n, r.pro}
	c.latest = max(c.latest, at)
	maps.DeleteFunc(c.acts, func(_ string, a simAct) bool { return a.at < c.latest-3*max(r.Keeps, r.Per) })
}

// level is the record of a key, as it stands.
func (o *simOwner) level(key string) *Level {
	st, rules := o.state(key), o.s.rules[o.mem.version]
	st.seq++
	l := &Level{Key: key, Seq: st.seq, Latest: st.latest, Settles: st.settles, Exempt: st.exempt}
	st.settles = nil
	for _, name := range o.s.keyOf(key).limits {
		r := rules[name]
		if r.loose || r.Kind == InFlight {
			continue
		}
		sec, c := Section{Name: r.Name}, st.count(&r)
		if st.pro {
			sec.Tier = 1
		}
		if r.Kind == Bucket {
			sec.Level = event.Decimal(c.level) + 1
			if st.latest > c.latest {
				sec.Level = event.Decimal(max(0, c.level-drained(st.latest-c.latest, r.Rate, r.Per))) + 1
			}
		}
		for _, a := range c.acts {
			if until, _ := r.until(a.at); r.Kind == Window && until > st.latest {
				sec.Steps = append(sec.Steps, Step{until, a.n})
			}
		}
		slices.SortFunc(sec.Steps, func(a, b Step) int { return int(a.Until - b.Until) })
		sec.Steps = Coalesce(sec.Steps)
		l.Sections = append(l.Sections, sec)
	}
	for _, name := range o.s.keyOf(key).limits {
		now, r := rules[name], o.s.rules[o.mem.said][name]
		if !r.loose && (now.loose || now.counters() != r.counters()) {
			l.Sections = append(l.Sections, Gone(r.Name, o.mem.said))
		}
	}
	return l
}

// publish applies what the verdict topic has, in batches, and says what may be granted.
func (o *simOwner) publish() {
	s := o.s
	switch {
	case !o.alive:
		return
	case o.paused:
		s.after(50*ms, o.publish)
		return
	}
	mine := int(o.p) % simShards
	for i := range o.redis {
		if i != mine {
			o.report(i)
		}
	}
	b := o.batch()
	b.Forwarded = o.reports[mine].Forwarded(o.progress)
	b.Settled = o.warden.Settled(o.progress)
	if off.forwards {
		b.Settled = b.Forwarded
	}
	simCall(s, o, o.redis[mine], true, 5*event.Second, func(m *Memory, p Process) Applied {
		a := m.Apply(p, b)
		s.named(&a)
		for _, r := range b.Records {
			if r.Level != nil {
				s.say("%s: publisher applies %v to %s: %+v", r.Level.Key, a.OK, p.Run, r.Level)
			}
		}
		return a
	}, func(a *Applied) {
		if a != nil {
			o.applied(mine, a)
		}
		pause := s.in(3*ms, 40*ms)
		if o.reached == s.topic[o.p].end() {
			pause = s.idle(20*ms, 500*ms)
		}
		s.after(pause, o.publish)
	})
}

// batch takes the next records, coalesced by key.
func (o *simOwner) batch() *Batch {
	s := o.s
	b := &Batch{Partition: o.p, Of: simPartitions, Start: o.reached, Next: s.topic[o.p].end(), Beat: s.now + s.broker}
	if s.chance(0.3) && b.Next > b.Start+1 {
		b.Next = b.Start + 1 + s.rng.Int64N(b.Next-b.Start)
	}
	place := map[string]int{}
	for off := b.Start; off < b.Next; off++ {
		r := s.topic[o.p].records[off]
		switch {
		case r == nil:
			b.Begin = !offGap()
		case r.Level == nil:
			b.Records = append(b.Records, *r)
		default:
			if i, ok := place[r.Level.Key]; ok {
				b.Records[i] = Record{Level: coalesced(b.Records[i].Level, r.Level)}
				continue
			}
			place[r.Level.Key] = len(b.Records)
			b.Records = append(b.Records, *r)
		}
	}
	return b
}

// covered notes what a level settles.
func (s *sim) covered(p int32, l *Level) {
	if l == nil {
		return
	}
	for _, id := range l.Settles {
		s.covers[id+l.Key] = s.topic[p].end()
	}
}

// named checks the permits that a shard names as lost: their events are not in Kafka, or came late.
func (s *sim) named(a *Applied) {
	for _, l := range a.Lost {
		switch end, covered := s.covers[l.ID+l.Key]; {
		case covered && end <= a.Reached:
			s.fail("permit %s of %s is named as lost, and was settled", l.ID, l.Key)
		case s.inTime[l.ID+l.Key]:
			s.fail("permit %s of %s is named as lost, and its event was in time", l.ID, l.Key)
		case s.never[l.ID]:
			s.fail("permit %s of %s is named as lost, and its enforcer had given it back", l.ID, l.Key)
		}
	}
}

func offGap() bool { return off.gap }

func coalesced(a, b *Level) *Level {
	if off.merge {
		return b
	}
	return a.Merge(b)
}

func (o *simOwner) applied(shard int, a *Applied) {
	s := o.s
	o.reached = a.Reached
	for _, l := range a.Lost {
		if o.told[l.ID+l.Key] || !o.owns() {
			continue
		}
		o.told[l.ID+l.Key] = true
		s.stats["lost"]++
		if !s.ghosts[l.ID] {
			s.stats["ghost"]++
		}
		s.say("permit %s of %s is lost, counted at %v", l.ID, l.Key, l.At)
		s.loop[o.p].append(simForward{simEvent{id: l.ID, keys: map[string]event.Micros{l.Key: l.At}, n: l.Parts[0].Amount, ok: true, counted: l.Parts, broker: s.brokerTime()}, -1, 0})
	}
	o.ends(shard, o.reports[shard].Answered(a), func() int64 { return s.input[o.p].end() }, o.reports[shard].Ended)
	o.warden.Use(o.holds(), o.progress.Rules == o.mem.version && a.Reached >= o.progress.Verdicts, o.mono())
	o.ends(shard, o.warden.Answered(a, o.mono()), func() int64 { return s.loop[o.p].end() }, o.warden.Ended)
	if g := o.warden.Grants(o.mono()); g != nil && o.owns() {
		s.after(s.delay(0.01), func() {
			if o.owns() {
				s.topic[o.p].append(Record{Grants: g})
			}
		})
	}
}

// holds are those of the present rules.
func (o *simOwner) holds() Holds {
	h := Holds{Rules: o.mem.version, Before: o.before}
	for _, r := range o.s.rules[o.mem.version] {
		h.Of = append(h.Of, r.Hold)
	}
	slices.Sort(h.Of)
	h.Of = slices.Compact(h.Of)
	return h
}

// ends reads a log's end.
func (o *simOwner) ends(_ int, wanted bool, end func() int64, then func(int64)) {
	if wanted {
		o.s.after(o.s.delay(0.01), func() {
			n := end()
			o.s.after(o.s.delay(0.01), func() { then(n) })
		})
	}
}

// report tells another shard what is forwarded.
func (o *simOwner) report(shard int) {
	if !o.s.chance(0.2) {
		return
	}
	mark := o.reports[shard].Forwarded(o.progress)
	simCall(o.s, o, o.redis[shard], true, 5*event.Second, func(m *Memory, p Process) Applied {
		return m.Report(p, o.p, mark)
	}, func(a *Applied) {
		if a != nil {
			o.ends(shard, o.reports[shard].Answered(a), func() int64 { return o.s.input[o.p].end() }, o.reports[shard].Ended)
		}
	})
}

func (s *sim) keyOf(text string) *simKey {
	for _, k := range s.keys {
		if k.text == text {
			return k
		}
	}
	panic(fmt.Sprint("no key ", text))
}
