package windows_test

import (
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// oracle keeps every event that it counts, and knows no state: whatever it is asked, it goes
// through all of them. stays tells until when an event counts that nothing follows, held
// whether an event is late but not too late, and same which events it is counted with.
type oracle struct {
	stays  func(at event.Micros) event.Micros
	held   func(at, latest event.Micros) bool
	same   func(a, b event.Micros) bool
	judge  func(at event.Micros) windows.Added // what an event that counts is told; nil: what same says
	events []happened
	latest event.Micros
}

type happened struct {
	at, until event.Micros
	n         event.Decimal
}

func (o *oracle) add(at event.Micros, n event.Decimal) windows.Added {
	if len(o.events) > 0 && at < o.latest && !o.held(at, o.latest) {
		return windows.Added{Late: true, Count: o.countAt(o.latest)}
	}
	if len(o.events) == 0 || at > o.latest {
		o.latest = at
	}
	o.events = append(o.events, happened{at, o.stays(at), n})
	if o.judge != nil {
		return o.judge(at)
	}
	if !o.same(at, o.latest) {
		return windows.Added{Ended: true, Count: o.sum(func(e happened) bool { return o.same(at, e.at) })}
	}
	return windows.Added{Count: o.countAt(o.latest)}
}

func (o *oracle) countAt(now event.Micros) event.Decimal {
	return o.sum(func(e happened) bool { return now < e.until })
}

func (o *oracle) sum(in func(happened) bool) (count event.Decimal) {
	for _, e := range o.events {
		if in(e) {
			count = count.Plus(e.n)
		}
	}
	return count
}

func (o *oracle) below(limit event.Decimal) event.Micros {
	moments := []event.Micros{o.latest}
	for _, e := range o.events {
		moments = append(moments, max(o.latest, e.until))
	}
	slices.Sort(moments)
	for _, now := range moments {
		if o.countAt(now) < limit {
			return now
		}
	}
	panic("something stays for ever")
}

// aligned is the oracle of windows that do not overlap.
func aligned(lateness event.Micros, window func(event.Micros) (from, to event.Micros)) *oracle {
	return &oracle{
		stays: func(at event.Micros) event.Micros { _, to := window(at); return to },
		same:  func(a, b event.Micros) bool { fa, _ := window(a); fb, _ := window(b); return fa == fb },
		held: func(at, latest event.Micros) bool {
			from, to := window(at)
			current, _ := window(latest)
			return from == current || to == current && latest < to+min(to-from, lateness)
		},
	}
}

// sliding is the oracle of sliding windows; an event counts as if it had happened at late(at).
func sliding(per event.Micros, late func(at event.Micros) event.Micros) *oracle {
	return &oracle{
		stays: func(at event.Micros) event.Micros { return late(at) + per },
		same:  func(_, _ event.Micros) bool { return true },
		held:  func(at, latest event.Micros) bool { return at > latest-per },
	}
}

// hopsOracle is the oracle of hopping windows. It goes through each window that holds an event.
func hopsOracle(s *windows.Spec) *oracle {
	hold := min(s.Per, s.Lateness)
	starts := func(at event.Micros) (all []event.Micros) { // of the windows that hold at, the last one first
		last := at - ((at-s.Offset)%s.Every+s.Every)%s.Every
		for start := last; start > at-s.Per; start -= s.Every {
			all = append(all, start)
		}
		return all
	}
	o := &oracle{
		stays: func(at event.Micros) event.Micros { return starts(at)[0] + s.Per },
		held:  func(at, latest event.Micros) bool { return latest < starts(at)[0]+s.Per+hold },
	}
	o.judge = func(at event.Micros) (added windows.Added) {
		var current, ended event.Decimal
		in, late := false, false
		for _, start := range starts(at) {
			count := o.sum(func(e happened) bool { return start <= e.at && e.at < start+s.Per })
			switch {
			case o.latest < start+s.Per:
				current, in = max(current, count), true
			case o.latest < start+s.Per+hold:
				ended, late = max(ended, count), true
			}
		}
		if late && (!in || ended > current) {
			return windows.Added{Ended: true, Count: ended}
		}
		return windows.Added{Count: current}
	}
	return o
}

// oracleOf knows all windows but Calendar's.
func oracleOf(s *windows.Spec) *oracle {
	switch {
	case s.Kind == windows.Tumbling:
		return aligned(s.Lateness, func(at event.Micros) (from, to event.Micros) {
			past := ((at-s.Offset)%s.Per + s.Per) % s.Per
			return at - past, at - past + s.Per
		})
	case s.Exact:
		return sliding(s.Per, func(at event.Micros) event.Micros { return at })
	default:
		return sliding(s.Per, func(at event.Micros) event.Micros {
			past := (at%s.Resolution + s.Resolution) % s.Resolution
			return at - past + s.Resolution
		})
	}
}
