package rules

import "encoding/binary"

// byHash finds the limit that a section of a state is of. It is asked about each section of each event, and of
// each state of a takeover: a hash is as good as a place, which a map would hash once more. The zero value has
// none.
type byHash struct {
	slots []hashSlot // a power of two, at least twice as many as there are hashes
	used  int
}

// hashSlot is one place. A hash's own is the one that its lowest bits name, or the next free one behind.
type hashSlot struct {
	name  uint64
	limit *Limit
	taken bool
}

func hashName(hash SectionHash) uint64 {
	return uint64(binary.LittleEndian.Uint32(hash[:4])) | uint64(binary.LittleEndian.Uint16(hash[4:]))<<32
}

// of returns the limit whose sections have a hash; nil when there is none.
func (x *byHash) of(hash SectionHash) *Limit {
	if len(x.slots) == 0 {
		return nil
	}
	return x.slots[x.place(hashName(hash))].limit
}

// place finds the index of a hash, or where it would be.
func (x *byHash) place(name uint64) int {
	mask := len(x.slots) - 1
	i := int(name) & mask
	for x.slots[i].taken && x.slots[i].name != name {
		i = (i + 1) & mask
	}
	return i
}

// put has a hash name a limit; nil is none.
func (x *byHash) put(hash SectionHash, l *Limit) {
	if 2*x.used >= len(x.slots) {
		old := x.slots
		x.slots = make([]hashSlot, max(8, 2*len(old)))
		for _, s := range old {
			if s.taken {
				x.slots[x.place(s.name)] = s
			}
		}
	}
	s := &x.slots[x.place(hashName(hash))]
	if !s.taken {
		x.used++
	}
	*s = hashSlot{hashName(hash), l, true}
}
