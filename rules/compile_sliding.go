package rules

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/windows"
)

// sliding: the largest live limit that counts are compared with decides between times and panes. A
// candidate does not: it is to change nothing.
func (c *limitReader) sliding() bool {
	if !c.length() {
		return false
	}
	l := c.l
	s := &l.Window
	s.Exact = l.isExact(l.largestLive())
	overrideFile{c}.warnPanes()
	if s.Distinct && l.largest() > windows.ExactDistinct*event.One {
		c.Fail(c.o.At("limit"), "use window: tumbling or calendar, which estimate greater counts",
			"a sliding window counts up to %d distinct values", windows.ExactDistinct)
	}
	if n := c.w.get("resolution"); n != nil {
		c.resolution(n)
	}
	return true
}

// resolution reads how long a sliding window's panes are.
func (c *limitReader) resolution(n *yaml.Node) {
	l := c.l
	s := &l.Window
	panes := !s.Exact || l.Tries && !l.isExact(l.Candidate)
	resolution, ok := c.duration(n, "resolution")
	switch {
	case !ok:
	case resolution > s.Per:
		c.Fail(n, "leave it out for a sixtieth of per", "resolution is at most per, %s", scalar.FormatDuration(s.Per))
	case panes && s.Per > windows.MaxPanes*resolution:
		least := (s.Per + windows.MaxPanes*event.Second - 1) / (windows.MaxPanes * event.Second) * event.Second
		c.Fail(n, fmt.Sprintf("write %s or more, or leave it out for a sixtieth of per", scalar.FormatDuration(least)),
			"resolution: %s has more than %d panes of %s", scalar.FormatDuration(s.Per), windows.MaxPanes, scalar.FormatDuration(resolution))
	case !s.Exact:
		s.Resolution, l.panes = resolution, resolution
	default:
		if l.panes = resolution; !panes && c.own.get("resolution") != nil && l.Limit != Unlimited {
			c.Warn(n, "", "resolution changes nothing here: up to a limit of %d, a sliding window is exact", windows.ExactLimit)
		}
	}
}

// slidingCandidate: panes beside exact times, or the other way round, would change what the live limit
// counts.
func slidingCandidate(l, try *Limit, _ windowFields) bool {
	if l.isExact(l.Candidate) == l.Window.Exact {
		return false
	}
	try.beside, try.Window = l, otherForm(l)
	return true
}

// slidingFormer: a limit that went from few to many, or back, counts on.
func slidingFormer(l *Limit) []windows.Spec {
	if l.Rule.Count == CountSum {
		return nil
	}
	return []windows.Spec{otherForm(l)}
}

// otherForm is a limit's window by panes when it is exact, and the other way round.
func otherForm(l *Limit) windows.Spec {
	w := l.Window
	if w.Exact, w.Resolution = !w.Exact, 0; !w.Exact {
		w.Resolution = l.panes
	}
	return w
}

// isExact reports whether times are kept for what is compared with a number.
func (l *Limit) isExact(number event.Decimal) bool {
	return l.Rule.Count != CountSum && l.Limit != Unlimited && number <= windows.ExactLimit*event.One
}
