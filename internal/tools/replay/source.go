// Package replay is `tallygate replay`: it feeds past events, from files or a topic, to an engine in memory,
// and tells who would have been blocked.
package replay

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync/atomic"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/verdict"
)

// Record is one event, and where it came from. It is valid until the next one is read.
type Record struct {
	event.Event
	Broker event.Micros // NoTime: unknown; the event's own time is used
	Cause  verdict.Cause
}

// Source yields the records of a replay. Next returns io.EOF at the end, and a *BadRecord for a malformed event: then
// call it again.
type Source interface {
	Next(ctx context.Context) (*Record, error)
	Where() string                   // where the last event is: FILE:LINE, or TOPIC/PARTITION@OFFSET
	Total() (size int64, bytes bool) // 0 if unknown
	Done() int64                     // how much of it has been read; safe for concurrent use
	Close() error
}

// BadRecord is a malformed event.
type BadRecord struct {
	Where string // FILE:LINE, or TOPIC/PARTITION@OFFSET
	Err   error
}

// Error describes the mistake and its place.
func (e *BadRecord) Error() string { return fmt.Sprintf("%s: %v", e.Where, e.Err) }

// Unwrap returns Err.
func (e *BadRecord) Unwrap() error { return e.Err }

// files reads files, one after another.
type files struct {
	names []string
	stdin io.Reader
	lines accesslog.Lines
	total int64

	before atomic.Int64 // bytes of the files that were read to their end
	in     atomic.Pointer[input.Input]
	reader *accesslog.Reader
	record Record
}

// Open reads the inputs that a command names, which CheckInputs has passed: a topic from its start to its current end,
// or files.
func Open(ctx context.Context, k *kafkaconn.Kafka, names []string, stdin io.Reader, lines accesslog.Lines) (Source, error) {
	if topic, ok := strings.CutPrefix(names[0], "kafka:"); ok {
		return Topic(ctx, k, topic)
	}
	return Files(names, stdin, lines)
}

// Files reads the events of files in their order: access logs, or one JSON object per line. "-" is
// standard input. A file that does not exist is an error at once.
func Files(names []string, stdin io.Reader, lines accesslog.Lines) (Source, error) {
	f := &files{names: names, stdin: stdin, lines: lines}
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

func (f *files) Where() string { return fmt.Sprintf("%s:%d", f.in.Load().Name, f.record.Cause.Offset) }

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

// open opens the next file. Identical lines of two access logs are two events, as they are in one
// log.
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
		f.reader = f.lines.Reader(in)
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
