package instance

import (
	"cmp"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/standing"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// worker decides one request at a time, in buffers of its own.
type worker struct {
	requests *rules.Requests
	tries    []try
	event    event.Event // a request whose cost was not said
}

// try is a request under one limit.
type try struct {
	*limit
	want   *rules.Want
	hash   uint64 // of the key
	part   *part  // locked
	e      *entry // nil: the key is new
	denied bool

	now       event.Micros  // in the window's time
	threshold event.Decimal // may be rules.Unlimited
	count     event.Decimal // with the request in it, if it is let in
	window    []byte        // with the request in it
	warm      warmth        // of now
	retry     time.Duration // when it is denied: see standing.Numbers
	reset     time.Duration
}

// admit decides. All parts that the request counts in are locked at once, so that it counts in all of them
// or in none, and nobody sees what is not decided.
func (w *worker) admit(res *Result, v *version, e *event.Event, clock func() event.Micros) *Permit {
	if !w.requests.Concern(e.API) {
		return nil
	}
	if e.Cost == 0 { // otherwise who says nothing of it would be let in, and count nowhere
		w.event = *e
		w.event.Cost = event.One
		e = &w.event
	}
	now := clock()
	wants := w.requests.WantsConcerned(e, now)
	if len(wants) == 0 {
		return nil
	}
	w.lock(v, wants)
	for i := range w.tries {
		t := &w.tries[i]
		if t.judge(now); !t.denied {
			continue
		}
		t.part.denied++
		if t.Rule.Mode == verdict.Shadow {
			res.Shadow = cmp.Or(res.Shadow, t.Limit)
		} else {
			res.Allowed, res.Action = false, max(res.Action, t.Rule.Action)
		}
	}
	permit := w.settle(now, res.Allowed)
	w.number(res)
	return permit
}

// lock makes a try of each want, and locks its part, always in the order of the tables.
func (w *worker) lock(v *version, wants []rules.Want) {
	if more := len(wants) - cap(w.tries); more > 0 {
		w.tries = append(w.tries[:cap(w.tries)], make([]try, more)...)
	}
	w.tries = w.tries[:len(wants)]
	sorted := true
	for i := range wants {
		want, t := &wants[i], &w.tries[i]
		t.want, t.limit = want, v.tables[want.Limit.Rule.Index][want.Limit.Index]
		sorted = sorted && (i == 0 || w.tries[i-1].counters.id < t.counters.id)
	}
	if !sorted { // the rules have changed their order
		slices.SortFunc(w.tries, func(a, b try) int { return cmp.Compare(a.counters.id, b.counters.id) })
	}
	for i := range w.tries {
		t := &w.tries[i]
		t.part, t.hash = t.counters.part(t.want.Key)
		t.part.mu.Lock()
		t.e = t.part.find(t.hash, t.want.Key)
	}
}

// settle counts the request, where it is let in and the limit would let it in, and unlocks all parts.
func (w *worker) settle(now event.Micros, allowed bool) (permit *Permit) {
	for i := range w.tries {
		t := &w.tries[i]
		if allowed && !t.denied {
			t.part.admitted++
			if t.e == nil {
				t.e = t.counters.add(t.part, t.hash, t.want.Key)
			}
			if t.InFlight {
				permit = permit.with(t.counters, t.part, t.e, t.want.Amount)
			} else {
				t.e.window, t.e.form, t.e.warm = append(t.e.window[:0], t.window...), t.Hash, t.warm
			}
		}
		if t.e != nil {
			t.part.touch(t.e, now)
		}
		t.part.mu.Unlock()
	}
	for i := range w.tries {
		if t := &w.tries[i]; t.counters.isFull() {
			t.counters.shrink()
		}
	}
	return permit
}

// judge decides under one limit.
func (t *try) judge(now event.Micros) {
	t.now, t.threshold, t.retry = now, t.want.Threshold, 0
	if t.want.Exempt {
		t.threshold = rules.Unlimited
	}
	if t.InFlight {
		t.judgeHeld()
		return
	}
	t.window = t.window[:0]
	if t.e != nil {
		t.window = append(t.window, t.counted()...)
		t.now = max(now, t.e.used) // a clock that went back
	}
	if t.WarmUp.Time > 0 {
		t.warmUp(now)
	}
	var spent event.Micros
	if t.window, spent = t.add(); t.denied {
		t.deny()
		return
	}
	t.reset = t.span(spent)
}

// counted is the key's window. While rules change, requests by the old ones and by the new ones meet the same
// counters, which may be kept in two forms.
func (t *try) counted() []byte {
	if len(t.e.window) == 0 {
		return nil
	}
	return t.Carry(t.e.window, t.e.form)
}

// add adds the request to the window, and decides by what is in it then.
func (t *try) add() ([]byte, event.Micros) {
	window, added, spent := t.Window.AddSpent(t.window, t.now, t.want.Amount)
	t.count = added.Count
	t.denied = t.threshold != rules.Unlimited && t.count > t.threshold
	return window, spent
}

// judgeHeld decides by what is under way.
func (t *try) judgeHeld() {
	t.count, t.reset = t.want.Amount, 0
	if t.e != nil {
		t.count = t.count.Plus(t.e.held)
	}
	if t.denied = t.threshold != rules.Unlimited && t.count > t.threshold; t.denied {
		if t.want.Amount > t.threshold {
			t.retry = standing.Never
		}
		t.count -= t.want.Amount
	}
}

// warmUp brings a bucket's own time to now.
func (t *try) warmUp(now event.Micros) {
	if t.warm = (warmth{}); t.e != nil {
		t.warm = t.e.warm
	}
	t.warm.advance(&t.WarmUp, now, t.Window.Spent(t.window))
	t.now = event.Micros(t.warm.virtual)
	if t.threshold > 0 {
		t.threshold = t.warm.burst(&t.WarmUp, t.threshold, t.want.Amount)
	}
}

// deny records the key's position under the limit that denied the request.
func (t *try) deny() {
	t.count, t.reset, t.retry = 0, 0, standing.Never
	var window []byte
	if t.e != nil {
		window = t.counted()
		t.count, t.reset = t.Window.CountAt(window, t.now), t.span(t.Window.Spent(window))
	}
	if len(window) == 0 || t.want.Amount > t.threshold {
		return
	}
	// There is room where the count is below the least one that leaves none. Of a bucket that is room
	// for one token; of the others, any room.
	room := t.threshold - t.want.Amount
	if t.Window.Kind.HasRate() {
		room += event.One
	} else {
		room++
	}
	t.retry = t.span(t.Window.Below(window, room))
}

// span converts a moment of the window's time to a wait.
func (t *try) span(until event.Micros) time.Duration {
	if t.WarmUp.Time > 0 {
		return event.Micros(t.warm.until(&t.WarmUp, float64(until)-t.warm.virtual) + 1).Duration()
	}
	return max(until-t.now, 0).Duration()
}

// number says of which limit the result is, and where its key stands.
func (w *worker) number(res *Result) {
	var of *try
	var room event.Decimal
	for i := range w.tries {
		t := &w.tries[i]
		if t.threshold == rules.Unlimited || t.Rule.Mode == verdict.Shadow || t.denied == res.Allowed {
			continue
		}
		left := max(t.threshold-t.count, 0)
		if of == nil || res.Allowed && left < room || !res.Allowed && t.retry > of.retry {
			of, room = t, left
		}
	}
	if of == nil {
		return
	}
	res.Limit = of.Limit
	n := &res.Numbers
	n.Limited, n.Limit, n.Remaining, n.RetryAfter, n.ResetAfter = of.denied, of.threshold, room, of.retry, of.reset
}
