// Package keystate reads and writes the bytes of a key's state. It knows no rules: package rules says what
// the sections are of.
package keystate

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/event"
)

// Version is that of the states that this binary writes. A key's state, all integers little-endian:
//
//	version   1 byte
//	latest    8 bytes: the key's latest event time
//	ids       see recentIDs
//	sections  to the end, one per limit that the key has met:
//	          hash     6 bytes: SectionHash
//	          head     uvarint: the body's length << 1 | whether extras come first
//	          body     the extras if there are any: their length, a uvarint, and they (see Extras);
//	                   then the window's state
//
// A section with the hash KeyHash has what the key itself has (see KeySection); it comes first.
// Nothing in it points anywhere, so that it can be kept, copied and sent as it is.
//
// In version 1 the extras were a block, without a length ahead.
const Version = 2

// HeaderBytes are those ahead of the ids.
const HeaderBytes = 1 + 8

// ErrNewer means that a state was written by a newer binary than this one.
var ErrNewer = errors.New("rules: the state is of a newer version than this binary reads")

// ErrMalformed means that the bytes are no state.
var ErrMalformed = errors.New("rules: the state is malformed")

var errCutOff = fmt.Errorf("%w: a section is cut off", ErrMalformed)

// Key is a state taken apart; its slices are parts of the state.
type Key struct {
	Version  byte
	Latest   event.Micros // event.NoTime of a new key
	IDs      recentIDs
	Sections []byte
}

// Check reports whether state is one that this binary can step and explain: nil,
// ErrNewer or another error. What the windows hold is for looksAt to say, which is called with each;
// nil: it is not looked at.
func Check(state []byte, looksAt func(of SectionHash, window []byte) error) error {
	s, err := Read(state)
	if err != nil {
		return err
	}
	if len(state) > 0 && (s.Latest < event.MinTime || s.Latest > event.MaxTime) {
		return fmt.Errorf("%w: its latest time", ErrMalformed)
	}
	if err := s.IDs.check(s.Latest); err != nil {
		return err
	}
	for rest := s.Sections; len(rest) > 0; {
		sec, more, ok := Cut(rest)
		if !ok {
			return errCutOff
		}
		hash, window := sec.Hash(), sec.Body()
		switch rest = more; {
		case hash == KeyHash:
			if err := new(KeySection).Read(sec.Body()); err != nil {
				return err
			}
			continue
		case sec.HasExtra():
			if window, err = s.checkExtras(sec); err != nil {
				return err
			}
		}
		if looksAt == nil {
			continue
		}
		if err := looksAt(hash, window); err != nil {
			return err
		}
	}
	return nil
}

// checkExtras checks what a section has besides its window, and returns that.
func (k *Key) checkExtras(sec Section) (window []byte, err error) {
	sec.Version = k.Version
	extra, window, ok := sec.Parts()
	if !ok {
		return nil, errCutOff
	}
	var x Extras
	if len(extra) > 0 {
		err = errors.Join(x.Read(extra, k.Version), x.check())
	}
	return window, err
}

// Read takes a state apart, as far as its sections.
func Read(state []byte) (k Key, err error) {
	err = k.Read(state)
	return k, err
}

// Read is the function Read, into k, which is empty: a Key is too large to be copied each time.
func (k *Key) Read(state []byte) (err error) {
	if len(state) == 0 {
		k.Latest = event.NoTime
		return nil
	}
	if state[0] > Version {
		return ErrNewer
	}
	if state[0] == 0 || len(state) < HeaderBytes {
		return fmt.Errorf("%w: no header", ErrMalformed)
	}
	k.Version, k.Latest = state[0], event.Micros(binary.LittleEndian.Uint64(state[1:]))
	k.Sections, err = k.IDs.read(state[HeaderBytes:])
	return err
}

// AppendHeader begins a state.
func AppendHeader(dst []byte, latest event.Micros) []byte {
	dst = append(dst, Version)
	return binary.LittleEndian.AppendUint64(dst, uint64(latest))
}

// SectionHash names a limit's counters in a key's state: of the limit's name, window, key and
// count, so that a changed rule starts empty, and only it.
type SectionHash [6]byte

// String is the name in levels and permits.
func (h SectionHash) String() string { return hex.EncodeToString(h[:]) }

// Section is a section that is not looked into; its slice is a part of the state. It has four words, which the
// compiler keeps in registers: to copy larger ones, just made, takes longer than to make them.
type Section struct {
	Raw     []byte // all of it
	head    uint32 // how much stands ahead of the body
	Version byte   // of the state; 0 when there are no extras to read
}

// MaxHead is the most that stands ahead of a body.
const MaxHead = len(SectionHash{}) + binary.MaxVarintLen32

// Body is the extras if there are any, and the window.
func (s Section) Body() []byte { return s.Raw[s.head:] }

// Hash names the limit whose section it is.
func (s Section) Hash() SectionHash { return SectionHash(s.Raw) }

// HasExtra is false for the zero section, too.
func (s Section) HasExtra() bool {
	return len(s.Raw) > len(SectionHash{}) && s.Raw[len(SectionHash{})]&1 != 0
}

// Cut takes the first section off b, which is not empty.
func Cut(b []byte) (s Section, rest []byte, ok bool) {
	const h = len(SectionHash{})
	if len(b) <= h {
		return s, nil, false
	}
	head, w := uint64(b[h]), 1
	if head >= 0x80 {
		head, w = binary.Uvarint(b[h:])
	}
	if w <= 0 || head>>1 > uint64(len(b)-h-w) {
		return s, nil, false
	}
	end := h + w + int(head>>1)
	return Section{Raw: b[:end:end], head: uint32(h + w)}, b[end:], true
}

// Parts takes a section apart.
func (s Section) Parts() (extra, window []byte, ok bool) {
	if !s.HasExtra() || s.Hash() == KeyHash {
		return nil, s.Body(), true
	}
	body := s.Body()
	r := varints{b: body}
	if s.Version == 1 {
		r.block(1)
		return body[:len(body)-len(r.b)], r.b, !r.bad
	}
	extra = r.text()
	return extra, r.b, !r.bad
}

// NextSection takes the first section off b, and apart.
func (k *Key) NextSection(b []byte) (s Section, extra, window, rest []byte, err error) {
	s, rest, ok := Cut(b)
	s.Version = k.Version
	if ok {
		extra, window, ok = s.Parts()
	}
	if !ok {
		err = errCutOff
	}
	return s, extra, window, rest, err
}

// CloseSection ends a section without extras: dst ends with its head, of which the length is still
// a single 0, and behind that in the same memory, unless it did not fit, stands the window.
func CloseSection(dst, window []byte) []byte {
	head := uint64(len(window)) << 1
	at := len(dst) - 1
	if head < 0x80 {
		dst[at] = byte(head)
		return append(dst, window...)
	}
	w := uvarintLen(head)
	dst = slices.Grow(dst, w+len(window))
	copy(dst[at+w:at+w+len(window)], window) // before the head, which takes the place of its first bytes
	return append(binary.AppendUvarint(dst[:at], head), dst[at+w:at+w+len(window)]...)
}

// AppendSection appends a section of extras, none when they are empty, and a window.
func AppendSection(dst []byte, hash SectionHash, extra, window []byte) []byte {
	dst = append(dst, hash[:]...)
	n := len(extra)
	if n == 0 {
		dst = binary.AppendUvarint(dst, uint64(len(window))<<1)
		return append(dst, window...)
	}
	dst = binary.AppendUvarint(dst, uint64(uvarintLen(uint64(n))+n+len(window))<<1|1)
	dst = appendText(dst, extra)
	return append(dst, window...)
}
