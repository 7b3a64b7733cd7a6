package shard

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// Enforcers ask for permits by a version of the rules, and are told when the partition counts by another
// one. So the version is in the verdict topic as well: behind the levels of all keys with limits that
// became strict, of which nobody has said so far what they have counted. These levels go out while the
// keys are judged by the new rules. Enforcers ask by the version before until then, also under limits
// that the new rules lack: levels name these, so that none is taken for unused.

// announcement is what is to be said of the rules.
type announcement struct {
	said spoken             // last, and durable
	last spoken             // last, and on its way to the topic
	gone []protocol.Section // limits of last that the present rules lack, for levels that come before the present version

	pass bool   // limits became strict: the pass over all keys publishes their levels
	due  *Rules // to be said behind the levels that were queued before

	queued, taken  int // levels, since the shard was made
	asked, durable int // their states
	behindQueued   int // due waits until so many are taken
	behindAsked    int // and then until so many are durable; -1: these are not known yet
}

// spoken is a version of the rules that was said.
type spoken struct {
	name   string   // see Rules.name
	number uint64   // see Rules.Published
	limits []string // the strict ones that levels are of, by their names there
}

func spokenOf(r *Rules) spoken {
	is := spoken{name: r.name(), number: r.Published}
	for _, l := range r.Set.Limits {
		if l.Strict && !l.InFlight {
			is.limits = append(is.limits, l.Hash.String())
		}
	}
	return is
}

// lacks lists the limits that a set has no more. Until its version is said, enforcers ask under them, and its
// levels say nothing of them.
func (v *spoken) lacks(set *rules.Set) (gone []protocol.Section) {
	for _, name := range v.limits {
		if hash, ok := limitHash(name); ok && set.StrictLimit(hash) == nil {
			gone = append(gone, protocol.Gone(name, v.number))
		}
	}
	return gone
}

// limitHash reads a limit's name in levels and permits.
func limitHash(name string) (hash rules.SectionHash, ok bool) {
	return hash, unhex(hash[:], name) == nil
}

// name tells versions apart, also those that are in no topic.
func (r *Rules) name() string { return fmt.Sprintf("%d %s", r.Published, r.hash()) }

// becomeStrict reports whether a set has strict limits that another one has not, or whose levels it calls
// otherwise; of no set, any.
func becomeStrict(now, before *rules.Set) bool {
	for _, l := range now.Limits {
		if !l.Strict {
			continue
		}
		if before == nil {
			return true
		}
		if same := before.StrictLimit(l.Hash); same == nil || same.Hash != l.Hash {
			return true
		}
	}
	return false
}

// Said is the version of the rules that enforcers ask by: it is durable in the verdict topic.
func (s *issuing) Said() uint64 { return s.announced.said.number }

// announce notes that another version is in force from here on.
func (s *judging) announce(before *rules.Set) {
	a := &s.announced
	was := before != nil && before.NewPermits() != nil
	a.gone = a.last.lacks(s.rules.Set)
	switch {
	case !s.levels.on && !was && a.said.name == "", a.said.name == s.rules.name():
		return
	case becomeStrict(s.rules.Set, before):
		a.pass, a.due = true, nil
		s.judged.done = 0
	case !a.pass:
		s.say()
	}
}

// say has the version said behind all levels that wait.
func (s *judging) say() {
	a := &s.announced
	r := s.rules // a copy: newer ones may come first
	a.due, a.behindQueued, a.behindAsked = &r, a.queued, -1
	s.sayIfDue()
}

// sayIfDue says the version when all levels before it are on their way.
func (s *issuing) sayIfDue() {
	a := &s.announced
	if a.due == nil || a.taken < a.behindQueued {
		return
	}
	if a.behindAsked < 0 {
		a.behindAsked = a.asked
	}
	if a.durable < a.behindAsked {
		return
	}
	is := spokenOf(a.due)
	a.due, a.last, a.gone = nil, is, nil
	s.appendOwn(&protocol.Record{Version: is.number}, &Ack{says: &is})
}
