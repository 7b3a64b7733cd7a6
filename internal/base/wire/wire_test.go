package wire

import (
	"encoding/binary"
	"testing"
)

func TestWhatWasAppendedIsRead(t *testing.T) {
	buf := AppendBytes(binary.AppendVarint(binary.AppendUvarint(nil, 1<<40), -7), []byte("abc"))
	r := Reader{Buf: append(buf, 'x')}
	if u, v, b := r.Uvarint(), r.Varint(), r.Bytes(); u != 1<<40 || v != -7 || string(b) != "abc" || r.Bad || string(r.Buf) != "x" {
		t.Errorf("%d %d %q, left %q, bad %v", u, v, b, r.Buf, r.Bad)
	}
	for cut := range len(buf) {
		r := Reader{Buf: buf[:cut]}
		r.Uvarint()
		r.Varint()
		if b := r.Bytes(); !r.Bad || b != nil {
			t.Errorf("cut to %d bytes: read %q, bad %v", cut, b, r.Bad)
		}
	}
}

func TestALengthBeyondTheEndIsBad(t *testing.T) {
	r := Reader{Buf: binary.AppendUvarint(nil, 1<<63)}
	if b := r.Bytes(); b != nil || !r.Bad || r.Uvarint() != 0 {
		t.Errorf("%q, bad %v", b, r.Bad)
	}
}
