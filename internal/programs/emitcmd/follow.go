package emitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/tallygate/tallygate/internal/base/retry"
)

// follower reads a growing log by name, as `tail -F` does, and each line once: through rotation, also
// several ones while it did not look, through copies and truncation, and restarts in between. It polls
// the file system: network file systems have no notifications.
//
// A position is how many bytes were read since the state began. Within one file it follows from the
// offset. Whenever reading goes on in another file, moved is called before its first byte is read: when
// that has stored where it is, a position means the same line after any restart.
type follower struct {
	ctx   context.Context
	path  string
	every time.Duration
	idle  func() error                     // called whenever all there is was read
	moved func() error                     // see above
	say   func(format string, args ...any) // tells the user what may be lost

	cur      *source // nil: none yet
	position int64   // up to which it has read
	start    int64   // the position of cur's offset from
	from     int64
	last     byte // the last byte that was read
	quiet    int  // looks at the end of cur since another file comes after it
	next     os.FileInfo
	refused  string // a path that may not be read, as told
}

// grace is the number of looks in a row at which a file has to be silent, after it lost its name, before reading goes
// on in the next one: servers write into the old one until they reopen their log.
const grace = 4

// errStopped says that the context has ended. The last line may be incomplete: the rest may follow, so
// it is not the end of the input.
var errStopped = errors.New("stopped")

// newFollower opens the file at its start, or at the start of its last line.
func newFollower(ctx context.Context, path string, atEnd bool) (*follower, error) {
	s, err := openSource(path)
	if err != nil {
		return nil, err
	}
	f := &follower{ctx: ctx, path: path, cur: s}
	if atEnd {
		err = s.toLastLine()
	}
	f.settle(s, 0)
	return f, err
}

