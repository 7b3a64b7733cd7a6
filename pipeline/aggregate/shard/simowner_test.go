package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// simOwner owns a partition in a simulation, and takes its time: between any two of its steps it
// may crash, or be replaced without knowing it.
type simOwner struct {
	w     *simGroup
	id    int32
	epoch int
	s     *Shard

	resumed Resumed
	dead    bool
	torn    bool // it makes no checkpoint any more

	// What the shard asked for and is not in the logs yet, in order.
	states, verdicts []Append
	forwards         map[int32][]Forward
	fenced           map[int32]bool // loop partitions that are fenced
	acks             [2][]simAck    // of states and of verdicts: in the logs, and the shard does not know it
	asked, sent      [simQueues]int // of states, verdicts, and forwards to each partition
	target           [simQueues]int // what a checkpoint waits for
	covered          int            // checkpoints that were made

	before simBefore // the version that is to be said

	cut   *Cut
	phase simPhase
	part  int      // of the producers, next to be written
	keys  [][]byte // that a pass is at
}

type simAck struct {
	of     *Ack
	offset int64
	n      int // it is the nth that was sent
}

// simPhase is a checkpoint's progress.
type simPhase int

const (
	idle simPhase = iota
	copying
	flushing   // until the states are acknowledged
	publishing // until the verdicts that followed, and all else, are
	ending     // until the checkpoint record is
)

func (o *simOwner) clock() Clock { return Clock{Local: o.w.now, Broker: o.w.now} }

// collect takes what the shard asks for.
func (o *simOwner) collect() {
	e := o.s.Effects()
	o.states = append(o.states, e.States...)
	o.verdicts = append(o.verdicts, e.Verdicts...)
	for _, f := range e.Forwards {
		o.forwards[f.To] = append(o.forwards[f.To], f)
		if isPack(f.Value) {
			o.w.packed += f.Events
		} else {
			o.w.whole++
		}
		o.asked[2+f.To]++
	}
	o.w.spans.note(o.w, e)
	o.asked[0] += len(e.States)
	o.asked[1] += len(e.Verdicts)
	for _, a := range e.Aux {
		if a.Topic == DeadLetters && o.w.rng != nil {
			o.w.fail("a dead letter: %s", a.Value)
		}
	}
	e.Reset()
	o.s.Tally().Matches = make([]uint64, len(o.s.rules.Set.Limits))
}

// must ends the simulation on an error.
func (o *simOwner) must(err error) {
	if err != nil {
		o.w.fail("partition %d, epoch %d: %v", o.id, o.epoch, err)
	}
}

// takeOver makes a new owner of a partition.
func (w *simGroup) takeOver(id int32) *simOwner {
	w.epochs[id]++
	o := w.begin(id)
	o.collect()
	return o
}

// begin makes an owner of the newest epoch; what its shard asks for is not collected yet.
func (w *simGroup) begin(id int32) *simOwner {
	o, err := w.tryBegin(id)
	o.must(err)
	return o
}

// tryBegin is begin; it may find that the partition cannot go on.
func (w *simGroup) tryBegin(id int32) (*simOwner, error) {
	o := &simOwner{w: w, id: id, epoch: w.epochs[id], forwards: map[int32][]Forward{}, fenced: map[int32]bool{}}
	w.table[id].fence(id, o.epoch, w.now)
	w.verdicts[id].fence(id, o.epoch, w.now)
	cfg := w.cfg
	cfg.ID = id
	o.s = New(cfg, w.rules)
	o.s.packs.Use(w.packs)
	var changelog []record.Record
	for offset, e := range w.table[id].entries {
		if !e.gone {
			changelog = append(changelog, record.Record{Offset: int64(offset), Key: e.key, Value: e.value})
		}
	}
	if _, err := o.s.takeover.Load(changelog); err != nil {
		return o, err
	}
	found := w.found
	found.Newest[Input], found.Newest[Loop] = w.input[id].end(), w.loop[id].end()
	var err error
	if o.resumed, err = o.s.takeover.Resume(found, o.clock()); err != nil {
		return o, err
	}
	return o, o.s.takeover.Republish(o.clock())
}

// apply reads some records of a source, as many as an owner reads without letting go of its
// partition.
func (o *simOwner) apply(src Source, most int) (any bool) {
	any, err := o.step(src, most)
	if errors.Is(err, ErrRulesBehind) {
		o.torn = true
		o.w.behind++
		return true
	}
	o.must(err)
	o.collect()
	return any
}

// step is apply; what its shard asks for is not collected yet.
func (o *simOwner) step(src Source, most int) (any bool, err error) {
	log := o.w.input[o.id]
	if src == Loop {
		log = o.w.loop[o.id]
	}
	next := o.s.log.Next(src)
	for ; most > 0 && next < log.end() && !o.s.Gathered(); most-- {
		var rec record.Record
		if log.record(next, &rec) {
			if err := o.s.Record(src, &rec, o.clock()); err != nil {
				return any, err
			}
		}
		next++
		any = true
	}
	if any {
		err = o.s.Step(src, next, o.clock())
	}
	return any, err
}

