package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"github.com/tallygate/tallygate/internal/accesslog"
	"github.com/tallygate/tallygate/internal/input"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Record is one event and where it came from. The event holds until the next one is read.
type Record struct {
	event.Event
	Broker event.Micros // NoTime: the event's own time is taken as it is
	Cause  verdict.Cause
}

// Source is what is replayed. Next gives io.EOF at the end, and a *BadRecord for what is no
// event: call it again.
type Source interface {
	Next(ctx context.Context) (*Record, error)
	Total() (size int64, bytes bool) // how much there is; 0 when unknown
	Done() int64                     // how much of it has been read; safe to call at any time
	Close() error
}

// BadRecord is something that is no event.
type BadRecord struct {
	Where string // FILE:LINE, or TOPIC/PARTITION@OFFSET
	Err   error
}

// Error says what is wrong where.
func (e *BadRecord) Error() string { return fmt.Sprintf("%s: %v", e.Where, e.Err) }

// Unwrap returns Err.
func (e *BadRecord) Unwrap() error { return e.Err }

// files reads files, one after the other.
type files struct {
	names  []string
	stdin  io.Reader
	format accesslog.Format
	total  int64

	before atomic.Int64 // bytes of the files that have been read whole
	in     atomic.Pointer[input.Input]
	reader *accesslog.Reader
	record Record
}

// Files is the events of files, in their order: access logs, or a JSON object a line; "-" is
// standard input. A name that is no file shows at once.
func Files(names []string, stdin io.Reader, format accesslog.Format) (Source, error) {
	f := &files{names: names, stdin: stdin, format: format}
	for _, name := range names {
		if name == "-" {
			continue
		}
		info, err := os.Stat(name)
		if err != nil {
			return nil, err
		}
		if info.IsDir() {
			return nil, fmt.Errorf("%s is a folder: name the files in it", name)
		}
		f.total += info.Size()
	}
	return f, nil
}

func (f *files) Total() (int64, bool) { return f.total, true }

func (f *files) Done() int64 {
	n := f.before.Load()
	if in := f.in.Load(); in != nil {
		n += in.Done()
	}
	return n
}

func (f *files) Next(ctx context.Context) (*Record, error) {
	for {
		if f.in.Load() == nil {
			if err := f.open(ctx); err != nil {
				return nil, err
			}
		}
		e, line, err := f.reader.Next()
		bad, isBad := errors.AsType[*accesslog.LineError](err)
		switch {
		case isBad:
			return nil, &BadRecord{Where: fmt.Sprintf("%s:%d", f.in.Load().Name, bad.Line), Err: bad.Err}
		case errors.Is(err, io.EOF):
			if err := f.Close(); err != nil {
				return nil, err
			}
			continue
		case err != nil:
			return nil, fmt.Errorf("read %s: %w", f.in.Load().Name, err)
		}
		broker := e.BrokerTime
		e.BrokerTime = event.NoTime
		f.record = Record{Event: e, Broker: broker, Cause: verdict.Cause{Offset: int64(line)}}
		return &f.record, nil
	}
}

// open goes on with the next file. Lines that are alike in two access logs are two events, as
// they are in one.
func (f *files) open(ctx context.Context) error {
	if len(f.names) == 0 || ctx.Err() != nil {
		return io.EOF
	}
	in, err := input.Open(ctx, f.names[0], f.stdin)
	if err != nil {
		return err
	}
	f.names = f.names[1:]
	f.in.Store(in)
	if f.reader == nil {
		f.reader = accesslog.NewReader(in, f.format)
	} else {
		f.reader.Reset(in)
	}
	return nil
}

func (f *files) Close() error {
	in := f.in.Swap(nil)
	if in == nil {
		return nil
	}
	f.before.Add(in.Done())
	return in.Close()
}
