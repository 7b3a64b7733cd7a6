package rules

import (
	"github.com/tallygate/tallygate/windows"
)

// dominated warns of a limit of a rule that another one always reaches first.
func (c *analyst) dominated() {
	for i, l := range c.r.Limits {
		for j, other := range c.r.Limits {
			if i == j || !isBare(l) || !isBare(other) || !covers(other, l) || other.Limit > l.Limit {
				continue
			}
			if same := other.Limit == l.Limit && covers(l, other); same && i < j {
				continue // the second one is told
			}
			c.Warn(c.limitAt[l], "lower it, or leave it out", "this limit never decides: %s counts all that this one counts, and allows no more", other.Name)
			break
		}
	}
}

// isBare reports whether a limit is one number for all keys, about which nobody is told.
func isBare(l *Limit) bool {
	return !l.Shadow && !l.InFlight && !l.Quota && l.Candidate == 0 && len(l.Warn) == 0 && !l.asks() && l.overrides == nil && !l.Window.Kind.HasRate()
}

// covers reports whether a limit's window, whenever it is asked, holds all that another one's does.
func covers(l, other *Limit) bool {
	w, o := &l.Window, &other.Window
	switch {
	case w.Kind == windows.Session || o.Kind == windows.Session:
		return false
	case w.Kind == windows.Sliding:
		return l.PerMin >= other.PerMax
	case w.Kind != o.Kind:
		return false
	case w.Kind == windows.Tumbling:
		return w.Per%o.Per == 0 && (w.Offset-o.Offset)%o.Per == 0
	case w.Kind == windows.Calendar && w.Zone.String() == o.Zone.String():
		return w.Unit == o.Unit && w.WeekStarts == o.WeekStarts || w.Unit > o.Unit && o.Unit != windows.Week
	}
	return false
}