// send appends the oldest of what waits for a log, of the state records, the verdicts, or the
// forwards to a partition.
func (o *simOwner) send(which int) (any bool) {
	switch {
	case which == 0 && len(o.states) > 0:
		any = o.sendOwn(o.w.table[o.id], &o.states, 0)
	case which == 1 && len(o.verdicts) > 0:
		any = o.sendOwn(o.w.verdicts[o.id], &o.verdicts, 1)
	case which >= 2 && len(o.forwards[int32(which-2)]) > 0:
		to := int32(which - 2)
		if !o.fenced[to] {
			if o.epoch < o.w.loop[to].epochs[o.id] {
				o.dead = true // its fence record is refused
				return true
			}
			o.w.loop[to].fence(o.id, o.epoch, o.w.now)
			o.fenced[to] = true
		}
		_, ok := o.w.loop[to].append(o.id, o.epoch, simEntry{value: o.forwards[to][0].Value, headers: simTrace(o.forwards[to][0].Trace), at: o.w.now})
		o.forwards[to], o.dead, any = o.forwards[to][1:], !ok, true
		o.sent[which]++
	}
	return any
}

func (o *simOwner) sendOwn(log *simLog, queue *[]Append, acks int) bool {
	a := (*queue)[0]
	offset, ok := log.append(o.id, o.epoch, simEntry{key: a.Key, value: a.Value, at: o.w.now})
	if !ok {
		o.dead = true
		return true
	}
	*queue = (*queue)[1:]
	o.sees(&a)
	o.sent[acks]++
	if a.Ack != nil {
		o.acks[acks] = append(o.acks[acks], simAck{a.Ack, offset, o.sent[acks]})
	}
	return true
}

// acknowledge tells the shard of the oldest append to one of its logs.
func (o *simOwner) acknowledge(which int) bool {
	any := o.acknowledge1(which)
	o.collect()
	return any
}

// acknowledge1 is acknowledge; what its shard asks for is not collected yet.
func (o *simOwner) acknowledge1(which int) bool {
	if len(o.acks[which]) == 0 {
		return false
	}
	a := o.acks[which][0]
	o.acks[which] = o.acks[which][1:]
	o.s.Acked(a.of, a.offset, o.clock())
	return true
}

// reached reports whether what a checkpoint waits for of a queue is acknowledged.
func (o *simOwner) reached(which int) bool {
	if o.sent[which] < o.target[which] {
		return false
	}
	return which >= 2 || len(o.acks[which]) == 0 || o.acks[which][0].n > o.target[which]
}

// reachedAll is reached of all queues but that of states.
func (o *simOwner) reachedAll() bool {
	for which := 1; which < simQueues; which++ {
		if !o.reached(which) {
			return false
		}
	}
	return true
}

// checkpoint goes a step on with a checkpoint, or begins one; at times it gives one up.
func (o *simOwner) checkpoint() (any bool) {
	if o.phase != idle && o.w.rng != nil && o.w.rng.IntN(50) == 0 {
		o.cut, o.phase = nil, idle
	}
	switch o.phase {
	case idle:
		cut, err := o.s.BeginCheckpoint()
		switch {
		case errors.Is(err, ErrTorn):
			o.torn = true
			return false
		case errors.Is(err, ErrLevelsWait):
			return true
		}
		o.must(err)
		if o.cut = cut; cut == nil {
			return false
		}
		o.phase, o.part = copying, 0
	case copying:
		more := true
		for range 8 {
			if _, more = o.cut.CopyNext(); !more {
				break
			}
		}
		for range 16 {
			if more || o.part == ProducerParts {
				break
			}
			o.cut.ProducerPart(o.part, o.clock())
			o.part++
		}
		if o.part == ProducerParts {
			o.quotas(true)
			o.phase, o.target[0] = flushing, o.asked[0]
		}
	case flushing:
		if !o.reached(0) {
			return false
		}
		o.phase, o.target = publishing, o.asked
	case publishing:
		if !o.reachedAll() {
			return false
		}
		o.must(o.cut.Encode())
		o.must(o.cut.End())
		o.phase, o.target[0] = ending, o.asked[0]+1
	case ending:
		if !o.reached(0) {
			return false
		}
		o.cut.Covered()
		o.covered++
		o.phase = idle
	}
	o.collect()
	return true
}

