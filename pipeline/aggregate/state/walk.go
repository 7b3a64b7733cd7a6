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

// Size is how many places a part has.
func (t *Table) Size(part int) int { return len(t.subs[part].slots) }
