package accesslog

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
)

// Unpack returns what r holds: unpacked if it begins as gzip does, whatever its name.
func Unpack(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(r, 64<<10)
	magic, err := buffered.Peek(2)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if !bytes.Equal(magic, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}
