package script

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"strconv"
)

// list is a list of numbers and texts as one argument: a script reads it in a third of the time that
// as many arguments take. It is in MessagePack, one value behind the other, or in JSON for a Redis that
// has none.
type list struct {
	json bool
	n    int
	buf  []byte
}

const (
	msgArray32 = 0xdd
	msgHead    = 5 // bytes of an array's head
	msgUint32  = 0xce
	msgInt64   = 0xd3
	msgFixStr  = 0xa0
	msgStr8    = 0xd9
	msgStr16   = 0xda
	msgStr32   = 0xdb
)

func newList(json bool, room int) *list {
	l := &list{json: json, buf: make([]byte, msgHead, msgHead+16*room)}
	if json {
		l.buf = l.buf[:0]
	}
	return l
}

func (l *list) add() {
	if l.n++; l.json {
		l.buf = append(l.buf, ',')
	}
}

func (l *list) number(n int64) {
	l.add()
	switch {
	case l.json:
		l.buf = strconv.AppendInt(l.buf, n, 10)
	case n >= 0 && n < 128:
		l.buf = append(l.buf, byte(n))
	case n >= 0 && n <= math.MaxUint32:
		l.buf = binary.BigEndian.AppendUint32(append(l.buf, msgUint32), uint32(n))
	default:
		l.buf = binary.BigEndian.AppendUint64(append(l.buf, msgInt64), uint64(n))
	}
}

func (l *list) flag(set bool) {
	if set {
		l.number(1)
		return
	}
	l.number(0)
}

func (l *list) text(s string) {
	l.add()
	switch {
	case l.json:
		text, err := json.Marshal(s)
		if err != nil {
			text = []byte(`""`) // strings always marshal
		}
		l.buf = append(l.buf, text...)
	case len(s) < 32:
		l.buf = append(append(l.buf, msgFixStr|byte(len(s))), s...)
	case len(s) < 1<<16:
		l.buf = append(binary.BigEndian.AppendUint16(append(l.buf, msgStr16), uint16(len(s))), s...)
	default: // a key of many long attributes
		l.buf = append(binary.BigEndian.AppendUint32(append(l.buf, msgStr32), uint32(len(s))), s...)
	}
}

// bytes is the list, to which nothing is added any more.
func (l *list) bytes() []byte {
	if l.json {
		l.buf[0] = '['
		return append(l.buf, ']')
	}
	if l.n <= mostResults {
		return l.buf[msgHead:]
	}
	l.buf[0] = msgArray32
	binary.BigEndian.PutUint32(l.buf[1:], uint32(l.n))
	return l.buf
}

// mostResults bounds the values that a script can take at once; more are one value.
const mostResults = 4000

// unpackText takes a text off what a script has packed.
func (r *replies) unpackText() string {
	kind, size := r.packed[0], 0
	switch r.packed = r.packed[1:]; {
	case kind&0xe0 == msgFixStr:
		size = int(kind & 31)
	case kind >= msgStr8 && kind <= msgStr32:
		size = int(r.unpackBits(1 << (kind - msgStr8)))
	default:
		r.bad = true
	}
	if size > len(r.packed) {
		r.bad, size = true, 0
	}
	s := r.packed[:size]
	r.packed = r.packed[size:]
	return s
}

// unpackBits takes that many bytes off.
func (r *replies) unpackBits(size int) (bits uint64) {
	if size > len(r.packed) {
		r.bad, r.packed = true, ""
		return 0
	}
	for _, b := range []byte(r.packed[:size]) {
		bits = bits<<8 | uint64(b)
	}
	r.packed = r.packed[size:]
	return bits
}
