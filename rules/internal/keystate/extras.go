package keystate

import (
	"encoding/binary"
	"fmt"

	"github.com/tallygate/tallygate/event"
)

// Extras hold all of a section but its window; most have none. On the wire:
//
//	flags       1 byte: which of these there are; with hasMore one more byte
//	block       the live verdict, see block
//	escalation  how many verdicts there were, a uvarint, and the last one's end, 8 bytes
//	block       the candidate's
//	escalation  the candidate's
//	tier        uvarint: the key's, see Tier.id
//	warned      uvarint count; when each step's last notice was given, 8 bytes, 0: never; the last one may be
//	            Extras.ToldAt less toldMark
//	reset       8 bytes: when an event emptied the window last, see Extras.Reset
//	told        uvarint: the key's limit, see Extras.Told
//	remembered  to the end, see memory
type Extras struct {
	Live, Candidate Slot
	Tier            uint64 // Tier.id
	Warned          []event.Micros
	WasReset        bool
	Reset           event.Micros  // WasReset: what happened up to then counts no more
	Told            event.Decimal // the limit that the key's latest event told; 0: none
	WasTold         bool          // an event that the window did not count has told Tier and Told
	ToldAt          event.Micros  // WasTold: when; it is later than all that the window has counted
	Remembered      memory
}

// Slot holds a verdict.
//
// A slot's ended is when the last verdict ends, which under escalate says what the next one is. While a block holds that was given
// once more for what an earlier one was given for, it stays the earlier one's end: so it lies before the block's beginning, and tells
// that the block has climbed no step.
type Slot struct {
	Had   bool
	Block Block
	Steps uint64       // verdicts so far, under escalate
	Ended event.Micros // when the last of them ends
}

// toldMark, subtracted from a time, leaves one that no event has. So ToldAt can stand among the times of notices:
// programs that do not know it take it for a notice of long ago, and lose it with the next event that counts.
const toldMark event.Micros = 1 << 62

// MaxSteps bounds how many steps a limit escalates by, or warns at.
const MaxSteps = 32

const (
	hasLive byte = 1 << iota
	hasLiveSteps
	hasTry
	hasTrySteps
	hasTier
	hasWarned
	hasMemory
	hasMore // a second byte of flags
)

// In the second byte.
const (
	hasReset byte = 1 << iota
	hasTold
	noFlags // and what is above: of newer versions
)

// Clear empties x, and keeps its memory.
func (x *Extras) Clear() {
	*x = Extras{Warned: x.Warned[:0], Remembered: x.Remembered[:0]}
}

// Read takes the extras of a section; of version 1 they are a block.
func (x *Extras) Read(b []byte, version byte) error {
	x.Clear()
	r := varints{b: b}
	if version == 1 {
		x.Live.Had, x.Live.Block = true, r.block(1)
		return r.end("a block is cut off")
	}
	if len(b) == 0 {
		return nil
	}
	flags, more := b[0], byte(0)
	if r.b = b[1:]; flags&hasMore != 0 {
		if more = r.byte(); more >= noFlags {
			return fmt.Errorf("%w: a section has flags %#02x", ErrNewer, more)
		}
	}
	x.Live.read(&r, flags&hasLive != 0, flags&hasLiveSteps != 0)
	x.Candidate.read(&r, flags&hasTry != 0, flags&hasTrySteps != 0)
	if flags&hasTier != 0 {
		x.Tier = r.uvarint()
	}
	if flags&hasWarned != 0 {
		for n := min(r.uvarint(), MaxSteps); n > 0 && !r.bad; n-- {
			x.Warned = append(x.Warned, event.Micros(r.fixed()))
		}
		x.cutTold()
	}
	if x.WasReset = more&hasReset != 0; x.WasReset {
		x.Reset = event.Micros(r.fixed())
	}
	if more&hasTold != 0 {
		x.Told = event.Decimal(r.uvarint())
	}
	if flags&hasMemory != 0 {
		x.Remembered = x.Remembered.read(&r)
	}
	return r.end("what a section remembers is cut off")
}

// LastTold returns the moment at which the key's limit was told last, where the window has counted until a moment.
func (x *Extras) LastTold(counted event.Micros) event.Micros {
	if x.WasTold {
		return max(x.ToldAt, counted)
	}
	return counted
}

