// Package instance decides in this process whether a request is let in, by the rules of `scope: instance`.
// It asks nobody, and publishes nothing: it counts what it lets in, in the windows of package windows.
package instance

import (
	"sync"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/standing"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Options configure Limits. The zero value is ready to use.
type Options struct {
	// Now is the clock; nil is the system's, which goes on from where it was when it is set back. Where
	// Now goes back, a key's time stands still. It is called by many goroutines, once a request that a
	// rule is for.
	Now func() event.Micros
}

// Limits are a process' own limits. All methods may be called by many goroutines.
type Limits struct {
	now     func() event.Micros
	mu      sync.Mutex // one Load at a time
	made    uint64     // tables so far
	current atomic.Pointer[version]
}

// version is one set of rules, compiled for this process.
type version struct {
	tables  [][]*limit // by Rule.Index and Limit.Index
	workers sync.Pool
}

// limit is a limit of this version, and its counters, which the next version may have too.
type limit struct {
	*rules.Limit
	counters *table
}

// Result is a request's outcome.
type Result struct {
	Allowed bool
	Action  verdict.Action // unless it is allowed: the strongest of the rules that did not let it in

	// Limit is the one that Numbers are of: of those that did not let the request in the one that
	// takes longest, or else the one with the least room left. It is nil, and Numbers are zero, when
	// no limit is for the request.
	Limit   *rules.Limit
	Numbers standing.Numbers

	// Shadow is a limit in shadow mode that would not have let the request in; nil when none would.
	Shadow *rules.Limit
}

// New returns the limits of a set's rules of ScopeInstance.
func New(set *rules.Set, o Options) *Limits {
	x := &Limits{now: o.Now}
	if x.now == nil {
		x.now = newClock().now
	}
	x.current.Store(&version{})
	x.Load(set)
	return x
}

// Load replaces the rules. Limits that are the same by any of Limit.Names, so of the same name, window, key and
// count, go on with their counters. Requests meet the old rules or the new ones.
func (x *Limits) Load(set *rules.Set) {
	x.mu.Lock()
	defer x.mu.Unlock()
	old := map[rules.SectionHash]*table{}
	for _, l := range x.current.Load().all() {
		old[l.Hash] = l.counters
	}
	v := &version{}
	for _, r := range set.Instance {
		var limits []*limit
		for _, l := range r.Limits {
			var t *table
			for _, name := range l.Names() {
				if t = old[name]; t != nil {
					break
				}
			}
			if t == nil {
				x.made++
				t = newTable(x.made)
			}
			t.resize(r.MaxKeys)
			limits = append(limits, &limit{Limit: l, counters: t})
		}
		v.tables = append(v.tables, limits)
	}
	list := set.Instance
	v.workers.New = func() any { return &worker{requests: rules.NewRequests(list)} }
	x.current.Store(v)
}

func (v *version) all() (out []*limit) {
	for _, limits := range v.tables {
		out = append(out, limits...)
	}
	return out
}

// Admit decides whether a request is let in, and counts it if it is: under all limits that are for it, or
// under none. e is the event that the request will be, as far as it is known: what it lacks is absent. A
// cost of 0 is 1, as where events are emitted.
//
// A Permit that is not nil must be given back when the action is done: it counts under limits on what is
// under way.
func (x *Limits) Admit(e *event.Event) (res Result, permit *Permit) {
	res.Allowed = true
	if v := x.current.Load(); len(v.tables) > 0 {
		w := v.workers.Get().(*worker)
		permit = w.admit(&res, v, e, x.now)
		v.workers.Put(w)
	}
	return res, permit
}

// Stat counts requests under one limit, since its counters began.
type Stat struct {
	Limit    *rules.Limit
	Admitted uint64 // requests that it counted
	Denied   uint64 // requests that it did not let in, or would not have in shadow mode
	Keys     int    // that it has counters of now
	Evicted  uint64 // keys that left to make room for others
}

// Stats are of all limits, in the order of the rules.
func (x *Limits) Stats() (out []Stat) {
	for _, l := range x.current.Load().all() {
		s := l.counters.stat()
		s.Limit = l.Limit
		out = append(out, s)
	}
	return out
}
