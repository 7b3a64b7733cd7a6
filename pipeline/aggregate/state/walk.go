package state

// Walk calls each with the blocks of a part, from a place in it on, until each returns false, and returns the place to
// continue at; -1 is the end. A part's places are others when Size has changed; and a block that is deleted meanwhile
// may move those behind it back by one.
func (t *Table) Walk(part, place int, each func(Ref) bool) (next int) {
	slots := t.subs[part].slots
	for ; place < len(slots); place++ {
		if slots[place].ref != 0 && !each(slots[place].ref) {
			return place + 1
		}
	}
	return -1
}

// Size counts the places of a part.
func (t *Table) Size(part int) int { return len(t.subs[part].slots) }

// Place is the position of a walk over a Table's memory. The zero value is the beginning.
type Place struct {
	class int
	chunk uint32
}

// InMemory calls each with up to most blocks in the order in which they lie in memory, from a place on, until each
// returns false, and returns the place behind the last one; more is false at the end. Whoever reads every block is
// several times as quick as in the order of the index, where each block is waited for. The table must not change
// between the first call and the last.
func (t *Table) InMemory(from Place, most int, each func(Ref) bool) (next Place, more bool) {
	for ; from.class < len(t.heap.classes); from = (Place{class: from.class + 1}) {
		c := &t.heap.classes[from.class]
		for ; from.chunk < c.next; from.chunk++ {
			ref := Ref(uint32(from.class)<<numberBits | (from.chunk + 1))
			if t.heap.chunk(ref)[offGen] == genFreed {
				continue
			}
			if most == 0 {
				return from, true
			}
			most--
			if !each(ref) {
				return Place{from.class, from.chunk + 1}, true
			}
		}
	}
	return from, false
}
