package index

import (
	"encoding/binary"
	"unsafe"

	"github.com/tallygate/tallygate/event"
)

// What follows is Index.User in pieces that the compiler inlines into enforce.Table.Check: see the
// package's doc. As one function it costs a call more, a fifth of the time of a check that finds
// nothing, as nearly all do.

// Place is a walk's position.
type Place struct {
	word uint64 // the bucket's tags
	at   uint64 // the bucket
	left int    // how many buckets it has not been to, this one included
}

// Start returns the first place where a user's record may be.
func (v *View) Start(u User) Place {
	at := v.buckets.place(u.hash)
	return Place{v.buckets[at].tags.Load(), at, len(v.buckets)}
}

// Last reports whether the walk ends here.
func (p Place) Last() bool { return p.word&overflowed == 0 || p.left == 1 }

// Next returns the place behind p.
func (v *View) Next(p Place) Place {
	if p.at++; p.at == uint64(len(v.buckets)) {
		p.at = 0
	}
	return Place{v.buckets[p.at].tags.Load(), p.at, p.left - 1}
}

// Slots are those of a place that may have a record. 0 is none.
type Slots uint64

// Slots returns the slots of a place that may have the user's record.
func (p Place) Slots(u User) Slots { return Slots(candidates(p.word, tagOf(u.hash))) }

// Rest returns the slots without the first.
func (s Slots) Rest() Slots { return s & (s - 1) }

// Raw is a record that is read without checking the chunk's bounds, which nearly doubled the time of
// a hit. It is read only where a Record would be, and only as far as its own lengths allow.
type Raw struct{ start unsafe.Pointer }

// At returns the record of the first of these slots. ok is false when v is not the index's view any
// more: begin again.
func (x *Index) At(v *View, p Place, s Slots) (r Raw, ok bool) {
	ref := v.buckets[p.at].refs[slotOf(uint64(s))].Load()
	if x.View() != v {
		return Raw{}, false
	}
	return Raw{unsafe.Add(v.starts[ref>>offsetBits].start, int(ref&offsetMask)*refUnit)}, true
}

// Wide reports whether the record is one of those that Fits doesn't know.
func (r Raw) Wide() bool { return *(*byte)(r.start) == wide }

// Fits reports whether the record is of a user whose uid has n bytes.
func (r Raw) Fits(n int) bool { return r.uint16(0) == uint16(n)<<8|shapeUID }

// Is reports whether the record is this user's, whose uid has n bytes, from 8 to 16, and fits.
func (r Raw) Is(n int, u User) bool {
	return r.uint64(keyAt) == u.first && r.uint64(keyAt+n-8) == u.last
}

// UID returns the user's uid, of n bytes, which fits.
func (r Raw) UID(n int) string { return unsafe.String((*byte)(unsafe.Add(r.start, keyAt)), n) }

// Only returns the record's only verdict. differs reports whether its duration is not the class's:
// see Raw.Duration. ok is false when there are several verdicts, or more classes than fit.
func (v *View) Only(r Raw) (c *Class, until event.Micros, differs, ok bool) {
	head := r.uint16(headAt)
	if head&flagMore != 0 || head>>classShift == wideClass {
		return nil, 0, false, false
	}
	return v.classes[head>>classShift], event.Micros(r.uint64(headAt + 2)), head&flagDuration != 0, true
}

// Duration returns the duration of a record's only verdict that differs. The uid has n bytes.
func (r Raw) Duration(n int) event.Micros {
	var u uint64
	for i := 0; ; i++ {
		b := *(*byte)(unsafe.Add(r.start, keyAt+n+i))
		u |= uint64(b&0x7f) << (7 * i)
		if b < 0x80 {
			return event.Micros(u>>1) ^ -event.Micros(u&1)
		}
	}
}

func (r Raw) uint16(i int) uint16 {
	return binary.LittleEndian.Uint16((*[2]byte)(unsafe.Add(r.start, i))[:])
}

func (r Raw) uint64(i int) uint64 {
	return binary.LittleEndian.Uint64((*[8]byte)(unsafe.Add(r.start, i))[:])
}
