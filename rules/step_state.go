package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
)

// A key's state, all integers little-endian:
//
//	version   1 byte
//	latest    8 bytes: the key's latest event time
//	ids       see recentIDs
//	sections  to the end, one per limit that the key has met:
//	          hash     6 bytes: SectionHash
//	          head     uvarint: the body's length << 1 | whether extras come first
//	          body     the extras if there are any: their length, a uvarint, and they (see extras);
//	                   then the window's state
//
// A section with the hash ownHash has what the key itself has (see keyExtras); it comes first.
// Nothing in it points anywhere, so that it can be kept, copied and sent as it is.
//
// In version 1 the extras were a block, without a length ahead.
const stateVersion = 2

const headerBytes = 1 + 8

// ErrNewerState means that a state was written by a newer binary than this one.
var ErrNewerState = errors.New("rules: the state is of a newer version than this binary reads")

var errState = errors.New("rules: the state is malformed")

// keyState is a state taken apart; its slices are parts of the state.
type keyState struct {
	version  byte
	latest   event.Micros // event.NoTime of a new key
	ids      recentIDs
	sections []byte
}

// CheckState reports whether state is one that this binary can step and explain: nil,
// ErrNewerState or another error. It doesn't know the rules: what the windows hold is not
// looked at, see Set.CheckWindows.
func CheckState(state []byte) error {
	s, err := readState(state)
	if err != nil {
		return err
	}
	if len(state) > 0 && (s.latest < event.MinTime || s.latest > event.MaxTime) {
		return fmt.Errorf("%w: its latest time", errState)
	}
	if err := s.ids.check(s.latest); err != nil {
		return err
	}
	var x extras
	for rest := s.sections; len(rest) > 0; {
		sec, extra, _, more, err := s.nextSection(rest)
		if err != nil {
			return err
		}
		rest = more
		if sec.hash() == ownHash {
			err = new(keyExtras).read(sec.body)
		} else if len(extra) > 0 {
			err = errors.Join(x.read(extra, s.version), x.check())
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// CheckWindows reports whether the windows in a state that passed CheckState are those of
// this set's limits. Sections of unknown limits are dropped by the next Step and not looked at.
func (s *Set) CheckWindows(state []byte) error {
	k, err := readState(state)
	if err != nil {
		return err
	}
	for rest := k.sections; len(rest) > 0; {
		sec, _, window, more, err := k.nextSection(rest)
		if err != nil {
			return err
		}
		rest = more
		l := s.byHash[sec.hash()]
		if l == nil {
			continue
		}
		if err := l.checkWindow(sec.hash(), window); err != nil {
			return err
		}
	}
	return nil
}

func readState(state []byte) (keyState, error) {
	if len(state) == 0 {
		return keyState{latest: event.NoTime}, nil
	}
	if state[0] > stateVersion {
		return keyState{}, ErrNewerState
	}
	if state[0] == 0 || len(state) < headerBytes {
		return keyState{}, fmt.Errorf("%w: no header", errState)
	}
	k := keyState{version: state[0], latest: event.Micros(binary.LittleEndian.Uint64(state[1:]))}
	var err error
	k.ids, k.sections, err = readIDs(state[headerBytes:])
	return k, err
}

func appendHeader(dst []byte, latest event.Micros) []byte {
	dst = append(dst, stateVersion)
	return binary.LittleEndian.AppendUint64(dst, uint64(latest))
}

// rawSection is a section that is not looked into; its slices are parts of the state.
type rawSection struct {
	raw     []byte // all of it
	body    []byte // the extras if there are any, and the window
	version byte   // of the state; 0 when there are no extras to read
}

// sectionHeadBytes is the most that stands ahead of a body.
const sectionHeadBytes = len(SectionHash{}) + binary.MaxVarintLen32

func (s rawSection) hash() SectionHash { return SectionHash(s.raw) }

// hasExtra is false for the zero section, too.
func (s rawSection) hasExtra() bool {
	return len(s.raw) > len(SectionHash{}) && s.raw[len(SectionHash{})]&1 != 0
}

// cutSection takes the first section off b, which is not empty.
func cutSection(b []byte) (s rawSection, rest []byte, ok bool) {
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
	return rawSection{raw: b[:end:end], body: b[h+w : end : end]}, b[end:], true
}

// parts takes a section apart.
func (s rawSection) parts() (extra, window []byte, ok bool) {
	if !s.hasExtra() || s.hash() == ownHash {
		return nil, s.body, true
	}
	r := varints{b: s.body}
	if s.version == 1 {
		r.block(1)
		return s.body[:len(s.body)-len(r.b)], r.b, !r.bad
	}
	extra = r.text()
	return extra, r.b, !r.bad
}

// nextSection takes the first section off b, and apart.
func (k *keyState) nextSection(b []byte) (s rawSection, extra, window, rest []byte, err error) {
	s, rest, ok := cutSection(b)
	s.version = k.version
	if ok {
		extra, window, ok = s.parts()
	}
	if !ok {
		err = fmt.Errorf("%w: a section is cut off", errState)
	}
	return s, extra, window, rest, err
}

// take reads a section's extras into p.extras, and returns its window.
func (p *Stepper) take(sec rawSection) (window []byte) {
	p.extras.clear()
	extra, window, ok := sec.parts()
	if !ok || len(extra) > 0 && p.extras.read(extra, sec.version) != nil {
		p.extras.clear() // not reached with a checked state
	}
	return window
}

// closeSection ends a section without extras: dst ends with its head, of which the length is still
// a single 0, and behind that in the same memory, unless it did not fit, stands the window.
func closeSection(dst, window []byte) []byte {
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

// appendSection appends a section of p.extras and a window.
func (p *Stepper) appendSection(dst []byte, hash SectionHash, window []byte) []byte {
	p.parts = p.extras.append(p.parts[:0])
	return appendParts(dst, hash, p.parts, window)
}

// appendParts appends a section of extras, none when they are empty, and a window.
func appendParts(dst []byte, hash SectionHash, extra, window []byte) []byte {
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
