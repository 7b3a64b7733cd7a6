package kafkalog

import (
	"encoding/binary"

	"github.com/pierrec/lz4/v4"
)

// LZ4 frames: https://github.com/lz4/lz4/blob/dev/doc/lz4_Frame_format.md
const (
	lz4Magic  = 0x184D2204
	lz4Stored = 1 << 31 // a block that is not compressed

	lz4Version          = 1 << 6
	lz4Independent      = 1 << 5
	lz4BlockChecksums   = 1 << 4
	lz4HasContentSize   = 1 << 3
	lz4ContentChecksum  = 1 << 2
	lz4FlagsAsInAllElse = 0b11000011 // version, reserved, dictionary
	lz4Window           = 64 << 10
)

// unlz4 decompresses the one frame that src is, straight into the buffer that it returns, of which
// there are up to most bytes. The usual reader would decompress into one of its own and copy. It
// looks at no checksum but the batch's. It reports false for what it does not know: other frames,
// several, and those that are broken.
func unlz4(src []byte, room, most int) (dst []byte, ok bool) {
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic || src[4]&lz4FlagsAsInAllElse != lz4Version {
		return nil, false
	}
	flags, blockMax := src[4], 1<<(8+2*int(src[5]>>4&7))
	if blockMax < 64<<10 {
		return nil, false
	}
	src = src[6:]
	if flags&lz4HasContentSize != 0 {
		if len(src) < 8 {
			return nil, false
		}
		src = src[8:]
	}
	if len(src) < 1 {
		return nil, false
	}
	src = src[1:] // the header's checksum
	dst = make([]byte, 0, max(min(room, most), 1))
	for {
		if len(src) < 4 {
			return nil, false
		}
		head := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if head == 0 {
			break
		}
		size := int(head &^ lz4Stored)
		if size > blockMax || size > len(src) {
			return nil, false
		}
		if dst, ok = lz4Block(dst, src[:size], head&lz4Stored != 0, flags&lz4Independent == 0, blockMax, most); !ok {
			return nil, false
		}
		src = src[size:]
		if flags&lz4BlockChecksums != 0 {
			if len(src) < 4 {
				return nil, false
			}
			src = src[4:]
		}
	}
	if flags&lz4ContentChecksum != 0 {
		if len(src) < 4 {
			return nil, false
		}
		src = src[4:]
	}
	return dst, len(src) == 0
}

// lz4Block appends a block's content to dst, which grows as needed.
func lz4Block(dst, block []byte, stored, linked bool, blockMax, most int) ([]byte, bool) {
	if stored {
		if len(dst)+len(block) > most {
			return nil, false
		}
		return append(dst, block...), true
	}
	var dict []byte
	if linked {
		dict = dst[max(0, len(dst)-lz4Window):]
	}
	for {
		n, err := lz4.UncompressBlockWithDict(block, dst[len(dst):min(cap(dst), len(dst)+blockMax)], dict)
		if err == nil {
			return dst[:len(dst)+n], true
		}
		if cap(dst)-len(dst) >= blockMax || cap(dst) >= most { // it is not room that it lacks
			return nil, false
		}
		grown := make([]byte, len(dst), min(most, max(2*cap(dst), lz4Window)))
		copy(grown, dst)
		dst = grown
		if linked {
			dict = dst[max(0, len(dst)-lz4Window):]
		}
	}
}
