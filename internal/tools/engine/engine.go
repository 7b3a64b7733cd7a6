// Package engine counts events by a rule set in memory, as an aggregator would: the same rules,
// the same steps, no Kafka and no clock. Nothing is written anywhere.
//
// For the same events with the same broker times, in the same order per key, the verdicts are those
// of the live pipeline. Only fuses look at more than one key: live ones at the active keys of a
// partition, here at all keys so far.
package engine

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Engine counts all keys: it is a shard of an aggregator that owns every key, and whose topics
// acknowledge everything at once. It is for one goroutine.
type Engine struct {
	Set *rules.Set

	// Stepped, unless it is nil, is told what became of each event on each of its keys.
	Stepped func(*shard.Stepped)

	shard     *shard.Shard
	tells     bool  // it publishes levels, and what keys have left
	number    int64 // of the next event
	looped    int64 // of the next lost permit
	offset    int64 // of the last record in the shard's changelog
	published int64 // of the last one in its verdict topic
	out       *Outcome
	kept      func(shard.Append) // receives the states that the shard writes; nil in production

	held   map[string][]*Held // by the key's text
	holds  int64              // how many they are
	shapes []shape            // by rules.KeyShape.Index
	key    []byte
}

// shape is the dimensions that keys of some rules have.
type shape struct {
	dims []string
	used bool // a key of it got a verdict
}

// Held is the last verdict of one limit on one key.
type Held struct {
	verdict.Verdict
	Key     string // the key's text
	Issued  int    // how many of the limit the key got; moved ends are not counted
	Covered int    // events that it covered while it was in force
}

// Outcome is the outcome of one event. Its slices are valid until the next Apply.
type Outcome struct {
	At      event.Micros   // the time at which it counts
	TooOld  bool           // it is not counted
	NoTime  bool           // neither the event nor its record has a time: it is not counted
	Hits    []*rules.Limit // that count it, repeats included
	Tiers   []int          // of each hit: the number of the tier that applies, from 1; 0 if none
	Told    []*rules.Limit // that it only tells, and their tiers
	ToldAs  []int
	Repeats int               // keys that counted its id before
	Late    int               // limits whose window had ended
	Unknown int               // keys that do not remember the event that it refunds
	Skipped []rules.Skip      // rules that could not count it
	Changes []verdict.Verdict // in order
	Issued  []bool            // of each change: it is a new verdict, not a moved end
	// Covered are the verdicts that were in force for it; those on one key stand together.
	Covered []Cover
	// Denied are the strict limits that it counted above: its request would have got no permit.
	Denied []Denial
	// Rules whose fuse this event blew: they are in shadow mode from now on.
	Blown []*rules.Rule

	// Of an engine of NewTelling, what keys have left, and records about strict limits.
	Left   []verdict.Verdict
	Strict []protocol.Record
}

// reset makes room for the next outcome.
func (o *Outcome) reset() {
	*o = Outcome{
		Hits: o.Hits[:0], Tiers: o.Tiers[:0], Skipped: o.Skipped[:0], Changes: o.Changes[:0], Issued: o.Issued[:0], Denied: o.Denied[:0],
		Covered: o.Covered[:0],
		Told:    o.Told[:0], ToldAs: o.ToldAs[:0], Left: o.Left[:0], Strict: o.Strict[:0],
	}
}

// Cover names a verdict that covers an event.
type Cover struct {
	Rule string // the verdict's
	Key  string // the key's text
}

// Denial is that a strict limit has no permit for an event's request.
type Denial struct {
	Limit *rules.Limit
	Key   string // the key's text
}

// New returns an empty Engine.
func New(set *rules.Set) *Engine { return newEngine(set, false) }

// NewTelling is New for those who also enforce: it tells what keys have left, and of strict limits what
// grants permits has to know.
func NewTelling(set *rules.Set) *Engine { return newEngine(set, true) }

func newEngine(set *rules.Set, tells bool) *Engine {
	e := &Engine{Set: set, tells: tells, held: map[string][]*Held{}}
	e.shard = shard.New(shard.Config{Of: 1, NoLevels: !tells, Trace: e.stepped}, shard.Rules{Set: set})
	for _, s := range set.Shapes {
		e.shapes = append(e.shapes, shape{dims: s.Dims})
	}
	return e
}

// Keys returns how many keys have a state.
func (e *Engine) Keys() int { return e.shard.Keys() }

// heldBytes is about how much memory a Held takes, with its key, its APIs and its place in the map.
const heldBytes = 600