// judge goes on with a pass over all keys, by the rules that the owner counts by.
func (o *simOwner) judge() bool {
	r := o.s.rules.Rules
	if len(o.keys) > 0 {
		_, err := o.s.judge.Key(o.keys[0], o.clock())
		o.must(err)
		if o.keys = o.keys[1:]; len(o.keys) == 0 {
			if o.s.judge.PartJudged(r); o.s.judge.AllJudged() {
				o.must(o.s.judge.PassDone(r))
			}
		}
		o.collect()
		return true
	}
	if o.s.judge.AllJudged() {
		return false
	}
	keys, more := o.s.judge.NextToJudge(r)
	switch {
	case !more:
		o.must(o.s.judge.PassDone(r))
	case len(keys) == 0:
		o.s.judge.PartJudged(r)
	default:
		o.keys = keys
	}
	if o.s.judge.JudgedParts() == Parts && len(o.keys) == 0 {
		o.must(o.s.judge.PassDone(r))
	}
	o.collect()
	return true
}

// use has the owner count by the group's rules, if they are newer.
func (o *simOwner) use() bool {
	if o.s.rules.Rules == o.w.rules {
		return false
	}
	before := o.s.rules.Rules
	o.must(o.s.judge.Use(o.w.rules))
	if becomeStrict(o.w.rules.Set, before.Set) {
		o.before = simBefore{0, o.w.verdicts[o.id].end(), o.strictKeys()}
	} else if !o.s.levels.announced.pass {
		o.before = simBefore{}
	} else { // limits may be strict no more
		now := o.strictKeys()
		o.before.keys = slices.DeleteFunc(o.before.keys, func(key string) bool { return !slices.Contains(now, key) })
	}
	o.before.version = o.w.rules.Number
	o.keys = nil
	o.collect()
	return true
}

// ends publishes ends of blocks that moved.
func (o *simOwner) ends(all bool) (any bool) {
	for _, key := range o.s.verdicts.EndsDue(all, o.clock()) {
		o.s.verdicts.PublishEnds(key, all, o.clock())
		any = true
	}
	o.collect()
	return any
}

// quotas publishes what keys have left.
func (o *simOwner) quotas(all bool) (any bool) {
	due := o.s.quotas.Due(all, o.clock())
	any = due.Any()
	for more := any; more; {
		more = o.s.quotas.Publish(&due, o.clock())
	}
	o.collect()
	return any
}

// act is one step of chance.
func (o *simOwner) act(rng *rand.Rand) {
	switch n := rng.IntN(100); {
	case n < 30:
		o.apply(Source(rng.IntN(2)), 1+rng.IntN(8))
	case n < 60:
		which := rng.IntN(simQueues)
		for range 1 + rng.IntN(32) {
			if o.dead || !o.send(which) {
				break
			}
		}
	case n < 62:
		o.levels(1 + rng.IntN(8))
	case n < 63:
		o.flushPacks(func(int32) bool { return rng.IntN(2) == 0 })
	case n < 64:
		if o.lose(); rng.IntN(4) == 0 && !o.dead {
			o.grant()
		}
	case n < 75:
		which := rng.IntN(2)
		for range 1 + rng.IntN(32) {
			if !o.acknowledge(which) {
				break
			}
		}
	case n < 92:
		o.checkpoint()
	case n < 94:
		o.use()
	case n < 97:
		for range 1 + rng.IntN(40) {
			if !o.judge() {
				break
			}
		}
	case n < 98:
		o.ends(false)
		o.quotas(false)
	case n < 99:
		_, err := o.s.judge.Sweep(o.clock())
		o.must(err)
		o.collect()
	default:
		uid := fmt.Sprintf("u%d", rng.IntN(simUIDs))
		if partitionOfUID(uid) == o.id {
			c := CommandRecord{ID: fmt.Sprint("c", o.w.steps), Command: "block", Key: "uid=" + uid, For: event.Hour, Reason: "a test", By: "sim"}
			if n := rng.IntN(8); n > 0 { // limits and grants, of which some come again, with an id that the key has had
				c.For, c.Command, c.Rule = 0, []string{"grant", "limit"}[n%2], "yearly"
				c.Allow = &Allow{ID: fmt.Sprint("i", n), Amount: event.Decimal(n) * 3 * event.One, Until: event.MaxTime, Ends: n > 5}
			}
			o.must(o.s.Command(&c, c.Key, o.w.now))
			o.collect()
		}
	}
}

// flushPacks forwards what is packed.
func (o *simOwner) flushPacks(busy func(int32) bool) (any bool) {
	any = o.s.packs.Waiting()
	o.s.packs.Flush(busy)
	o.collect()
	return any
}

// settle does all that is to do, and reports whether there was anything.
func (o *simOwner) settle() (any bool) {
	for o.use() || o.apply(Input, 1<<10) || o.apply(Loop, 1<<10) || o.ends(true) || o.quotas(true) || o.levels(1<<10) || o.judge() || o.flushPacks(nil) {
		any = true
	}
	for which := range simQueues {
		for !o.dead && o.send(which) {
			any = true
		}
	}
	for which := range 2 {
		for o.acknowledge(which) {
			any = true
		}
	}
	return any
}