// resumeFollower goes on at a place that was stored at a time. What is lost, because it is in no file
// any more, is told.
func resumeFollower(ctx context.Context, path string, at place, position int64, stored time.Time, say func(string, ...any)) (*follower, error) {
	f := &follower{ctx: ctx, path: path, say: say}
	s, err := openSource(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if s != nil && s.is(at) && s.holds(at) {
		f.settle(s, position)
		f.from = at.Offset
		return f, s.skip(at.Offset)
	}
	all, err := rotatedOf(path)
	if err != nil {
		return nil, err
	}
	was := find(all, at, infoOf(s))
	if was == nil {
		say("%s: the file that was read before is gone; what was not read of it is lost", path)
		for _, r := range changedSince(all, stored) {
			if was, err = openSource(r.path); err == nil {
				break
			}
		}
	}
	if was != nil {
		if s != nil {
			_ = s.Close()
		}
		s = was
	}
	f.settle(s, position)
	return f, nil
}

func infoOf(s *source) os.FileInfo {
	if s == nil {
		return nil
	}
	return s.info
}

// settle goes on with a file, at its offset.
func (f *follower) settle(s *source, position int64) {
	f.cur, f.position, f.start, f.last, f.quiet = s, position, position, '\n', 0
	if f.from = 0; s != nil {
		f.from = s.offset
	}
}

// Close closes the file.
func (f *follower) Close() error {
	if f.cur == nil {
		return nil
	}
	return f.cur.Close()
}

// place returns the place of a position in the file that is read now. ok is false if there is none yet.
func (f *follower) place(position int64) (p place, ok bool) {
	if f.cur == nil {
		return place{}, false
	}
	return f.cur.place(f.from + position - f.start), true
}

// Read implements io.Reader. At the end of the file it waits for more. It returns errStopped when its
// context ends.
func (f *follower) Read(p []byte) (int, error) {
	for f.ctx.Err() == nil {
		n, waits, err := f.step(p)
		if n > 0 || err != nil {
			return n, err
		}
		if waits {
			if err := f.idle(); err != nil {
				return 0, err
			}
			retry.Sleep(f.ctx, f.every)
		}
	}
	return 0, errStopped
}

// step reads what is there, or looks once where to go on. It reports whether to wait before the next.
func (f *follower) step(p []byte) (n int, waits bool, err error) {
	if f.cur != nil {
		if err := f.cur.look(); errors.Is(err, errCut) {
			return f.cutOff(p)
		} else if err != nil {
			return 0, false, err
		}
		n, err := f.cur.Read(p)
		if n > 0 {
			f.position += int64(n)
			f.last, f.quiet = p[n-1], 0
			return n, false, nil
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, false, err
		}
	}
	next, err := f.following()
	if next == nil || err != nil {
		f.quiet, f.next = 0, nil
		return 0, true, err
	}
	if f.next == nil || !os.SameFile(f.next, next.info) {
		f.quiet, f.next = 0, next.info
	}
	if f.quiet++; f.quiet < grace && f.mayGrow(next) {
		_ = next.Close()
		return 0, true, nil
	}
	return f.goOn(p, next)
}

// mayGrow tells whether a server may still write into cur, after it lost its name: until it has reopened
// its log, or for a moment if it has.
func (f *follower) mayGrow(next *source) bool {
	if f.cur == nil || f.cur.packed || next.name != f.path {
		return false
	}
	info, err := f.cur.file.Stat()
	return err != nil || time.Since(info.ModTime()) < 2*grace*lookEvery
}

// cutOff goes on after cur was truncated: with the rest of what it was, if it was copied before, as
// logrotate's copytruncate does.
func (f *follower) cutOff(p []byte) (n int, waits bool, err error) {
	all, err := rotatedOf(f.path)
	if err != nil {
		return 0, false, err
	}
	next := find(all, f.cur.place(f.cur.offset), f.cur.info)
	if next != nil { // perhaps in the middle of a line
		last := f.last
		n, waits, err = f.use(next)
		f.last = last
		return n, waits, err
	}
	f.say("%s: the file was truncated; what was not read of it is lost", f.path)
	if next, err = openSource(f.cur.name); errors.Is(err, fs.ErrNotExist) {
		err = nil // and renamed
	}
	if err != nil {
		return 0, false, err
	}
	return f.goOn(p, next)
}

// following opens the file that comes after cur: nil if there is none yet, or if cur has the name. An
// empty one is none, so that what is still written into cur is not missed.
func (f *follower) following() (*source, error) {
	now, err := os.Stat(f.path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if f.cur == nil {
		return f.opened(f.path, now)
	}
	if now != nil && !f.cur.packed && os.SameFile(now, f.cur.info) {
		return nil, nil
	}
	all, err := rotatedOf(f.path)
	if err != nil {
		return nil, err
	}
	for _, r := range after(all, f.cur) {
		s, err := f.opened(r.path, r.info)
		if err != nil {
			if f.refused != r.path {
				f.refused = r.path
				f.say("%v; it is left out", err)
			}
			continue
		}
		if s != nil && len(s.head) == 0 { // its first bytes would not tell it from others
			_ = s.Close()
			continue
		}
		return s, nil
	}
	if now == nil || now.Size() == 0 {
		return nil, nil
	}
	return f.opened(f.path, now)
}

// opened opens a file, unless another one has the name by now. One that may not be read yet, because
// its rights are set after it is made, is tried again.
func (f *follower) opened(path string, info os.FileInfo) (*source, error) {
	if info == nil {
		return nil, nil
	}
	s, err := openSource(path)
	if errors.Is(err, fs.ErrPermission) {
		if f.refused != path {
			f.refused = path
			f.say("waiting for the right to read: %v", err)
		}
		return nil, nil
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if !os.SameFile(s.info, info) {
		return nil, s.Close()
	}
	return s, err
}

// goOn continues with another file, or with cur from its start. The last line of what was read may be
// incomplete: it must not run into the next one.
func (f *follower) goOn(p []byte, next *source) (n int, waits bool, err error) {
	if f.last != '\n' {
		if next != nil {
			_ = next.Close()
		}
		p[0], f.last = '\n', '\n'
		f.position++
		f.start++
		return 1, false, nil
	}
	return f.use(next)
}

// use makes another file the one that is read.
func (f *follower) use(next *source) (n int, waits bool, err error) {
	if f.cur != nil {
		if f.cur.ended != nil {
			f.say("%s: %v; what was not read of it is lost", f.cur.name, f.cur.ended)
		}
		if err := f.cur.Close(); err != nil {
			return 0, false, fmt.Errorf("close %s: %w", f.cur.name, err)
		}
	}
	f.settle(next, f.position)
	f.next = nil
	if next == nil {
		return 0, true, nil
	}
	return 0, false, f.moved()
}

// toLastLine skips all complete lines. The last one may be about to be written.
func (s *source) toLastLine() error {
	info, err := s.file.Stat()
	if err != nil {
		return err
	}
	var buf [4 << 10]byte
	for end := info.Size(); end > 0; {
		at := max(0, end-int64(len(buf)))
		n, err := s.file.ReadAt(buf[:end-at], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		for i := n - 1; i >= 0; i-- {
			if buf[i] == '\n' {
				return s.skip(at + int64(i) + 1)
			}
		}
		end = at
	}
	return s.skip(0)
}
