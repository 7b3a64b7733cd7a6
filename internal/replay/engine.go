// Package replay counts events by a rule set in memory, as an aggregator would: the same rules,
// the same steps, no Kafka and no clock. Nothing is written anywhere.
//
// What comes out is what the live pipeline gives for the same events with the same broker
// times in the same order per key. Only fuses look at more than a key: live ones at the keys of
// a partition that have not fallen silent, here at all keys that have come.
package replay

import (
	"github.com/tallygate/tallygate/pipeline/aggregate/state"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// Engine holds what every key has counted. It is for one goroutine.
type Engine struct {
	Set *rules.Set

	matcher *rules.Matcher
	stepper *rules.Stepper
	table   *state.Table
	scratch []byte
	changes []verdict.Verdict
	seq     int64

	held   map[string][]*Held // by the key's text
	shapes []shape            // by rules.KeyShape.Index
	key    []byte
}

// shape is how keys of some dimensions are asked about.
type shape struct {
	dims []string
	used bool // a verdict fell on a key of it
}

// Held is the last verdict of one limit on one key.
type Held struct {
	verdict.Verdict
	Key     string // the key's text
	Falls   int    // how often it fell; moved ends are not counted
	Covered int    // events that came while it was in force, and which it covers
}

// Outcome is what became of one event. Its slices hold until the next Apply.
type Outcome struct {
	At      event.Micros      // the time it counts at
	TooOld  bool              // it counts nowhere
	NoTime  bool              // neither the event nor its record has a time: it counts nowhere
	Hits    []*rules.Limit    // that it counts under, repeats too
	Tiers   []int             // of each hit: the number of the tier that holds, from 1; 0: none
	Repeats int               // keys that have counted its id before
	Late    int               // limits whose window is over
	Unknown int               // keys that remember no event of the name that it takes back
	Skipped []rules.Skip      // rules that could not count it
	Changes []verdict.Verdict // in order
	Fell    []bool            // of each change: it is a new verdict, not a moved one
	Blown   []*rules.Rule     // rules whose fuse this event blew: they are in shadow mode from here on
}

// New returns an empty Engine.
func New(set *rules.Set) *Engine {
	e := &Engine{
		Set: set, matcher: set.NewMatcher(), stepper: set.NewStepper(),
		table: state.New(), held: map[string][]*Held{},
	}
	e.stepper.Fuses = set.NewFuses() // one partition, of all keys that have come
	for _, s := range set.Shapes {
		e.shapes = append(e.shapes, shape{dims: s.Dims})
	}
	return e
}

// Keys is how many keys have a state.
func (e *Engine) Keys() int { return e.table.Len() }

// Apply counts one event; broker is when the broker saw it, NoTime when that is not known.
// Cause says where it came from.
func (e *Engine) Apply(ev *event.Event, broker event.Micros, cause verdict.Cause, out *Outcome) {
	*out = Outcome{Hits: out.Hits[:0], Tiers: out.Tiers[:0], Changes: e.changes[:0], Fell: out.Fell[:0]}
	at, ok := e.Set.EventTime(ev, broker)
	out.At = at
	if !ok {
		out.NoTime = at == event.NoTime
		out.TooOld = !out.NoTime
		return
	}
	e.cover(ev, at)
	cause.ID = ev.ID
	for _, w := range e.matcher.Match(ev, at) {
		var old []byte
		ref, known := e.table.Get(w.Key)
		if known {
			old = e.table.Block(ref)
		}
		next, res := e.stepper.Step(e.scratch[:0], old, rules.Input{Key: w.Key, Hits: w.Hits, At: at, ID: ev.ID, Cause: cause, Active: e.table.Len()})
		e.scratch = next
		for _, h := range w.Hits {
			out.Hits, out.Tiers = append(out.Hits, h.Limit), append(out.Tiers, h.Tier)
		}
		out.Late += res.Late
		out.Blown = append(out.Blown, res.Blown...)
		if res.Repeat {
			out.Repeats++
			continue
		}
		if res.Unknown {
			out.Unknown++
			continue
		}
		if known {
			e.table.Replace(ref, w.Key, next)
		} else {
			e.table.Set(w.Key, next)
		}
		for i := range res.Changes {
			e.hold(&w, &res.Changes[i], out)
		}
	}
	out.Skipped = e.matcher.Skipped
	e.changes = out.Changes
}

// hold keeps a change as its limit's last verdict on the key.
func (e *Engine) hold(w *rules.Work, v *verdict.Verdict, out *Outcome) {
	e.seq++
	v.Seq = e.seq
	h := e.find(string(w.Key), v)
	fell := v.State != verdict.Clear && (h.Falls == 0 || h.Since != v.Since || h.State == verdict.Clear)
	if fell {
		h.Falls++
	}
	h.Verdict = *v
	e.shapes[w.Shape.Index].used = true
	out.Changes = append(out.Changes, *v)
	out.Fell = append(out.Fell, fell)
}

func (e *Engine) find(key string, v *verdict.Verdict) *Held {
	list := e.held[key]
	for _, h := range list {
		if h.Rule == v.Rule && (h.State == verdict.Warn) == (v.State == verdict.Warn) {
			return h
		}
	}
	h := &Held{Key: key}
	e.held[key] = append(list, h)
	return h
}

// Explain says where a key stands under every limit, as rules.Set.Explain does.
func (e *Engine) Explain(dims []event.Dim, api string, now event.Micros) []rules.Explanation {
	key := event.AppendKey(nil, dims)
	var block []byte
	if ref, ok := e.table.Get(key); ok {
		block = e.table.Block(ref)
	}
	return e.Set.Explain(block, key, now, api)
}
