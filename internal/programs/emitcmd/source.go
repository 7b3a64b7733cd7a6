package emitcmd

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
)

// headBytes is the number of a file's first bytes that tell it from others. A log's begin with a time, so that the
// first lines of two logs differ.
const headBytes = 1 << 10

// place is the position at which reading goes on: an offset in a file, which is known by more than its name. The name
// changes when a log is rotated, the inode when it is copied or packed, and its first bytes never.
type place struct {
	Device uint64 `json:"device"`
	Inode  uint64 `json:"inode"`
	Offset int64  `json:"offset"`
	Head   int    `json:"head_bytes"`
	Sum    string `json:"head_sha256,omitempty"` // of the first Head bytes
}

// source is a file that is read: as it is, or a packed one, whose offsets are those of its contents.
type source struct {
	name   string
	file   *os.File
	in     io.Reader
	packed bool
	info   os.FileInfo
	offset int64  // up to which it was read
	head   []byte // its first bytes, up to headBytes
	ended  error  // why a packed file is at its end
}

// openSource opens a file at its start.
func openSource(name string) (*source, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	s := &source{name: name, file: f, in: f}
	if s.info, err = f.Stat(); err == nil && s.info.IsDir() {
		err = &os.PathError{Op: "read", Path: name, Err: syscall.EISDIR}
	}
	if err == nil {
		err = s.begin()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return s, nil
}

// begin reads the first bytes. A file is packed only by its name, too: what a program writes into its
// log may look like anything.
func (s *source) begin() (err error) {
	if !strings.HasSuffix(s.name, ".gz") {
		return s.look()
	}
	s.packed = true
	unpacked, err := gzip.NewReader(s.file)
	if err != nil {
		return err
	}
	s.head = make([]byte, headBytes)
	n, err := io.ReadFull(unpacked, s.head)
	if s.head = s.head[:n]; err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return err
	}
	s.in = io.MultiReader(bytes.NewReader(s.head), unpacked)
	return nil
}

func (s *source) Close() error { return s.file.Close() }

var errCut = errors.New("the file was truncated")

// look reads the first bytes anew, and returns errCut if they are others than before, or if the file is
// shorter than what was read of it.
func (s *source) look() error {
	if s.packed {
		return nil
	}
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	var is [headBytes]byte
	n, err := s.file.ReadAt(is[:], 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	if info.Size() < s.offset || !bytes.HasPrefix(is[:n], s.head) {
		return errCut
	}
	if n > len(s.head) {
		s.head = bytes.Clone(is[:n])
	}
	return nil
}

// Read reads on. A packed file ends where it is damaged.
func (s *source) Read(p []byte) (int, error) {
	n, err := s.in.Read(p)
	s.offset += int64(n)
	if s.packed && err != nil {
		if !errors.Is(err, io.EOF) {
			s.ended = err
		}
		err = io.EOF
	}
	return n, err
}

// skip goes on at an offset.
func (s *source) skip(to int64) (err error) {
	if s.packed {
		_, err = io.CopyN(io.Discard, s.in, to)
	} else {
		_, err = s.file.Seek(to, io.SeekStart)
	}
	s.offset = to
	return err
}

// place returns an offset of the file as a place.
func (s *source) place(offset int64) place {
	device, inode := identity(s.info)
	p := place{Device: device, Inode: inode, Offset: offset, Head: len(s.head)}
	if len(s.head) > 0 {
		p.Sum = sum(s.head)
	}
	return p
}

// holds tells whether the file has the contents up to a place.
func (s *source) holds(p place) bool {
	if p.Head > len(s.head) || p.Head > 0 && sum(s.head[:p.Head]) != p.Sum {
		return false
	}
	return s.packed || s.info.Size() >= p.Offset
}

// is tells whether it is the file of a place, whatever its name is now.
func (s *source) is(p place) bool {
	device, inode := identity(s.info)
	return !s.packed && device == p.Device && inode == p.Inode
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}
