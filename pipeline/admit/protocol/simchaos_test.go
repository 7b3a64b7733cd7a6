package protocol

import (
	"maps"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// chaos lets something fail, again and again.
func (s *sim) chaos() {
	if s.calm {
		return
	}
	var can []fault
	for _, f := range faultsAll {
		if s.faults[f] && simFaults[f] != nil {
			can = append(can, f)
		}
	}
	if len(can) > 0 {
		f := can[s.rng.IntN(len(can))]
		simFaults[f](s)
	}
	s.after(s.in(500*ms, 8*event.Second), s.chaos)
}

// simFaults are those that happen at a moment.
var simFaults = map[fault]func(*sim){
	faultEnforcer: func(s *sim) {
		if e := s.enf[s.rng.IntN(simEnforcers)]; e.up {
			e.kill()
		}
	},
	faultPause: func(s *sim) {
		e := s.enf[s.rng.IntN(simEnforcers)]
		s.say("enforcer %d stands still", e.number)
		e.paused = true
		s.after([]event.Micros{300 * ms, event.Second, 5 * event.Second, 40 * event.Second}[s.rng.IntN(4)], func() { e.paused = false })
	},
	faultCut: func(s *sim) {
		e := s.enf[s.rng.IntN(simEnforcers)]
		e.cut = true
		s.after(s.in(300*ms, 20*event.Second), func() { e.cut = false })
	},
	faultOwner: func(s *sim) {
		o := s.owners[s.rng.IntN(simPartitions)]
		if !o.alive {
			return
		}
		s.say("owner %d is killed", o.p)
		o.alive = false
		s.after([]event.Micros{200 * ms, 3 * event.Second, 30 * event.Second}[s.rng.IntN(3)], o.replaced)
	},
	faultZombie: func(s *sim) {
		o := s.owners[s.rng.IntN(simPartitions)]
		if !o.alive {
			return
		}
		s.say("owner %d stands still, another one takes over", o.p)
		o.paused = true
		s.after(s.in(100*ms, 5*event.Second), o.replaced)
		s.after(s.in(6*event.Second, 40*event.Second), func() { o.paused = false })
		s.after(60*event.Second, func() { o.alive = false })
	},
	faultFlush:    func(s *sim) { s.shard(func(sh *simShard) { sh.flush() }) },
	faultFailover: func(s *sim) { s.shard(func(sh *simShard) { sh.replace(sh.replica.Copy(), false) }) },
	faultSplit:    func(s *sim) { s.shard(func(sh *simShard) { sh.replace(sh.replica.Copy(), true) }) },
	faultRedis: func(s *sim) {
		r := s.shards[s.rng.IntN(simShards)].primary
		r.paused = true
		s.after([]event.Micros{300 * ms, 3 * event.Second, 20 * event.Second}[s.rng.IntN(3)], func() { r.paused = false })
	},
	faultClock: (*sim).jump,
	faultRules: (*sim).change,
	faultCommands: func(s *sim) {
		k := s.keys[s.rng.IntN(len(s.keys))]
		if s.chance(0.5) {
			s.say("%s is reset", k.text)
			s.loop[k.partition].append(simForward{simEvent{keys: map[string]event.Micros{k.text: 0}, reset: true}, -1, 0})
			return
		}
		until := s.now + s.in(event.Second, 30*event.Second)
		k.exempt = until - simStart + event.Minute // strangers' actions may be counted for so long
		s.loop[k.partition].append(simForward{simEvent{keys: map[string]event.Micros{k.text: 0}, exempt: until}, -1, 0})
	},
	faultCompact: func(s *sim) {
		p := s.rng.IntN(simPartitions)
		s.compact(p, s.topic[p].end()-s.rng.Int64N(20))
	},
}

// shard lets a shard lose its memory, unless one has lately: it would not grant anything.
func (s *sim) shard(do func(*simShard)) {
	if s.now < s.lost+70*event.Second {
		return
	}
	s.lost = s.now
	if sh := s.shards[s.rng.IntN(simShards)]; sh.old == nil {
		do(sh)
	}
}

// flush empties a Redis, in the same process or in a new one.
func (sh *simShard) flush() {
	if sh.s.chance(0.5) {
		sh.s.say("shard %d is flushed", sh.number)
		*sh.primary.memory = Memory{}
		return
	}
	sh.replace(&Memory{}, false)
}

// jump sets the clock of a Redis, sometimes back again.
func (s *sim) jump() {
	r := s.shards[s.rng.IntN(simShards)].primary
	if old := r.shard.old; old != nil {
		s.say("the clock of %s, which is cut off, is set back", old.run)
		old.offset -= 50 * event.Second
	}
	by := []event.Micros{-20, -2, 2, 20, 50, 90, 200}[s.rng.IntN(7)] * event.Second
	s.say("the clock of %s jumps by %v", r.run, by)
	r.offset += by
	switch {
	case s.chance(0.3):
		r.offset -= by
	case s.chance(0.5):
		s.after(s.in(1*ms, 3*event.Second), func() { r.offset -= by })
	}
}

// change publishes rules: another window, another number, a limit that becomes strict.
func (s *sim) change() {
	if len(s.rules) > 5 {
		return
	}
	rules := maps.Clone(s.rules[len(s.rules)-1])
	names := slices.Sorted(maps.Keys(rules))
	name := names[s.rng.IntN(len(names))]
	r := rules[name]
	switch {
	case r.loose:
		r.loose = false
	case s.faults[faultHolds] && r.long() && s.chance(0.5):
		r.Hold = simLong + simShort - r.Hold
	case r.of != "" && s.chance(0.7):
		r.cross()
	case r.of == "" && s.chance(0.4) && r.Kind == Window && !r.Returns:
		r.Name += "'"
		if len(r.Name)%2 == 0 {
			r.Grain, r.Keeps = max(1, r.Grain/2), r.Keeps/2
		} else {
			r.Grain, r.Keeps = r.Grain*2, r.Keeps*2
		}
	case r.of == "" && s.chance(0.3) && r.Kind == Window && !r.Returns:
		r.loose = true
		r.Name += "?"
	default:
		r.threshold, r.pro = one(3+s.rng.IntN(5)), one(8)
		if r.Kind == Bucket {
			r.threshold, r.pro = one(6), one(6)
		}
	}
	rules[name] = r
	s.rules = append(s.rules, rules)
	s.say("rules %d: %s is %+v", len(s.rules)-1, name, r)
}

// cross makes panes of a sliding window's exact times, or the other way round: it is the same limit. Panes count
// longer than the window that they stand for.
func (r *simRule) cross() {
	panes := r.of + " by panes"
	if r.Name == r.of {
		r.Name, r.Formers, r.Grain, r.Keeps = panes, []string{r.of}, 5*event.Second, r.Keeps+5*event.Second
		return
	}
	r.Name, r.Formers, r.Grain, r.Keeps = r.of, []string{panes}, 1, r.Keeps-5*event.Second
}

// compact leaves the last record of each key before an offset.
func (s *sim) compact(p int, before int64) {
	records := s.topic[p].records
	seen := map[string]bool{}
	for i := len(records) - 1; i >= 0; i-- {
		r := records[i]
		if r == nil {
			continue
		}
		key := "version"
		switch {
		case r.Level != nil:
			key = "level " + r.Level.Key
		case r.Grants != nil:
			key = "grants"
		}
		if seen[key] && int64(i) < before {
			records[i] = nil
		}
		seen[key] = true
	}
}