// cutTold takes ToldAt off the times of notices.
func (x *Extras) cutTold() {
	last := len(x.Warned) - 1
	if last < 0 || x.Warned[last] == event.NoTime || x.Warned[last] > event.MaxTime-toldMark {
		return
	}
	x.WasTold, x.ToldAt, x.Warned = true, x.Warned[last]+toldMark, x.Warned[:last]
}

func (s *Slot) read(r *varints, had, escalates bool) {
	if s.Had = had; had {
		s.Block = r.block(Version)
	}
	if escalates {
		s.Steps, s.Ended = r.uvarint(), event.Micros(r.fixed())
	}
}

// end reports whether all was read, and no more.
func (r *varints) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", ErrMalformed, what)
	}
	return nil
}

// Append appends the extras; nothing when there are none.
func (x *Extras) Append(dst []byte) []byte {
	warned := len(x.Warned)
	told := x.WasTold && warned < MaxSteps // else there is no room for it
	if told {
		warned++
	}
	var flags byte
	for _, f := range []struct {
		there bool
		flag  byte
	}{
		{x.Live.Had, hasLive}, {x.Live.Steps > 0, hasLiveSteps}, {x.Candidate.Had, hasTry}, {x.Candidate.Steps > 0, hasTrySteps},
		{x.Tier > 0, hasTier}, {warned > 0, hasWarned}, {len(x.Remembered) > 0, hasMemory},
	} {
		if f.there {
			flags |= f.flag
		}
	}
	var more byte
	if x.WasReset {
		more |= hasReset
	}
	if x.Told > 0 {
		more |= hasTold
	}
	switch {
	case more > 0:
		dst = append(dst, flags|hasMore, more)
	case flags > 0:
		dst = append(dst, flags)
	default:
		return dst
	}
	dst = x.Candidate.append(x.Live.append(dst))
	if x.Tier > 0 {
		dst = binary.AppendUvarint(dst, x.Tier)
	}
	if warned > 0 {
		dst = binary.AppendUvarint(dst, uint64(warned))
		for _, at := range x.Warned {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(at))
		}
	}
	if told {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(x.ToldAt-toldMark))
	}
	if x.WasReset {
		dst = binary.LittleEndian.AppendUint64(dst, uint64(x.Reset))
	}
	if x.Told > 0 {
		dst = binary.AppendUvarint(dst, uint64(x.Told))
	}
	if len(x.Remembered) > 0 {
		dst = x.Remembered.append(dst)
	}
	return dst
}

func (s *Slot) append(dst []byte) []byte {
	if s.Had {
		dst = s.Block.Append(dst)
	}
	if s.Steps > 0 {
		dst = binary.AppendUvarint(dst, s.Steps)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(s.Ended))
	}
	return dst
}

// check reports what no extras have.
func (x *Extras) check() error {
	for _, s := range []*Slot{&x.Live, &x.Candidate} {
		if err := s.Block.check(); s.Had && err != nil {
			return err
		}
	}
	if x.WasTold && (x.ToldAt < event.MinTime || x.ToldAt > event.MaxTime) {
		return fmt.Errorf("%w: a limit that was told at no time", ErrMalformed)
	}
	if x.Told < 0 || x.WasReset && (x.Reset < event.MinTime || x.Reset > event.MaxTime) {
		return fmt.Errorf("%w: a limit below zero, or a reset at no time", ErrMalformed)
	}
	return x.Remembered.check()
}

// Climbed reports whether the block that holds has taken a step.
func (s *Slot) Climbed() bool { return s.Ended >= s.Block.Since }

// Lasts notes the end of a block that holds.
func (s *Slot) Lasts() {
	if s.Climbed() {
		s.Ended = s.Block.Until
	}
}

// Over notes the end of a block that has run out.
func (s *Slot) Over() {
	if s.Had {
		s.Ended, s.Had = max(s.Ended, s.Block.Until), false
	}
}

// LastEnd returns the end of the last verdict.
func (s *Slot) LastEnd() event.Micros {
	if s.Had {
		return max(s.Ended, s.Block.Until)
	}
	return s.Ended
}
