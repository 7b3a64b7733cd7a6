package keystate

import (
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Allowance is a limit of its own that a command gave to the key, or a grant, which adds to the key's limit. One that
// is over stays for as long as its id is remembered, so that the same command, sent again, is known.
//
// All of a key's stand in one exemption on the wire, whose name is a 1 and they, and whose end is that of the last. No
// rule is called that: a program that knows no allowances keeps it, and it exempts from nothing there. Of each:
//
//	flags   1 byte
//	until   8 bytes; event.NoTime: it has no end
//	kept    8 bytes: until when its id is remembered at least
//	asked   8 bytes: a hash of what was asked for
//	amount  uvarint: the limit, 0 is unlimited; or what is granted
//	rule, id, note: each a uvarint length, and its bytes
type Allowance struct {
	Grant  bool
	Ended  bool // by a command, or since another limit took its place
	Until  event.Micros
	Kept   event.Micros
	Asked  uint64
	Amount event.Decimal
	Rule   []byte // the limit's name
	ID     []byte
	Note   []byte // who gave it and why
}

// Bounds on a key's allowances: on those in force, and on all that are remembered.
const (
	MaxAllowances = 32
	MaxRemembered = 256
)

const (
	allowGrant byte = 1 << iota
	allowEnded
	noAllowFlags // and what is above: of newer versions
)

var allowMark = []byte{1}

// Holds reports whether it is in force at a time.
func (a *Allowance) Holds(at event.Micros) bool {
	return !a.Ended && (a.Until == event.NoTime || at < a.Until)
}

// Ends is its last moment, which is not part of it; event.MaxTime if it has no end.
func (a *Allowance) Ends() event.Micros {
	if a.Until == event.NoTime {
		return event.MaxTime
	}
	return a.Until
}

// spent is the moment from which nobody asks for it any more.
func (a *Allowance) spent() event.Micros {
	if a.Ended {
		return a.Kept
	}
	return max(a.Ends(), a.Kept)
}

// readAllowances takes them from the name that they stand in.
func (x *KeySection) readAllowances(b []byte) error {
	r := varints{b: b}
	for len(r.b) > 0 && !r.bad {
		flags := r.byte()
		if flags >= noAllowFlags {
			return fmt.Errorf("%w: an allowance has flags %#02x", ErrNewer, flags)
		}
		a := Allowance{
			Grant: flags&allowGrant != 0, Ended: flags&allowEnded != 0, Until: event.Micros(r.fixed()), Kept: event.Micros(r.fixed()),
			Asked: r.fixed(), Amount: event.Decimal(r.uvarint()), Rule: r.text(), ID: r.text(), Note: r.text(),
		}
		if a.Amount < 0 || len(x.Allow) >= MaxRemembered {
			r.bad = true
		}
		x.Allow = append(x.Allow, a)
	}
	return r.end("what commands allow a key is cut off")
}

// appendAllowances appends them as an exemption; nothing when there are none.
func (x *KeySection) appendAllowances(dst []byte) []byte {
	if len(x.Allow) == 0 {
		return dst
	}
	list, until := slices.Clone(allowMark), event.NoTime
	for i := range x.Allow {
		a := &x.Allow[i]
		var flags byte
		if a.Grant {
			flags |= allowGrant
		}
		if a.Ended {
			flags |= allowEnded
		}
		list = append(list, flags)
		for _, v := range []uint64{uint64(a.Until), uint64(a.Kept), a.Asked} {
			list = binary.LittleEndian.AppendUint64(list, v)
		}
		list = binary.AppendUvarint(list, uint64(a.Amount))
		list = appendText(appendText(appendText(list, a.Rule), a.ID), a.Note)
		until = max(until, a.spent())
	}
	dst = binary.LittleEndian.AppendUint64(dst, uint64(until))
	return appendText(dst, list)
}
