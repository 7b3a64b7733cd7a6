// Package wire reads and appends the integers and byte strings that the project's binary forms are made of: varints as
// encoding/binary has them, and byte strings with their length in front.
package wire

import "encoding/binary"

// Reader takes varints and byte strings off Buf. After the first one that is missing Bad is set, and all further ones are
// zero: a caller looks at Bad once, at the end.
type Reader struct {
	Buf []byte
	Bad bool
}

// Uvarint takes an unsigned integer.
func (r *Reader) Uvarint() uint64 {
	v, n := binary.Uvarint(r.Buf)
	return v * r.took(n)
}

// Varint takes a signed integer.
func (r *Reader) Varint() int64 {
	v, n := binary.Varint(r.Buf)
	return v * int64(r.took(n))
}

func (r *Reader) took(n int) uint64 {
	if n <= 0 {
		r.Bad, r.Buf = true, nil
		return 0
	}
	r.Buf = r.Buf[n:]
	return 1
}

// Bytes takes a byte string; it aliases Buf.
func (r *Reader) Bytes() []byte {
	n := r.Uvarint()
	if n > uint64(len(r.Buf)) {
		r.Bad, r.Buf = true, nil
		return nil
	}
	b := r.Buf[:n:n]
	r.Buf = r.Buf[n:]
	return b
}

// AppendBytes appends a byte string, as Reader.Bytes takes it.
func AppendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}
