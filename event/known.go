package event

// Producers write the fields of all their events in one order. So a Decoder remembers the names that the
// members of the last object had, with their quotes and the colon, and compares each place's next name
// with them first: a comparison takes the place of reading a name and of finding out what it means.

const (
	maxKnown     = 32 // members that are remembered of an object
	maxKnownName = 48 // bytes of one that is, with quotes and colon
)

// known is a name that stood at a place of an object.
type known struct {
	text      []byte // as it was written: "name": with nothing in between
	field     field  // of an event's object
	canonical bool   // the name is so itself, as an attribute's
}

// knownNames are those of the last object, by their place in it.
type knownNames []known

// name reads the name at the k-th place of an object, like scanner.name. The name is the record's memory
// if it was written without escapes. known holds until the next call.
func (n *knownNames) name(p *scanner, k int) (name string, is known, ok bool) {
	if k < len(*n) {
		is = (*n)[k]
		if end := p.i + len(is.text); end <= len(p.s) && p.s[p.i:end] == string(is.text) {
			name = p.s[p.i+1 : end-2]
			p.i = end
			p.peek()
			return name, is, true
		}
	}
	start := p.i
	if name, ok = p.name(); !ok {
		return "", known{}, false
	}
	is = known{field: fieldOf(name), canonical: canonicalName(name) == name}
	n.learn(p, start, k, name, is)
	return name, is, true
}

// learn remembers the name at a place, if that is worth it.
func (n *knownNames) learn(p *scanner, start, k int, name string, is known) {
	end := start + len(name) + 3
	if k > len(*n) || k >= maxKnown || end-start > maxKnownName || end > len(p.s) || p.s[start+1:end-2] != name || p.s[end-1] != ':' {
		return // with escapes, or space before the colon
	}
	if k == len(*n) {
		*n = append(*n, known{})
	}
	m := &(*n)[k]
	m.text = append(m.text[:0], p.s[start:end]...)
	m.field, m.canonical = is.field, is.canonical
}
