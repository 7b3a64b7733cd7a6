package keystate

import (
	"bytes"
	"encoding/binary"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// KeyHash is of no limit: it names the section of what a key itself has.
var KeyHash SectionHash

// KeySection holds the effects of commands on a key. On the wire a uvarint 1 and a block when it was blocked by a
// command, or 0; then of each exemption its end, 8 bytes, and the rule's name, "" for all rules. Behind an exemption
// may stand its note, in the form of another exemption with the same end: the name is a 0, the rule's name, a 0 and
// the note. No rule is called that, so programs that know of no notes keep it, and it exempts from nothing there.
// Allowances come last, all of them in the form of one exemption: see allowance.go.
type KeySection struct {
	Manual Slot
	Exempt []Exemption
	Allow  []Allowance
	Any    bool // something was read or written since it was last cleared
}

// Exemption is one that a command gave to the key.
type Exemption struct {
	Until event.Micros
	Rule  []byte
	Note  []byte // who gave it and why; empty when that is not known
}

// MaxExemptions bounds how many exemptions a key has of its own, the notes among them.
const MaxExemptions = 64

// HasOwn reports whether a state that passed Check has the section of what its key itself has. A takeover asks
// that of every state, so it reads no more than what stands ahead.
func HasOwn(state []byte) bool {
	if len(state) < HeaderBytes {
		return false
	}
	r := varints{b: state[HeaderBytes:]}
	if count := r.uvarint(); count > 0 {
		skip := r.uvarint() + 8*count
		if skip > uint64(len(r.b)) {
			return false
		}
		r.b = r.b[skip:]
	}
	return !r.bad && len(r.b) > len(KeyHash) && SectionHash(r.b) == KeyHash
}

// Clear empties x, and keeps its memory.
func (x *KeySection) Clear() { *x = KeySection{Exempt: x.Exempt[:0], Allow: x.Allow[:0]} }

// RoomForExemptions bounds the exemptions, beside the allowances.
func (x *KeySection) RoomForExemptions() int { return MaxExemptions - (x.Entries() - len(x.Exempt)) }

// Entries counts what takes the place of exemptions on the wire, without notes, which give way.
func (x *KeySection) Entries() int {
	if len(x.Allow) > 0 {
		return len(x.Exempt) + 1
	}
	return len(x.Exempt)
}

// Read takes the section's body.
func (x *KeySection) Read(b []byte) error {
	x.Clear()
	x.Any = true
	r := varints{b: b}
	if x.Manual.Had = r.uvarint() == 1; x.Manual.Had {
		x.Manual.Block = r.block(Version)
	}
	for n := 0; len(r.b) > 0 && !r.bad && n < MaxExemptions; n++ {
		e := Exemption{Until: event.Micros(r.fixed()), Rule: r.text()}
		if list, some := bytes.CutPrefix(e.Rule, allowMark); some {
			if err := x.readAllowances(list); err != nil {
				return err
			}
			continue
		}
		x.add(e)
	}
	if err := r.end("what a key has is cut off"); err != nil || !x.Manual.Had {
		return err
	}
	return x.Manual.Block.check()
}

// add appends an exemption, or sets the note of the last one. A note without its exemption is one that a
// program left behind that knows of no notes.
func (x *KeySection) add(e Exemption) {
	named, isNote := bytes.CutPrefix(e.Rule, noteMark)
	if !isNote {
		x.Exempt = append(x.Exempt, e)
		return
	}
	rule, note, _ := bytes.Cut(named, noteMark)
	if last := len(x.Exempt) - 1; last >= 0 && x.Exempt[last].Until == e.Until && bytes.Equal(x.Exempt[last].Rule, rule) {
		x.Exempt[last].Note = note
	}
}

var noteMark = []byte{0}

// AppendSection appends the section; nothing when the key has nothing of its own.
func (x *KeySection) AppendSection(dst []byte) []byte {
	if !x.Manual.Had && x.Entries() == 0 {
		return dst
	}
	body := []byte{0}
	if x.Manual.Had {
		body = x.Manual.Block.Append([]byte{1})
	}
	notes := MaxExemptions - x.Entries()
	for _, e := range x.Exempt {
		body = binary.LittleEndian.AppendUint64(body, uint64(e.Until))
		body = appendText(body, e.Rule)
		if len(e.Note) > 0 && notes > 0 {
			notes--
			body = binary.LittleEndian.AppendUint64(body, uint64(e.Until))
			body = appendText(body, slices.Concat(noteMark, e.Rule, noteMark, e.Note))
		}
	}
	body = x.appendAllowances(body)
	dst = append(dst, KeyHash[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(body))<<1)
	return append(dst, body...)
}

// Spent returns the moment from which nothing of it matters any more.
func (x *KeySection) Spent() event.Micros {
	at := event.NoTime
	if x.Manual.Had {
		at = x.Manual.Block.Until
	}
	for _, e := range x.Exempt {
		at = max(at, e.Until)
	}
	for i := range x.Allow {
		at = max(at, x.Allow[i].spent())
	}
	return at
}
