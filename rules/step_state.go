package rules

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
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
		if err := l.Window.Check(sec.window); err != nil {
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

// nextSection takes the first section off b, which is not empty.
func nextSection(b []byte) (s section, rest []byte, err error) {
	if len(b) < len(s.hash) {
		return s, nil, fmt.Errorf("%w: a section is cut off", errState)
	}
	n := copy(s.hash[:], b)
	head, w := binary.Uvarint(b[n:])
	n += w
	if w <= 0 || head>>1 > uint64(len(b)-n) {
		return s, nil, fmt.Errorf("%w: a section is cut off", errState)
	}
	end := n + int(head>>1)
	s.raw, s.window = b[:end:end], b[n:end:end]
	if s.hasBlock = head&1 != 0; s.hasBlock {
		if s.block, s.window, err = readBlock(s.window); err != nil {
			return s, nil, err
		}
	}
	return s, b[end:], nil
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
