package rules

import (
	"encoding/binary"

	"github.com/tallygate/tallygate/pipeline/event"
)

// ownHash is of no limit: it names the section of what a key itself has.
var ownHash SectionHash

// keyExtras are what commands gave to a key. On the wire a uvarint 1 and a block when it was blocked by
// a command, or 0; then of each exemption its end, 8 bytes, and the rule's name, "" for all rules.
type keyExtras struct {
	manual slot
	exempt []ownExemption
	any    bool // something was read or written since it was last cleared
}

type ownExemption struct {
	until event.Micros
	rule  []byte
}

// maxOwnExempt bounds how many exemptions a key has of its own.
const maxOwnExempt = 64

func (x *keyExtras) clear() { *x = keyExtras{exempt: x.exempt[:0]} }

func (x *keyExtras) read(b []byte) error {
	x.clear()
	x.any = true
	r := varints{b: b}
	if x.manual.had = r.uvarint() == 1; x.manual.had {
		x.manual.block = r.block(stateVersion)
	}
	for len(r.b) > 0 && !r.bad && len(x.exempt) < maxOwnExempt {
		x.exempt = append(x.exempt, ownExemption{event.Micros(r.fixed()), r.text()})
	}
	if err := r.end("what a key has is cut off"); err != nil || !x.manual.had {
		return err
	}
	return x.manual.block.check()
}

// appendSection appends the section; nothing when the key has nothing of its own.
func (x *keyExtras) appendSection(dst []byte) []byte {
	if !x.manual.had && len(x.exempt) == 0 {
		return dst
	}
	body := []byte{0}
	if x.manual.had {
		body = x.manual.block.append([]byte{1})
	}
	for _, e := range x.exempt {
		body = binary.LittleEndian.AppendUint64(body, uint64(e.until))
		body = appendText(body, e.rule)
	}
	dst = append(dst, ownHash[:]...)
	dst = binary.AppendUvarint(dst, uint64(len(body))<<1)
	return append(dst, body...)
}

// spent is when nothing of it matters any more.
func (x *keyExtras) spent() event.Micros {
	at := event.NoTime
	if x.manual.had {
		at = x.manual.block.until
	}
	for _, e := range x.exempt {
		at = max(at, e.until)
	}
	return at
}

// keepOwn appends the key's own section, unless all of it is over.
func (p *Stepper) keepOwn(dst []byte, sec rawSection, latest event.Micros, res *Result) []byte {
	spent := p.own.spent()
	if latest >= spent {
		return dst
	}
	res.SpentAt = max(res.SpentAt, spent)
	return append(dst, sec.raw...)
}
