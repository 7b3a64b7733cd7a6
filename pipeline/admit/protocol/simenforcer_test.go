package protocol

import (
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// simEnforcer asks for permits, and carries out what they allow.
type simEnforcer struct {
	s        *sim
	number   int
	lives    int
	up       bool
	paused   bool
	cut      bool
	offset   event.Micros
	rate     float64
	redis    [simShards]*simRedis
	heard    [simShards]Heard
	versions [simPartitions]uint64
	spares   map[*simKey][]simSpare
	running  map[*simAction]bool
}

// simSpare is a permit that was granted ahead.
type simSpare struct {
	id      string
	at      event.Micros
	sent    Clock
	version uint64
}

// simAction is a request and its action.
type simAction struct {
	id      string
	keys    []*simKey
	n       event.Decimal
	pro     bool
	unknown bool // whether it is
	tries   int
	version []uint64 // by key
	at      []event.Micros
}

const simAhead = 2 * event.Second

func newSimEnforcer(s *sim, number int) *simEnforcer {
	e := &simEnforcer{s: s, number: number, up: true, rate: 1, spares: map[*simKey][]simSpare{}, running: map[*simAction]bool{}}
	if s.faults[faultSkew] {
		e.offset, e.rate = s.in(-5*event.Second, 5*event.Second), 1+(s.rng.Float64()-0.5)*simDrift
	}
	for i := range e.redis {
		e.redis[i] = s.shards[i].primary
	}
	s.after(s.in(1*ms, 500*ms), e.work)
	return e
}

func (e *simEnforcer) life() int      { return e.lives }
func (e *simEnforcer) standing() bool { return e.paused }
func (e *simEnforcer) severed() bool  { return e.cut }

func (e *simEnforcer) clock() Clock {
	mono := event.Micros(float64(e.s.now-simStart) * e.rate)
	return Clock{Wall: e.s.now + e.offset, Mono: mono}
}

// work begins requests, one after the other, until it is killed.
func (e *simEnforcer) work() {
	s, life := e.s, e.lives
	if !e.up {
		return
	}
	if !e.paused && !s.calm {
		e.request()
	}
	s.after(s.in(20*ms, 500*ms), func() {
		if e.lives == life {
			e.work()
		}
	})
}

func (e *simEnforcer) request() {
	s := e.s
	s.ids++
	a := &simAction{id: fmt.Sprintf("a%d", s.ids), n: one(1)}
	switch s.rng.IntN(10) {
	case 0:
		a.keys = []*simKey{s.keys[0], s.keys[6]}
	case 1:
		a.keys = []*simKey{s.keys[1], s.keys[5]}
	default:
		a.keys = []*simKey{s.keys[s.rng.IntN(len(s.keys))]}
	}
	if s.chance(0.2) {
		a.n = one(2)
	}
	if s.faults[faultStranger] && s.chance(0.03) && a.keys[0].limits[0] != "inflight" && len(a.keys) == 1 {
		e.stranger(a)
		return
	}
	a.pro, a.unknown = s.chance(0.3), s.chance(0.1)
	if !e.spare(a) {
		e.ask(a)
	}
}

// stranger acts without a permit.
func (e *simEnforcer) stranger(a *simAction) {
	keys := map[string]event.Micros{a.keys[0].text: 0}
	e.s.emit(a.keys[0], simEvent{id: a.id, keys: keys, n: a.n, ok: true})
}

// spare uses a permit that was granted ahead.
func (e *simEnforcer) spare(a *simAction) bool {
	if len(a.keys) > 1 || a.n != event.One || a.pro {
		return false
	}
	k := a.keys[0]
	for len(e.spares[k]) > 0 {
		sp := e.spares[k][0]
		e.spares[k] = e.spares[k][1:]
		if e.clock().since(sp.sent) < simAhead {
			a.id, a.version, a.at = sp.id, []uint64{sp.version}, []event.Micros{sp.at}
			e.s.stats["ahead"]++
			e.perform(a)
			return true
		}
		e.giveUp(k, []string{sp.id})
	}
	return false
}

// ask asks for one key after the other.
func (e *simEnforcer) ask(a *simAction) {
	s := e.s
	ids := []string{a.id}
	if len(a.keys) == 1 && a.n == event.One && !a.pro && !a.unknown && s.chance(0.2) {
		ids = append(ids, a.id+"/1", a.id+"/2")
	}
	r := &Request{}
	a.version = nil
	for _, k := range a.keys {
		v := e.versions[k.partition]
		q := s.ask(k, a.id, v, a.n, a.pro)
		for i := range q.Wants {
			if a.unknown {
				w := &q.Wants[i]
				r := s.rules[v][k.limits[i]]
				w.Threshold, w.Tiers = -1, []Tier{{0, r.threshold}, {1, r.pro}}
			}
		}
		q.IDs = ids
		r.Keys, a.version = append(r.Keys, q), append(a.version, v)
	}
	e.move(a, r, r.Begin())
}

func (e *simEnforcer) move(a *simAction, r *Request, next Next) {
	s := e.s
	for _, i := range next.Cancel {
		e.giveUp(a.keys[i], r.Keys[i].IDs)
	}
	switch next.Move {
	case AskNow:
		if len(r.Keys[next.Key].Wants) == 0 { // no limit of the key is strict yet
			e.move(a, r, r.Answered(&Answer{Status: Granted, At: s.now, IDs: r.Keys[next.Key].IDs}, e.clock()))
			return
		}
		e.question(a, r, next.Key)
	case Fetch:
		e.versions[a.keys[next.Key].partition] = next.Answer.Version
		if a.tries++; a.tries < 3 {
			s.ids++
			a.id = fmt.Sprintf("a%d", s.ids)
			e.ask(a)
		}
	case Perform:
		s.stats["granted"]++
		e.granted(a, r)
	default:
		s.stats[[]string{"", "", "", "denied", "unknown"}[next.Move]]++
	}
}

func (e *simEnforcer) question(a *simAction, r *Request, key int) {
	s, shard := e.s, int(r.Keys[key].Partition)%simShards
	q := r.Question(e.heard[shard].Before(e.clock()), e.clock())
	simCall(s, e, e.redis[shard], false, AnswerWithin, func(m *Memory, p Process) Answer {
		got := m.Admit(p, &q)
		s.say("%s: enforcer %d asks %v for %s: status %d at %v by %s, rules %d of %d", q.Key, e.number, q.IDs, a.n, got.Status, got.At-simStart, p.Run, q.Version, got.Version)
		return got
	}, func(got *Answer) {
		if got != nil {
			e.heard[shard].Note(got.Clock, e.clock())
		}
		e.move(a, r, r.Answered(got, e.clock()))
	})
}

// granted takes the permits, and keeps those that are ahead.
func (e *simEnforcer) granted(a *simAction, r *Request) {
	for i, g := range r.Grants() {
		a.at = append(a.at, g.At)
		if len(r.Keys[i].IDs) == 1 {
			continue
		}
		a.id = g.IDs[0]
		for _, id := range g.IDs[1:] {
			e.spares[a.keys[i]] = append(e.spares[a.keys[i]], simSpare{id, g.At, r.sent, a.version[i]})
			s := e.s
			life := e.lives
			s.after(simAhead*2, func() {
				if e.lives == life {
					e.dropSpare(a.keys[i], id)
				}
			})
		}
	}
	e.perform(a)
}

func (e *simEnforcer) dropSpare(k *simKey, id string) {
	i := slices.IndexFunc(e.spares[k], func(sp simSpare) bool { return sp.id == id })
	if i >= 0 {
		e.spares[k] = slices.Delete(e.spares[k], i, i+1)
		e.giveUp(k, []string{id})
	}
}

// giveUp cancels until it is answered.
func (e *simEnforcer) giveUp(k *simKey, ids []string) {
	s, life := e.s, e.lives
	if off.cancels || e.lives != life {
		return
	}
	shard := int(k.partition) % simShards
	simCall(s, e, e.redis[shard], true, AnswerWithin, func(m *Memory, p Process) event.Micros {
		s.say("%s: enforcer %d cancels %v", k.text, e.number, ids)
		return m.Cancel(p, k.partition, k.text, ids)
	}, func(clock *event.Micros) {
		if clock == nil {
			s.after(200*ms, func() {
				if e.lives == life {
					e.giveUp(k, ids)
				}
			})
		}
	})
}

// returns tells whether the action has a limit whose lost permits are returned.
func (a *simAction) returns(s *sim) bool {
	return slices.ContainsFunc(a.keys, func(k *simKey) bool {
		return slices.ContainsFunc(k.limits, func(name string) bool { return simRules[name].Returns })
	})
}

// takes draws the time of the action, and then of its event until it is in Kafka.
func (s *sim) takes(a *simAction, prompt bool) (d, lag event.Micros) {
	d = s.in(5*ms, 400*ms)
	if s.faults[faultHolds] && prompt {
		if s.holdOf(a) == simLong && s.chance(0.5) {
			d = s.in(400*ms, simLong*65/100)
		}
		return d, s.in(1*ms, 50*ms)
	}
	if s.has(faultSlow) && s.chance(0.1) {
		if d = s.in(400*ms, 3*simHold); prompt {
			d = s.in(400*ms, simHold*5/10)
		}
	}
	lag = s.in(1*ms, 50*ms)
	if s.has(faultSlow) && s.chance(0.03) {
		if lag = s.in(500*ms, 3*simHold); prompt {
			lag = s.in(500*ms, simHold*2/10)
		}
	}
	return d, lag
}

// holdOf is the shortest hold of the action's permits.
func (s *sim) holdOf(a *simAction) event.Micros {
	hold := simLong
	for i, k := range a.keys {
		for _, name := range k.limits {
			hold = min(hold, s.rules[a.version[i]][name].Hold)
		}
	}
	return hold
}

// shortest is the shortest hold that there is.
func (s *sim) shortest() event.Micros {
	if s.faults[faultHolds] {
		return simShort
	}
	return simHold
}

// perform is the action.
func (e *simEnforcer) perform(a *simAction) {
	s := e.s
	if s.chance(0.03) { // the handler never ran
		for _, k := range a.keys {
			e.giveUp(k, []string{a.id})
		}
		s.never[a.id] = s.gentle()
		return
	}
	s.begin(a)
	e.running[a] = true
	prompt := a.returns(s) || s.lossy()
	d, lag := s.takes(a, prompt)
	life := e.lives
	var end func()
	end = func() {
		switch {
		case e.lives != life && !s.lossy():
			return
		case e.paused && !prompt:
			s.after(50*ms, end)
			return
		}
		delete(e.running, a)
		e.end(a, lag, prompt)
	}
	s.after(d, end)
}

// end tells how the action ended.
func (e *simEnforcer) end(a *simAction, lag event.Micros, prompt bool) {
	s := e.s
	ok := s.chance(0.85)
	keys := map[string]event.Micros{}
	var first *simKey
	for i, k := range a.keys {
		if k.limits[0] == "inflight" {
			s.release(k, a.id)
			e.giveUp(k, []string{a.id})
			continue
		}
		if !ok {
			s.release(k, a.id)
		}
		if keys[k.text] = a.at[i]; first == nil {
			first = k
		}
	}
	if first == nil || s.has(faultDrop) && !prompt && s.chance(0.02) {
		return
	}
	ev := simEvent{id: a.id, keys: keys, n: a.n, ok: ok, pro: a.pro}
	s.after(lag, func() {
		s.emit(first, ev)
		if ok && s.has(faultRefunds) && s.chance(0.1) && len(a.keys) == 1 && simRules[first.limits[0]].Kind == Window && len(first.limits) == 1 {
			s.after(s.in(10*ms, 5000*ms), func() {
				s.release(first, a.id)
				s.emit(first, simEvent{id: a.id, keys: map[string]event.Micros{first.text: 0}, refund: true})
			})
		}
	})
}

// lossy tells whether Redis may lose its memory: then the guarantee has a condition.
func (s *sim) lossy() bool {
	return s.faults[faultFlush] || s.faults[faultFailover] || s.faults[faultSplit] || s.faults[faultCompact]
}

// gentle tells whether nothing keeps enforcers from asking.
func (s *sim) gentle() bool {
	for _, f := range []fault{faultEnforcer, faultPause, faultCut, faultSlow, faultRedis} {
		if s.faults[f] {
			return false
		}
	}
	return !s.lossy()
}

// emit appends an event to a partition: its key's, or where its producer thinks it belongs.
func (s *sim) emit(k *simKey, ev simEvent) {
	p := k.partition
	if k.forwarded || s.chance(0.05) {
		p = s.rng.Int32N(simPartitions)
	}
	ev.broker = s.brokerTime()
	for key, at := range ev.keys {
		r := s.shards[int(s.keyOf(key).partition)%simShards]
		m := *r.primary.memory
		s.inTime[ev.id+key] = !s.lossy() && at > 0 && !ev.refund && m.enter(r.primary.process()) < at+s.shortest() && at >= ev.broker-simLateness
	}
	s.input[p].append(ev)
}

// begin begins an action: it is in the truth from here on.
func (s *sim) begin(a *simAction) {
	s.ghosts[a.id] = true
	s.stats["actions"]++
	for i, k := range a.keys {
		for _, name := range k.limits {
			r := s.rules[a.version[i]][name]
			if r.loose || r.Returns && s.faults[faultClock] {
				continue
			}
			if k.truth[r.counters()] == nil {
				k.truth[r.counters()] = map[string]simAct{}
			}
			if k.exempt > s.now-simStart {
				continue
			}
			threshold := r.threshold
			if a.pro || a.unknown { // if it is not known, it is the key's last one
				threshold = max(r.threshold, r.pro)
			}
			s.say("%s: %s begins %v, as of %v", k.text, a.id, a.n, a.at[i]-simStart)
			k.truth[r.counters()][a.id] = simAct{a.at[i], a.n, threshold}
			s.check(k, &r, a.at[i])
		}
	}
}

// release ends an action that does not count.
func (s *sim) release(k *simKey, id string) {
	for _, truth := range k.truth {
		delete(truth, id)
	}
}

// kill ends an enforcer; those of its actions whose lost permits are returned end too.
func (e *simEnforcer) kill() {
	s := e.s
	s.say("enforcer %d is killed", e.number)
	e.lives++
	e.up = false
	if !s.lossy() {
		for a := range e.running {
			for _, k := range a.keys {
				for _, name := range k.limits {
					if r := simRules[name]; r.Returns {
						s.release(k, a.id)
					}
				}
			}
		}
		e.running = map[*simAction]bool{}
	}
	e.spares = map[*simKey][]simSpare{}
	e.heard = [simShards]Heard{}
	s.after(s.in(100*ms, 5*event.Second), func() {
		e.up, e.paused = true, false
		e.work()
	})
}