// Bytes is about how much memory the keys take: their states, and the verdicts that they got.
func (e *Engine) Bytes() int64 { return e.shard.Bytes() + e.holds*heldBytes }

// Apply counts one event. broker is when the broker saw it, NoTime if that is unknown. cause says
// where it came from.
func (e *Engine) Apply(ev *event.Event, broker event.Micros, cause verdict.Cause, out *Outcome) {
	out.reset()
	at, ok := e.Set.EventTime(ev, broker)
	out.At = at
	if !ok {
		out.NoTime = at == event.NoTime
		out.TooOld = !out.NoTime
		if !e.tells || ev.Permit.ID == "" { // a permit is settled all the same
			return
		}
	} else {
		e.cover(ev, at, out)
	}
	e.out, cause.ID = out, ev.ID
	// A verdict that has ended by now is reported all the same.
	clock := shard.Clock{Local: max(at, broker), Broker: event.NoTime}
	e.shard.Event(ev, e.number, broker, cause)
	e.number++
	sound(e.shard.Step(shard.Input, e.number, clock))
	e.acknowledge(clock)
}

// sound panics if a state that was just written to memory cannot be read.
func sound(err error) {
	if err != nil {
		panic(fmt.Errorf("engine: %w", err))
	}
}

// stepped records the outcome of the event on one of its keys.
func (e *Engine) stepped(s *shard.Stepped) {
	out, res := e.out, s.Result
	if e.Stepped != nil {
		e.Stepped(s)
	}
	for _, h := range s.Hits {
		if h.Tells {
			out.Told, out.ToldAs = append(out.Told, h.Limit), append(out.ToldAs, h.Tier)
			continue
		}
		out.Hits, out.Tiers = append(out.Hits, h.Limit), append(out.Tiers, h.Tier)
	}
	for _, a := range s.Above {
		if a.Limit.Rule.Strict != nil {
			out.Denied = append(out.Denied, Denial{a.Limit, string(s.Key)})
		}
	}
	out.Late += res.Late
	out.Blown = append(out.Blown, res.Blown...)
	switch {
	case res.Repeat:
		out.Repeats++
	case res.Unknown:
		out.Unknown++
	case len(res.Changes) > 0:
		e.shapes[s.Shape.Index].used = true
	}
}

// acknowledge tells the shard that its effects are durable, and keeps the verdicts that it
// publishes.
func (e *Engine) acknowledge(clock shard.Clock) {
	if e.tells {
		e.tell(clock)
	}
	asked := e.shard.Effects()
	e.out.Skipped = append(e.out.Skipped[:0], asked.Skipped...)
	if e.kept != nil {
		for _, a := range asked.States {
			e.kept(a)
		}
	}
	for _, a := range asked.States {
		e.offset++ // becomes the verdicts' seq
		e.shard.Acked(a.Ack, e.offset, clock)
	}
	for _, a := range asked.Verdicts { // that became durable with the states
		e.published++
		e.shard.Acked(a.Ack, e.published, clock)
	}
	for i := range asked.Published {
		if v := &asked.Published[i].Verdict; v.State == verdict.Left {
			e.out.Left = append(e.out.Left, *v)
		} else {
			e.hold(v)
		}
	}
	for i := range asked.Strict {
		e.out.Strict = append(e.out.Strict, asked.Strict[i].Record)
	}
	asked.Reset()
}

// hold keeps a verdict as its limit's last one on the key.
func (e *Engine) hold(v *verdict.Verdict) {
	h := e.find(string(event.AppendKey(nil, v.Key)), v)
	issued := v.State != verdict.Clear && (h.Issued == 0 || h.Since != v.Since || h.State == verdict.Clear)
	if issued {
		h.Issued++
	}
	h.Verdict = *v
	e.out.Changes = append(e.out.Changes, *v)
	e.out.Issued = append(e.out.Issued, issued)
}

func (e *Engine) find(key string, v *verdict.Verdict) *Held {
	list := e.held[key]
	for _, h := range list {
		if h.Rule == v.Rule && (h.State == verdict.Warn) == (v.State == verdict.Warn) {
			return h
		}
	}
	h := &Held{Key: key}
	e.holds++
	e.held[key] = append(list, h)
	return h
}

// Explain describes a key's position under every limit, as rules.Set.Explain does.
func (e *Engine) Explain(dims []event.Dim, api string, now event.Micros) []rules.Explanation {
	key := event.AppendKey(nil, dims)
	state, err := e.shard.State(key)
	sound(err)
	return e.Set.Explain(state, key, now, api)
}
