package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/windows"
)

// MaxStateBytes is the most that a key's state may have: it is one record of a topic.
const MaxStateBytes = 512 << 10

// Bounds on the parts of a state.
const (
	varintBytes  = 10
	idsBytes     = 2*varintBytes + 2*varintBytes // the ids' header
	idBytes      = 8 + varintBytes               // hash and stamp
	blockBytes   = 8 + 7*varintBytes + event.MaxID + 5
	stepsBytes   = varintBytes + 8 // of an escalation
	sectionBytes = len(SectionHash{}) + 2*varintBytes + 1
)

// LargestState returns a bound on the bytes that a key's state can have under the set, and the
// dimensions of that key: of one that has met every rule of its shape, with everything that
// is kept at its longest. A set where it is more than MaxStateBytes should not be run. What commands
// give to a key is not in it: it is small beside what a record may have more.
func (s *Set) LargestState() (bytes int, dims []string) {
	sizes := make([]int, len(s.Shapes))
	for _, l := range s.Limits {
		sizes[l.Rule.Shape.Index] += largestSection(l)
	}
	for i, size := range sizes {
		size += keystate.HeaderBytes + idsBytes + s.RecentIDs*idBytes
		if size > bytes {
			bytes, dims = size, s.Shapes[i].Dims
		}
	}
	return bytes, dims
}

func largestSection(l *Limit) int {
	size := sectionBytes + l.Window.MaxBytes()
	slots := 1
	if l.Tries {
		slots = 2
	}
	if l.Rule.Then.None {
		slots = 0
	}
	size += slots * (blockBytes + len(l.Name) + len(candidateSuffix))
	if l.Rule.Then.Escalates {
		size += slots * stepsBytes
	}
	if l.asks() {
		size += varintBytes + varintBytes + 8 // and when an event told it that was not counted
	}
	if l.Told != nil {
		size += 1 + varintBytes
	}
	if l.Rule.reset != nil {
		size += 1 + 8
	}
	if len(l.Warn) > 0 {
		size += varintBytes + 8*len(l.Warn)
	}
	if l.Rule.Refunds {
		size += varintBytes + windows.Remembered*keystate.RememberedBytes
	}
	return size
}
