package index

import (
	"encoding/binary"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// A record is one key and its verdicts, in as few bytes as can be read fast:
//
//	shape     1 byte: the number of the key's shape
//	length    1 byte: of the key
//	head      2 bytes: class << 4 and flags, of the first verdict
//	until     8 bytes, of the first verdict
//	          when shape is 255, or the key longer than 255: both as uvarints; shape is 255 then
//	key       the value; of several dimensions each value with its length
//	tail      the rest of the first verdict
//	verdicts  others: head, until, tail
//
// and a verdict's tail is
//
//	class     uvarint, when that in the head is 4095
//	duration  varint: until - since, unless it is the class's
//	seq       varint
//	count     varint; whole ones in units, others in millionths
//	cause     if it is kept: varint partition, varint offset, uvarint length and bytes of the id
//
// Numbers of fixed size are little-endian. What all verdicts of a rule share is in their class.
const (
	flagMore     = 1 << iota // another verdict follows
	flagDuration             // until - since is not the class's
	flagCause                // there is a cause
	flagWhole                // the count is whole
	classShift   = iota

	wideClass = 1<<(16-classShift) - 1
	wide      = 255
	headSize  = 2 + 8
	headAt    = 2
	keyAt     = headAt + headSize // where the key begins, unless the record is wide
)

// record holds the fixed fields at a record's beginning.
type record struct {
	shape uint64
	key   []byte
	head  []byte // the first verdict's head and until
	tail  []byte // what follows the key
}

// splitRecord reads a record's beginning. rec may go on behind the record.
func splitRecord(rec []byte) (r record) {
	r.shape, r.head = uint64(rec[0]), rec[headAt:keyAt:keyAt]
	n := uint64(rec[1])
	r.tail = rec[keyAt:]
	if r.shape == wide {
		r.shape, r.tail = uvarint(r.tail)
		n, r.tail = uvarint(r.tail)
	}
	r.key, r.tail = r.tail[:n:n], r.tail[n:]
	return r
}

// walk calls do for each of a record's verdicts, and returns what follows the record. It looks at
// no class, for the record may be one that was given up.
func (r *record) walk(do func(heading)) (rest []byte) {
	head, tail := r.head, r.tail
	for {
		h, b := readHead(head, tail)
		do(h)
		b = skipTail(h.flags, b)
		if h.flags&flagMore == 0 {
			return b
		}
		head, tail = b[:headSize], b[headSize:]
	}
}

// appendList appends a record's verdicts.
func (r *record) appendList(dst []held, classes []*Class) []held {
	head, tail := r.head, r.tail
	for {
		var h held
		rest, more := h.read(classes, head, tail)
		dst = append(dst, h)
		if !more {
			return dst
		}
		head, tail = rest[:headSize], rest[headSize:]
	}
}

// appendRecord appends a key and its verdicts.
func appendRecord(dst []byte, shape uint64, key []byte, list []held) []byte {
	if small := shape < wide && len(key) <= 255; small {
		dst = append(dst, byte(shape), byte(len(key)))
		dst = list[0].appendHead(dst, len(list) > 1)
	} else {
		dst = append(dst, wide, 0)
		dst = list[0].appendHead(dst, len(list) > 1)
		dst = binary.AppendUvarint(dst, shape)
		dst = binary.AppendUvarint(dst, uint64(len(key)))
	}
	dst = append(dst, key...)
	dst = list[0].appendTail(dst)
	for i := 1; i < len(list); i++ {
		dst = list[i].appendHead(dst, i < len(list)-1)
		dst = list[i].appendTail(dst)
	}
	return dst
}

// held is one verdict of a key.
type held struct {
	class        *Class
	until, since event.Micros
	seq          int64
	count        event.Decimal
	cause        verdict.Cause
}

// read reads a verdict, and returns what follows it.
func (h *held) read(classes []*Class, head, tail []byte) (rest []byte, more bool) {
	first, b := readHead(head, tail)
	h.class, h.until = classes[first.class], first.until
	duration := int64(h.class.Duration)
	if first.flags&flagDuration != 0 {
		duration, b = varint(b)
	}
	h.since = h.until - event.Micros(duration)
	h.seq, b = varint(b)
	count, b := varint(b)
	if first.flags&flagWhole != 0 {
		count *= int64(event.One)
	}
	h.count = event.Decimal(count)
	h.cause = verdict.Cause{}
	if first.flags&flagCause != 0 {
		var partition int64
		partition, b = varint(b)
		h.cause.Partition = int32(partition)
		h.cause.Offset, b = varint(b)
		var n uint64
		n, b = uvarint(b)
		h.cause.ID, b = string(b[:n]), b[n:]
	}
	return b, first.flags&flagMore != 0
}

func (h *held) appendHead(dst []byte, more bool) []byte {
	head := min(h.class.number, wideClass)<<classShift | h.flags()
	if more {
		head |= flagMore
	}
	dst = binary.LittleEndian.AppendUint16(dst, uint16(head))
	return binary.LittleEndian.AppendUint64(dst, uint64(h.until))
}

func (h *held) appendTail(dst []byte) []byte {
	if h.class.number >= wideClass {
		dst = binary.AppendUvarint(dst, h.class.number)
	}
	flags := h.flags()
	if flags&flagDuration != 0 {
		dst = binary.AppendVarint(dst, int64(h.until-h.since))
	}
	dst = binary.AppendVarint(dst, h.seq)
	if flags&flagWhole != 0 {
		dst = binary.AppendVarint(dst, int64(h.count/event.One))
	} else {
		dst = binary.AppendVarint(dst, int64(h.count))
	}
	if flags&flagCause != 0 {
		dst = binary.AppendVarint(dst, int64(h.cause.Partition))
		dst = binary.AppendVarint(dst, h.cause.Offset)
		dst = binary.AppendUvarint(dst, uint64(len(h.cause.ID)))
		dst = append(dst, h.cause.ID...)
	}
	return dst
}

func (h *held) flags() (flags uint64) {
	if h.until-h.since != h.class.Duration {
		flags |= flagDuration
	}
	if h.cause != (verdict.Cause{}) {
		flags |= flagCause
	}
	if h.count%event.One == 0 {
		flags |= flagWhole
	}
	return flags
}

// full returns the verdict itself.
func (h *held) full(key []event.Dim) *verdict.Verdict {
	v := h.class.Verdict
	v.Key, v.Since, v.Until, v.Seq, v.Count, v.Cause = key, h.since, h.until, h.seq, h.count, h.cause
	if api := apiOf(key); api != "" {
		v.APIs = []string{api}
	}
	return &v
}

// heading is a verdict's head and until.
type heading struct {
	flags int
	class uint64
	until event.Micros
}

// readHead reads a verdict's head, and from its tail which class it has when the head has no room
// for it.
func readHead(head, tail []byte) (h heading, rest []byte) {
	n := uint64(binary.LittleEndian.Uint16(head))
	h = heading{flags: int(n & (1<<classShift - 1)), class: n >> classShift, until: event.Micros(binary.LittleEndian.Uint64(head[2:]))}
	if h.class == wideClass {
		h.class, tail = uvarint(tail)
	}
	return h, tail
}

// skipTail returns what follows a verdict whose tail this is, without the class.
func skipTail(flags int, b []byte) []byte {
	if flags&flagDuration != 0 {
		_, b = uvarint(b)
	}
	_, b = uvarint(b)
	_, b = uvarint(b)
	if flags&flagCause != 0 {
		var n uint64
		_, b = uvarint(b)
		_, b = uvarint(b)
		n, b = uvarint(b)
		b = b[n:]
	}
	return b
}

// varint is uvarint for numbers that may be negative.
func varint(b []byte) (int64, []byte) {
	u, b := uvarint(b)
	return int64(u>>1) ^ -int64(u&1), b
}

// uvarint returns the number that b begins with, and the rest. b is one of our own records.
func uvarint(b []byte) (uint64, []byte) {
	if b[0] < 0x80 {
		return uint64(b[0]), b[1:]
	}
	x, n := binary.Uvarint(b)
	return x, b[n:]
}
