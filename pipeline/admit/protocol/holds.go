package protocol

import (
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Holds are those of the strict rules that a publisher goes by.
type Holds struct {
	Rules  uint64         // the version of the rules
	Of     []event.Micros // each hold once, the shortest first
	Before event.Micros   // the longest of all rules that this process went by before these; 0: there were none
}

// inUse is with which holds permits may be out. Rules that were in force lately may have had a longer one for a
// limit, so that none is opened before others until such permits have ended.
type inUse struct {
	Holds
	first   bool         // the owner began with these rules
	inForce event.Micros // since when the memory goes by these rules, by the process' clock; 0: it does not
	only    bool         // permits that are out have the holds of these rules
	longest event.Micros // of permits that are out
	stages  []event.Micros
}

// Use takes in the rules that the publisher goes by, and whether the verdict topic up to where the shard has
// reached says them: no permit is granted by others any more.
func (w *Warden) Use(h Holds, inForce bool, now event.Micros) {
	u := &w.holds
	if u.stages == nil && w.Last != nil {
		w.taken = *w.Last
	}
	if u.stages == nil || u.Rules != h.Rules || !slices.Equal(u.Of, h.Of) {
		*u = inUse{Holds: h, first: u.stages == nil}
	}
	u.Before = h.Before
	if u.inForce == 0 && inForce {
		u.inForce = now
	}
	present := event.Micros(0)
	if n := len(u.Of); n > 0 {
		present = u.Of[n-1]
	}
	if !u.only {
		u.longest = max(present, u.Before, w.taken.Longest)
		known := u.first && u.Before == 0 && (w.taken == Grants{} || u.Rules > 0 && w.taken.HoldsOf == u.Rules)
		u.only = u.inForce > 0 && (known || off.shortened || now >= u.inForce+leaseEnds+u.longest+event.Second)
	}
	if u.only {
		u.longest = present
	}
	if u.stages = u.Of; !u.only || len(u.Of) == 0 {
		u.stages = []event.Micros{u.longest}
	}
}

// onlyOf is the version whose holds all permits that are out have; 0: others may have been longer.
func (u *inUse) onlyOf() uint64 {
	if u.only {
		return u.Rules
	}
	return 0
}
