package windows

// How one form of a sliding window's amounts goes on as the other. Times go into their panes; what
// was in a pane gets the pane's end as its time, or the latest time when that is earlier.

func (e exact) carry(s *Spec, state []byte, from *Spec) []byte {
	if from.Exact {
		state, _ = trimExact(s, state) // there may be other Refunds
		return state
	}
	return recount(e, s, make([]byte, 0, len(state)), endedParts(from, state), getLatest(state))
}

func (p panes) carry(s *Spec, state []byte, from *Spec) []byte {
	switch {
	case from.Exact:
		return recount(p, s, make([]byte, 0, len(state)), exactParts(state), getLatest(state))
	case s.Resolution == from.Resolution:
		return state
	}
	return recount(p, s, make([]byte, 0, len(state)), endedParts(from, state), getLatest(state))
}

// endedParts are panes' amounts at their ends.
func endedParts(s *Spec, state []byte) []part {
	parts, latest := paneParts(s, state), getLatest(state)
	for i := range parts {
		parts[i].at = min(parts[i].at+s.Resolution, latest)
	}
	return parts
}
