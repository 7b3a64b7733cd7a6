package rules

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/windows"
)

// A key's state, all integers little-endian:
//
//	version   1 byte
//	latest    8 bytes: the key's latest event time
//	ids       see recentIDs
//	sections  to the end, one per limit that the key has met:
//	          hash     6 bytes: SectionHash
//	          head     uvarint: the body's length << 1 | whether a block comes first
//	          body     the block if there is one (see block), then the window's state
//
// Nothing in it points anywhere, so that it can be kept, copied and sent as it is.
const stateVersion = 1

const headerBytes = 1 + 8

// ErrNewerState means that a state was written by a newer binary than this one.
var ErrNewerState = errors.New("rules: the state is of a newer version than this binary reads")

var errState = errors.New("rules: the state is malformed")

// keyState is a state taken apart; its slices are parts of the state.
type keyState struct {
	latest   event.Micros // event.NoTime of a new key
	ids      recentIDs
	sections []byte
}

// section is one limit's part of a state; its slices are parts of the state.
type section struct {
	hash     SectionHash
	raw      []byte // all of it
	block    block
	hasBlock bool
	window   []byte
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
	for rest := s.sections; len(rest) > 0; {
		var sec section
		if sec, rest, err = nextSection(rest); err != nil {
			return err
		}
		if sec.hasBlock && sec.block.until < sec.block.since {
			return fmt.Errorf("%w: a block that ends before it begins", errState)
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
		var sec section
		if sec, rest, err = nextSection(rest); err != nil {
			return err
		}
		l := s.byHash[sec.hash]
		if l == nil {
			continue
		}
		if err := l.Window.Check(sec.window); errors.Is(err, windows.ErrNewer) {
			return fmt.Errorf("%w: %s: %w", ErrNewerState, l.Name, err)
		} else if err != nil {
			return fmt.Errorf("%w: %s: %w", errState, l.Name, err)
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
	if state[0] != stateVersion || len(state) < headerBytes {
		return keyState{}, fmt.Errorf("%w: no header", errState)
	}
	k := keyState{latest: event.Micros(binary.LittleEndian.Uint64(state[1:]))}
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
	raw  []byte // all of it
	body []byte // the block if there is one, and the window
}

// sectionHeadBytes is the most that stands ahead of a body.
const sectionHeadBytes = len(SectionHash{}) + binary.MaxVarintLen32

func (s rawSection) hash() SectionHash { return SectionHash(s.raw) }

// hasBlock is false for the zero section, too.
func (s rawSection) hasBlock() bool {
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

// nextSection is cutSection, and takes the section apart.
func nextSection(b []byte) (s section, rest []byte, err error) {
	cut, rest, ok := cutSection(b)
	if !ok {
		return s, nil, fmt.Errorf("%w: a section is cut off", errState)
	}
	s.hash, s.raw, s.window = cut.hash(), cut.raw, cut.body
	if s.hasBlock = cut.hasBlock(); s.hasBlock {
		if s.block, s.window, err = readBlock(s.window); err != nil {
			return s, nil, err
		}
	}
	return s, rest, nil
}

// closeSection ends a section without a block: dst ends with its head, of which the length is still
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

// appendSection appends a section made of its parts. A nil blk is none.
func appendSection(dst []byte, hash SectionHash, blk *block, window []byte) []byte {
	dst = append(dst, hash[:]...)
	if blk == nil {
		dst = binary.AppendUvarint(dst, uint64(len(window))<<1)
		return append(dst, window...)
	}
	dst = binary.AppendUvarint(dst, uint64(blk.size()+len(window))<<1|1)
	dst = blk.append(dst)
	return append(dst, window...)
}
