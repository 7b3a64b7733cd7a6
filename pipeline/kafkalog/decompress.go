package kafkalog

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy/xerial"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ErrTooLarge is wrapped by the error for a batch that decompresses to more than Config.MaxBatch.
var ErrTooLarge = errors.New("kafkalog: a batch decompresses to more than is allowed")

var errCodec = errors.New("unknown codec")

// The codecs, as batches number them.
const (
	codecNone = iota
	codecGzip
	codecSnappy
	codecLZ4
	codecZstd
)

// unpacker decompresses the batches of one partition. Every batch gets memory of its own, for
// records may be kept for long: by dead letters on their way, and by verdicts.
type unpacker struct {
	most  int     // bytes that a batch may decompress to
	ratio float64 // of the last batch, decompressed to compressed; 0 when there was none
	zstd  *zstd.Decoder
}

// unpack returns src itself where it is not compressed.
func (u *unpacker) unpack(codec int, src []byte) (dst []byte, err error) {
	switch codec {
	case codecNone:
		return src, nil
	case codecGzip:
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(src)); err == nil {
			dst, err = u.readAll(z, u.room(src))
		}
	case codecSnappy:
		dst, err = u.snappy(src)
	case codecLZ4:
		var ok bool
		if dst, ok = unlz4(src, u.room(src), u.most); !ok {
			dst, err = u.readAll(lz4.NewReader(bytes.NewReader(src)), u.room(src))
		}
	case codecZstd:
		dst, err = u.unzstd(src)
	default:
		return nil, fmt.Errorf("%w %d", errCodec, codec)
	}
	if err != nil {
		return nil, fmt.Errorf("decompress a batch: %w", err)
	}
	dst = fitted(dst)
	if len(src) > 0 {
		u.ratio = float64(len(dst)) / float64(len(src))
	}
	return dst, nil
}

// fitted copies what was decompressed if a large part of its memory is not used: it may be held for
// long.
func fitted(dst []byte) []byte {
	if spare := cap(dst) - len(dst); spare > minSpare && spare > len(dst)/4 {
		return bytes.Clone(dst)
	}
	return dst
}

// minSpare is the unused memory that is not worth a copy.
const minSpare = 4 << 10

// The most that codecs make of a byte: a match of a deflate stream is 258 bytes in two bits, and more bytes
// of LZ4's length are 255 of a match; Snappy's copies are 64 bytes in three. zstd has no bound.
var expansion = [...]int{codecNone: 0, codecGzip: 1032, codecSnappy: 64, codecLZ4: 255}

// atMost is the most that a batch becomes, with the memory that its codec needs for that.
func (u *unpacker) atMost(codec int, src []byte) int {
	if codec < len(expansion) {
		return min(u.most, expansion[codec]*len(src))
	}
	var h zstd.Header
	if codec == codecZstd && h.Decode(src) == nil && h.WindowSize > uint64(u.most) {
		return u.most + int(min(h.WindowSize, widest)) // see wideZstd
	}
	return u.most
}

// Decompress is kgo's name for unpack.
func (u *unpacker) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	return u.unpack(int(codec), src)
}

// room guesses how much src decompresses to: a little more than the last batch did.
func (u *unpacker) room(src []byte) int {
	ratio := u.ratio
	if ratio == 0 {
		ratio = 4
	}
	return min(u.most, int(float64(len(src))*ratio*1.05)+512)
}

func (u *unpacker) tooLarge() error { return fmt.Errorf("%w: %d bytes", ErrTooLarge, u.most) }

// readAll reads to the end, and no more than one byte beyond what is allowed.
func (u *unpacker) readAll(r io.Reader, room int) ([]byte, error) {
	buf := bytes.NewBuffer(make([]byte, 0, room+bytes.MinRead))
	n, err := buf.ReadFrom(io.LimitReader(r, int64(u.most)+1))
	if err != nil {
		return nil, err
	}
	if n > int64(u.most) {
		return nil, u.tooLarge()
	}
	return buf.Bytes(), nil
}

// snappy knows Java's framing, too. Plain snappy says how long it is; frames don't together.
func (u *unpacker) snappy(src []byte) ([]byte, error) {
	for room := u.room(src); ; room = min(u.most, 2*room) {
		dst, err := xerial.DecodeCapped(make([]byte, 0, room), src)
		switch {
		case !errors.Is(err, xerial.ErrDstTooSmall):
			return dst, err
		case room >= u.most:
			return nil, u.tooLarge()
		}
	}
}

func (u *unpacker) unzstd(src []byte) (dst []byte, err error) {
	if u.zstd == nil {
		u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(uint64(u.most)))
		if err != nil {
			return nil, err
		}
	}
	dst, err = u.zstd.DecodeAll(src, make([]byte, 0, u.room(src)))
	switch {
	case errors.Is(err, zstd.ErrDecoderSizeExceeded):
		return nil, u.tooLarge()
	case errors.Is(err, zstd.ErrWindowSizeExceeded):
		return u.wideZstd(src)
	}
	return dst, err
}

// widest is the largest window of zstd's levels, which the highest asks for however short the batch
// is.
const widest = 128 << 20

// wide is held while a window has memory of its own: there is one of these at a time.
var wide sync.Mutex

// wideZstd decompresses what asks for a window larger than a batch may become. Few producers do.
func (u *unpacker) wideZstd(src []byte) ([]byte, error) {
	wide.Lock()
	defer wide.Unlock()
	z, err := zstd.NewReader(bytes.NewReader(src), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(widest))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return u.readAll(z, u.room(src))
}
