package windows

// Carry makes of a state of another Spec one of this, so that what was counted goes on: the two are
// windows of one length and differ in Exact, Resolution and Refunds only, or not at all. The state is one
// that the other's Check lets pass. Unlike Add it may allocate.
//
// Exact times go into their panes. What was in a pane gets the pane's last moment as its time: it never
// counts too little, and at most one pane too long.
func (s *Spec) Carry(state []byte, from *Spec) []byte {
	switch {
	case len(state) == 0 || s.Kind != Sliding:
		return state
	case s.Distinct:
		if s.Exact && !from.Exact {
			clampRecent(state)
		}
		return state
	case s.Exact == from.Exact && s.Exact:
		state, _ = s.trimExact(state)
		return state
	case s.Exact == from.Exact && s.Resolution == from.Resolution:
		return state
	}
	latest := getLatest(state)
	parts := from.exactParts
	if !from.Exact {
		parts = func(state []byte) []part {
			all := from.paneParts(state)
			for i := range all {
				all[i].at = min(all[i].at+from.Resolution, latest)
			}
			return all
		}
	}
	carried := make([]byte, 0, len(state))
	for _, p := range parts(state) {
		carried, _ = s.Add(carried, p.at, p.n)
	}
	carried, _ = s.Add(carried, latest, 0)
	return carried
}

// clampRecent moves the times of values, which were those of panes' ends, to the latest time at most.
func clampRecent(state []byte) {
	latest := getLatest(state)
	for i := range recentLen(state) {
		if hash, when := recentAt(state, i); when > latest {
			putRecent(state, i, hash, latest)
		}
	}
}
