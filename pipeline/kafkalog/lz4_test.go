package kafkalog

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/pierrec/lz4/v4"
)

// lz4Frames is raw in frames with all the options that producers use.
func lz4Frames(t *testing.T, raw []byte) (frames [][]byte) {
	t.Helper()
	for _, options := range [][]lz4.Option{
		nil,
		{lz4.BlockSizeOption(lz4.Block64Kb)},
		{lz4.BlockSizeOption(lz4.Block64Kb), lz4.BlockChecksumOption(true)},
		{lz4.BlockSizeOption(lz4.Block256Kb), lz4.ChecksumOption(false)},
		{lz4.SizeOption(uint64(len(raw)))},
	} {
		var out bytes.Buffer
		w := lz4.NewWriter(&out)
		if err := w.Apply(options...); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(raw); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		frames = append(frames, out.Bytes())
	}
	return append(frames, linkedFrame(raw))
}

// linkedFrame is a frame whose blocks refer to the ones before, as no Go writer makes them: each is
// one match, of bytes that lie in the block before, and literals where there is no such match.
func linkedFrame(raw []byte) []byte {
	const block = 64 << 10
	out := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	out = append(out, lz4Version, 4<<4, 0) // 64 KiB, linked; the checksum is not looked at
	for at := 0; at < len(raw); at += block {
		piece := raw[at:min(at+block, len(raw))]
		packed := linkedBlock(raw[:at], piece)
		size := uint32(len(packed))
		if packed == nil {
			packed, size = piece, uint32(len(piece))|lz4Stored
		}
		out = append(binary.LittleEndian.AppendUint32(out, size), packed...)
	}
	return append(out, 0, 0, 0, 0)
}

// linkedBlock is a match of all but the last 12 bytes, which are literals; nil if nothing matches.
func linkedBlock(before, piece []byte) []byte {
	const literals = 12
	n := len(piece) - literals
	if n < 20 {
		return nil
	}
	for distance := 1; distance <= min(1000, len(before)); distance++ {
		from := before[len(before)-distance:]
		same := true
		for i := range n {
			b := piece[max(0, i-distance)]
			if i < distance {
				b = from[i]
			}
			if same = b == piece[i]; !same {
				break
			}
		}
		if !same {
			continue
		}
		out := append([]byte{0x0f}, byte(distance), byte(distance>>8))
		rest := n - 4 - 15
		for ; rest >= 255; rest -= 255 {
			out = append(out, 255)
		}
		out = append(out, byte(rest), literals<<4)
		return append(out, piece[n:]...)
	}
	return nil
}

// A block may refer to the first byte of the one before, also where both are compressed, and where
// there was no room for the second at first.
func TestLinkedBlocksReachBackToTheFirstByte(t *testing.T) {
	first := make([]byte, 250)
	for i := range first {
		first[i] = byte(i)
	}
	literals := append([]byte{0xf0, byte(len(first) - 15)}, first...) // a block of nothing else
	again := linkedBlock(first, first)                                // the same 250 bytes, the last 12 as literals
	frame := binary.LittleEndian.AppendUint32(nil, lz4Magic)
	frame = append(frame, lz4Version, 4<<4, 0)
	for _, block := range [][]byte{literals, again} {
		frame = append(binary.LittleEndian.AppendUint32(frame, uint32(len(block))), block...)
	}
	frame = append(frame, 0, 0, 0, 0)
	for _, room := range []int{1, 300, 1000} {
		if got, ok := unlz4(frame, room, 1000); !ok || !bytes.Equal(got, append(first, first...)) {
			t.Errorf("room for %d: %d bytes of 500, %t", room, len(got), ok)
		}
	}
}

// What is none of the frames that are known is left to the usual reader.
func TestOtherLZ4FramesAreRefused(t *testing.T) {
	raw := []byte("one, two, three")
	for name, change := range map[string]func(frame []byte){
		"another magic number": func(frame []byte) { frame[0] ^= 1 },
		"another version":      func(frame []byte) { frame[4] ^= 0b11000000 },
		"a dictionary":         func(frame []byte) { frame[4] |= 1 },
		"a reserved flag":      func(frame []byte) { frame[4] |= 2 },
		"a block size of none": func(frame []byte) { frame[5] = 3 << 4 },
	} {
		frame := linkedFrame(raw)
		if got, ok := unlz4(frame, 100, 100); !ok || !bytes.Equal(got, raw) {
			t.Fatalf("the frame itself: %q, %t", got, ok)
		}
		change(frame)
		if got, ok := unlz4(frame, 100, 100); ok {
			t.Errorf("%s: %q", name, got)
		}
	}
}
