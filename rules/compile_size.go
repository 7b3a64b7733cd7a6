package rules

import "github.com/tallygate/tallygate/pipeline/event"

// MaxStateBytes is the most that a key's state may have: it is one record of a topic.
const MaxStateBytes = 512 << 10

// LargestState returns a bound on the bytes that a key's state can have under the set, and the
// dimensions of that key: of one that has met every rule of its shape, with everything that
// is kept at its longest. A set where it is more than MaxStateBytes should not be run.
func (s *Set) LargestState() (bytes int, dims []string) {
	const (
		varint  = 10
		ids     = 2*varint + 2*varint                 // their header
		id      = 8 + varint                          // hash and stamp
		block   = 8 + 6*varint + event.MaxID          // the published verdict
		section = len(SectionHash{}) + varint + block // without its window
	)
	sizes := make([]int, len(s.Shapes))
	for _, l := range s.Limits {
		sizes[l.Rule.Shape.Index] += section + l.Window.MaxBytes()
	}
	for i, size := range sizes {
		size += headerBytes + ids + s.RecentIDs*id
		if size > bytes {
			bytes, dims = size, s.Shapes[i].Dims
		}
	}
	return bytes, dims
}
