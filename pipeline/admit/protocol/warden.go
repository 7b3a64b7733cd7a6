package protocol

import (
	"errors"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Times of grants.
const (
	Lease = 15 * event.Second // a Grants is for so long, by the shard's clock
	// leaseEnds is the time after which a lease is surely over, by the clock of the process that wrote it.
	leaseEnds = Lease * drift / 10
	renew     = Lease / 3
	// clockGrain is by how much a shard's clock may go back: it is kept ten times a second.
	clockGrain = 100 * event.Millisecond
	drift      = 12 // tenths: how long a lease may take by another clock, and to be sure
)

// ErrReleased is the error of an owner that leaves its partition in order: its next owner goes on.
var ErrReleased = errors.New("aggregate: the partition was released")

// Progress is a partition owner's position. All of it is durable.
type Progress struct {
	Input    int64  // what is before that offset is counted or forwarded, and forwards are in the loop topic
	Loop     int64  // what is before that offset is counted
	Verdicts int64  // all levels of that are in the verdict topic before that offset
	Rules    uint64 // the version of the rules that is in force there
}

// note is the end of a log at or after a moment by a shard's clock.
type note struct {
	mark  Mark
	asked bool  // for the end
	end   int64 // -1: not known yet
}

// Reporter collects the reports of a partition's publisher to one shard: up to when it has forwarded. The zero value
// is ready to use.
type Reporter struct {
	note note
	done Mark
}

// Answered takes in a shard's answer. It reports whether the end of the partition's events is
// wanted: the caller reads it, then calls Ended.
func (r *Reporter) Answered(a *Applied) (wanted bool) {
	if r.note.mark.Epoch != a.Epoch {
		r.note, r.done = note{}, Mark{}
	}
	if r.note.asked {
		return false
	}
	r.note = note{mark: Mark{a.Epoch, a.Clock}, asked: true, end: -1}
	return true
}

// Ended takes in the end that was wanted.
func (r *Reporter) Ended(end int64) { r.note.end = end }

// Failed takes in that the end could not be read.
func (r *Reporter) Failed() { r.note.asked = false }

// Forwarded returns the next report to the shard.
func (r *Reporter) Forwarded(p Progress) Mark {
	if r.note.asked && r.note.end >= 0 && p.Input >= r.note.end {
		r.done, r.note.asked = r.note.mark, false
	}
	return r.done
}

// Warden is the publisher's side of one partition, on the shard that keeps its keys: up to when all is
// settled, and the grants. Fill in the exported fields before its first use, and call Use before each answer.
type Warden struct {
	Last *Grants      // the last one in the verdict topic, at the takeover; nil: there is none
	Took event.Micros // when that was, by the process' monotonic clock

	taken   Grants // Last, as it was at the takeover
	holds   inUse
	life    life // as the shard answered last
	clock   event.Micros
	reached int64
	note    note // of the loop topic
	behind  int64
	pending Mark // settled, when the verdict topic is applied up to behind
	settled Mark

	opens   event.Micros // by the process' clock: when another life grants nothing any more
	opening opening
	open    bool
	renewed event.Micros
}

// opening tracks the opening of a memory behind another one: permits that the latter granted under a limit have to
// end first, which is sooner where hold is shorter.
type opening struct {
	holds  []event.Micros
	needs  []event.Micros // of the first of holds, whose permits have ended: up to when all must be settled, by the shard's clock
	opened int            // so many of holds
}

// life is a memory of a Redis process.
type life struct{ run, name string }

// Answered takes in the shard's answer at a moment of the process' monotonic clock. It reports
// whether the end of the loop topic's partition is wanted.
func (w *Warden) Answered(a *Applied, now event.Micros) (wanted bool) {
	is := life{a.Run, a.Life}
	if w.life != is {
		w.begin(is, now)
	}
	w.clock, w.reached = a.Clock, a.Reached
	if a.Reached >= w.behind && w.pending.Epoch == a.Life {
		w.settled, w.pending = w.pending, Mark{}
	}
	if !w.open {
		w.proceed(now)
	}
	if w.note.asked || a.Least == 0 || a.Least-clockGrain <= w.settled.At || w.pending.Epoch != "" {
		return false
	}
	w.note = note{mark: Mark{a.Life, a.Least - clockGrain}, asked: true, end: -1}
	return true
}

// begin takes in that the shard's memory is another one.
func (w *Warden) begin(is life, now event.Micros) {
	w.life, w.reached = is, 0
	w.note, w.pending, w.settled = note{}, Mark{}, Mark{}
	w.open, w.opening, w.renewed = false, opening{}, 0
	switch {
	case w.Last == nil:
		w.open = true // no permit was ever granted
	case w.Last.Run == is.run && sameMemory(w.Last.Life, is.name) && w.Last.Hold == 0:
		w.open = true
	default:
		w.opens = max(now, w.Took+leaseEnds)
		if off.waits {
			w.open = true
		}
	}
}

// proceed opens the memory for limits whose permits of another memory have ended, once all that was counted until
// then is settled.
func (w *Warden) proceed(now event.Micros) {
	o := &w.opening
	if !slices.Equal(o.holds, w.holds.stages) {
		*o = opening{holds: w.holds.stages}
	}
	for n := len(o.needs); n < len(o.holds) && now >= w.ended(n); n++ {
		o.needs = append(o.needs, w.clock)
	}
	for o.opened < len(o.needs) && w.settled.At >= o.needs[o.opened] {
		o.opened++
	}
	w.open = o.opened > 0 && o.opened == len(o.holds)
}

// ended returns the moment at which another memory's permits under limits with one of the holds have ended, by the
// process' clock.
func (w *Warden) ended(n int) event.Micros { return w.opens + w.opening.holds[n] + event.Second }

// hold is up to which one limits may grant; 0: all may, or none.
func (w *Warden) hold() event.Micros {
	if w.open || w.opening.opened == 0 || !slices.Equal(w.opening.holds, w.holds.stages) {
		return 0
	}
	return w.opening.holds[w.opening.opened-1]
}

// Waits lists the reasons for which a shard's memory is closed.
type Waits struct {
	Open event.Micros // limits with a hold up to this are open; 0: none are
	Rest event.Micros // for so long those with the next one wait at least; 0: what was counted has to be settled
}

// Waits tells whether the shard's memory is closed, at a moment of the process' monotonic clock, be it for some
// limits: what another memory granted has to end first. Behind that, all that was counted until then has to be
// settled.
func (w *Warden) Waits(now event.Micros) (is Waits, closed bool) {
	is.Open = w.hold()
	if n := len(w.opening.needs); !w.open && n < len(w.opening.holds) {
		is.Rest = max(0, w.ended(n)-now)
	}
	return is, !w.open
}

// Ended takes in the end that was wanted.
func (w *Warden) Ended(end int64) { w.note.end = end }

// Failed takes in that the end could not be read.
func (w *Warden) Failed() { w.note.asked = false }

// Settled returns the mark for the next batch.
func (w *Warden) Settled(p Progress) Mark {
	if w.note.asked && w.note.end >= 0 && (p.Loop >= w.note.end || off.forwards) {
		w.pending, w.behind, w.note.asked = w.note.mark, p.Verdicts, false
		if w.reached >= w.behind {
			w.settled, w.pending = w.pending, Mark{}
		}
	}
	return w.settled
}

// Grants returns what to append to the verdict topic, nil for nothing.
func (w *Warden) Grants(now event.Micros) *Grants {
	g := &Grants{Run: w.life.run, Life: w.life.name, Until: w.clock + Lease, Hold: w.hold(), HoldsOf: w.holds.onlyOf(), Longest: w.holds.longest}
	switch {
	case w.open:
	case g.Hold > 0:
		g.Rules = w.holds.Rules
	default:
		return nil
	}
	if w.renewed > 0 && now-w.renewed < renew && g.Hold == w.Last.Hold && g.Rules == w.Last.Rules {
		return nil
	}
	w.renewed, w.Took, w.Last = now, now, g
	return g
}
