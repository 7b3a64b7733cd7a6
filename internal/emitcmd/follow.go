package emitcmd

import (
	"context"
	"errors"
	"io"
	"os"
	"time"

	"github.com/tallygate/tallygate/internal/retry"
)

// follower reads a growing file from its start, by name, as `tail -F` does. When another file has taken
// the name (rotation), it reads the old one to its end and continues with the new one. When the file
// got shorter (truncation), it starts over. It polls the file system: network file systems have no
// notifications.
type follower struct {
	ctx    context.Context
	path   string
	every  time.Duration
	file   *os.File
	offset int64
	last   byte // the last byte that was read
	moved  bool // another file had the name at the last look
}

func newFollower(ctx context.Context, path string, every time.Duration) (*follower, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	return &follower{ctx: ctx, path: path, every: every, file: f}, nil
}

func (f *follower) Close() error { return f.file.Close() }

// Read implements io.Reader. At the end of the file it waits for more. It returns io.EOF when ctx ends.
func (f *follower) Read(p []byte) (int, error) {
	for f.ctx.Err() == nil {
		n, err := f.file.Read(p)
		if n > 0 {
			f.offset += int64(n)
			f.last = p[n-1]
			return n, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		fresh, err := f.renew()
		if err != nil {
			return 0, err
		}
		if fresh && f.last != 0 && f.last != '\n' {
			// The old file's last line is incomplete: it must not run into the next one.
			f.last = '\n'
			p[0] = '\n'
			return 1, nil
		}
		if fresh {
			continue
		}
		retry.Sleep(f.ctx, f.every)
	}
	return 0, io.EOF
}

// renew is called at the end of the file. It reports whether to read from a new start.
func (f *follower) renew() (fresh bool, err error) {
	now, err := os.Stat(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil // between two files
	} else if err != nil {
		return false, err
	}
	ours, err := f.file.Stat()
	if err != nil {
		return false, err
	}
	switch {
	case !os.SameFile(now, ours) && !f.moved:
		f.moved = true // its writer may still have the old file open: read once more
		return false, nil
	case !os.SameFile(now, ours):
		return f.reopen()
	case now.Size() < f.offset:
		f.offset = 0
		_, err := f.file.Seek(0, io.SeekStart)
		return true, err
	}
	return false, nil
}

func (f *follower) reopen() (fresh bool, err error) {
	file, err := os.Open(f.path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	err = f.file.Close()
	f.file, f.offset, f.moved = file, 0, false
	return true, err
}
