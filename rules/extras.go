package rules

import (
	"encoding/binary"
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
)

// extras are what a section has besides its window; most have none. On the wire:
//
//	flags       1 byte: which of these there are
//	block       the live verdict, see block
//	escalation  how many verdicts there were, a uvarint, and the last one's end, 8 bytes
//	block       the candidate's
//	escalation  the candidate's
//	tier        uvarint: the key's, see Tier.id
//	warned      uvarint count; when each step's last notice was given, 8 bytes, 0: never
//	remembered  to the end, see memory
type extras struct {
	live, try  slot
	tier       uint64 // Tier.id
	warned     []event.Micros
	remembered memory
}

// slot is where a verdict stands.
type slot struct {
	had   bool
	block block
	steps uint64       // verdicts so far, under escalate
	ended event.Micros // when the last of them ends
}

const (
	hasLive byte = 1 << iota
	hasLiveSteps
	hasTry
	hasTrySteps
	hasTier
	hasWarned
	hasMemory
)

// clear empties x, and keeps its memory.
func (x *extras) clear() {
	*x = extras{warned: x.warned[:0], remembered: x.remembered[:0]}
}

// read takes the extras of a section; of version 1 they are a block.
func (x *extras) read(b []byte, version byte) error {
	x.clear()
	r := varints{b: b}
	if version == 1 {
		x.live.had, x.live.block = true, r.block(1)
		return r.end("a block is cut off")
	}
	if len(b) == 0 {
		return nil
	}
	flags := b[0]
	r.b = b[1:]
	x.live.read(&r, flags&hasLive != 0, flags&hasLiveSteps != 0)
	x.try.read(&r, flags&hasTry != 0, flags&hasTrySteps != 0)
	if flags&hasTier != 0 {
		x.tier = r.uvarint()
	}
	if flags&hasWarned != 0 {
		for n := min(r.uvarint(), maxSteps); n > 0 && !r.bad; n-- {
			x.warned = append(x.warned, event.Micros(r.fixed()))
		}
	}
	if flags&hasMemory != 0 {
		x.remembered = x.remembered.read(&r)
	}
	return r.end("what a section remembers is cut off")
}

func (s *slot) read(r *varints, had, escalates bool) {
	if s.had = had; had {
		s.block = r.block(stateVersion)
	}
	if escalates {
		s.steps, s.ended = r.uvarint(), event.Micros(r.fixed())
	}
}

// end reports whether all was read, and no more.
func (r *varints) end(what string) error {
	if r.bad || len(r.b) > 0 {
		return fmt.Errorf("%w: %s", errState, what)
	}
	return nil
}

// append appends the extras; nothing when there are none.
func (x *extras) append(dst []byte) []byte {
	var flags byte
	for _, f := range []struct {
		there bool
		flag  byte
	}{
		{x.live.had, hasLive}, {x.live.steps > 0, hasLiveSteps}, {x.try.had, hasTry}, {x.try.steps > 0, hasTrySteps},
		{x.tier > 0, hasTier}, {len(x.warned) > 0, hasWarned}, {len(x.remembered) > 0, hasMemory},
	} {
		if f.there {
			flags |= f.flag
		}
	}
	if flags == 0 {
		return dst
	}
	dst = append(dst, flags)
	dst = x.try.append(x.live.append(dst))
	if x.tier > 0 {
		dst = binary.AppendUvarint(dst, x.tier)
	}
	if len(x.warned) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(x.warned)))
		for _, at := range x.warned {
			dst = binary.LittleEndian.AppendUint64(dst, uint64(at))
		}
	}
	if len(x.remembered) > 0 {
		dst = x.remembered.append(dst)
	}
	return dst
}

func (s *slot) append(dst []byte) []byte {
	if s.had {
		dst = s.block.append(dst)
	}
	if s.steps > 0 {
		dst = binary.AppendUvarint(dst, s.steps)
		dst = binary.LittleEndian.AppendUint64(dst, uint64(s.ended))
	}
	return dst
}

// spent is when the extras no longer matter; NoTime when they don't.
func (x *extras) spent(l *Limit) event.Micros {
	at := event.NoTime
	for _, s := range []*slot{&x.live, &x.try} {
		if s.had {
			at = max(at, s.block.until)
		}
		if s.steps > 0 {
			at = max(at, later(s.lastEnd(), l.Rule.Then.Forget))
		}
	}
	for _, since := range x.warned {
		if since != event.NoTime {
			at = max(at, later(since, l.PerMax))
		}
	}
	return at
}

// check reports what no extras have.
func (x *extras) check() error {
	for _, s := range []*slot{&x.live, &x.try} {
		if err := s.block.check(); s.had && err != nil {
			return err
		}
	}
	return x.remembered.check()
}
