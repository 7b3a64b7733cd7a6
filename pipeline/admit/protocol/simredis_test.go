package protocol

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// simShard is one shard of the blocklist: a primary, sometimes an old one beside it.
type simShard struct {
	s       *sim
	number  int
	primary *simRedis
	old     *simRedis
	replica *Memory // what a replica has, somewhat behind
}

// simRedis is a Redis process.
type simRedis struct {
	s      *sim
	shard  *simShard
	run    string
	offset event.Micros
	rate   float64
	alive  bool
	paused bool
	memory *Memory
}

func (s *sim) newRedis(shard *simShard, memory *Memory) *simRedis {
	s.runs++
	r := &simRedis{s: s, shard: shard, run: fmt.Sprint("run", s.runs), rate: 1, alive: true, memory: memory}
	if s.faults[faultSkew] {
		r.offset = s.in(-2*event.Second, 2*event.Second)
		r.rate = 1 + (s.rng.Float64()-0.5)*simDrift
	}
	return r
}

func (r *simRedis) process() Process {
	return Process{Run: r.run, Time: simStart + event.Micros(float64(r.s.now-simStart)*r.rate) + r.offset, New: fmt.Sprintf("epoch%d", r.s.n)}
}

// snapshots copies the primary's memory to the replica now and then.
func (sh *simShard) snapshots() {
	sh.replica = sh.primary.memory.Copy()
	sh.s.after(sh.s.in(20*ms, 3000*ms), sh.snapshots)
}

// caller calls scripts.
type caller interface {
	life() int      // changes when it is killed
	standing() bool // it is paused: answers wait
	severed() bool  // it is cut off from Redis
}

// simCall runs a script on a process: the request may be lost or late, and so may the answer. One that may
// be repeated by itself may arrive twice.
// then is told what came within a time, nil for nothing.
func simCall[T any](s *sim, who caller, r *simRedis, repeats bool, within event.Micros, script func(*Memory, Process) T, then func(*T)) {
	answered, life := false, who.life()
	var answer func(res *T)
	answer = func(res *T) {
		if answered || who.life() != life {
			return
		}
		if who.standing() {
			s.after(30*ms, func() { answer(res) })
			return
		}
		answered = true
		then(res)
	}
	var deliver func()
	deliver = func() {
		switch {
		case !r.alive:
		case r.paused:
			s.after(30*ms, deliver)
		default:
			res := script(r.memory, r.process())
			s.after(s.delay(0.02), func() { answer(&res) })
		}
	}
	if !who.severed() {
		s.after(s.delay(0.02), deliver)
		if s.has(faultTwice) && repeats && s.chance(0.05) {
			s.after(s.in(50*ms, 20*event.Second), deliver)
		}
	}
	s.after(within, func() {
		if !off.answer {
			answer(nil)
		}
	})
	s.after(20*event.Second, func() { answer(nil) })
}

// replace makes the replica the primary, or an empty Redis.
func (sh *simShard) replace(memory *Memory, split bool) {
	s := sh.s
	old := sh.primary
	sh.primary = s.newRedis(sh, memory)
	s.say("shard %d: %s takes over from %s, split %v", sh.number, sh.primary.run, old.run, split)
	if split {
		sh.old = old
		s.after(s.in(500*ms, 60*event.Second), func() { old.alive, sh.old = false, nil })
	} else {
		old.alive = false
	}
	switchover := 800 * ms
	if split {
		switchover = 50 * event.Second
	}
	for _, e := range s.enf {
		s.after(s.in(1*ms, switchover), func() { e.redis[sh.number] = sh.primary })
	}
	for _, o := range s.owners {
		s.after(s.in(1*ms, switchover/10), func() { o.redis[sh.number] = sh.primary })
	}
}
