package rules

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
	return !l.Shadow && !l.InFlight && !l.Quota && !l.Tries && len(l.Warn) == 0 && !l.asks() && l.overrides == nil && !l.Window.Kind.HasRate()
}

// covers reports whether a limit's window, whenever it is asked, holds all that another one's does.
func covers(l, other *Limit) bool {
	w, o := &l.Window, &other.Window
	is := &windowKinds[w.Kind]
	switch {
	case is.drifts || windowKinds[o.Kind].drifts:
		return false
	case w.Kind.Slides():
		return l.PerMin >= other.PerMax
	}
	return w.Kind == o.Kind && is.covers != nil && is.covers(w, o)
}
