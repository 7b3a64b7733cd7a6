package dev

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/testdata"
)

// sample is the log that dev replays when no other is given. All its requests bear a time within
// the sixth minute of an hour: replayed as they are, they would come in a burst of a tenth of a
// second every six seconds, with nothing in between. So each of these minutes is stretched over its
// hour.
func sample() ([]event.Event, error) {
	events, _, err := readAll(bytes.NewReader(testdata.AccessLog), accesslog.Lines{})
	if err != nil {
		return nil, fmt.Errorf("read the sample log: %w", err)
	}
	for i := range events {
		e := &events[i]
		within := e.Time % event.Hour
		e.Time += (within-5*event.Minute)*60 - within
	}
	return events, nil
}

// readFile reads a whole file.
func readFile(path string, lines accesslog.Lines) (events []event.Event, skipped string, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, "", err
	}
	defer f.Close()
	if events, skipped, err = readAll(f, lines); err == nil && len(events) == 0 {
		err = errors.New("it has no valid event")
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", path, err)
	}
	return events, skipped, nil
}

// readAll reads events and sorts them by time: logs are often unsorted. skipped describes malformed
// lines.
func readAll(in io.Reader, lines accesslog.Lines) (events []event.Event, skipped string, err error) {
	if in, err = accesslog.Unpack(in); err != nil {
		return nil, "", err
	}
	warning := ""
	lines.Warn = func(text string) { warning = "; " + text }
	r := lines.Reader(in)
	for {
		e, _, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if _, ok := errors.AsType[*accesslog.LineError](err); ok {
			skipped = fmt.Sprintf("%d of its lines are malformed, the last: %v", r.Skipped(), err)
			continue
		}
		if err != nil {
			return nil, "", err
		}
		events = append(events, e.Clone())
	}
	skipped = strings.TrimPrefix(skipped+warning, "; ")
	slices.SortStableFunc(events, func(a, b event.Event) int { return cmp.Compare(a.Time, b.Time) })
	return events, skipped, nil
}

// readStream passes on events as they arrive, until the stream or ctx ends. A read that waits, as
// on a terminal, cannot be interrupted: its goroutine is left behind.
func readStream(ctx context.Context, in io.Reader, lines accesslog.Lines, do func(context.Context, event.Event) error, say func(string)) error {
	type line struct {
		event event.Event
		err   error
	}
	read := make(chan line)
	hand := func(l line) bool {
		select {
		case read <- l:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		defer close(read)
		unpacked, err := accesslog.Unpack(in)
		if err != nil {
			hand(line{err: err})
			return
		}
		r := lines.Reader(unpacked)
		for {
			e, _, err := r.Next()
			_, passed := errors.AsType[*accesslog.LineError](err)
			if !hand(line{e.Clone(), err}) || err != nil && !passed {
				return
			}
		}
	}()
	for {
		select {
		case l, ok := <-read:
			switch {
			case !ok || errors.Is(l.err, io.EOF):
				return nil
			case l.err != nil:
				say(fmt.Sprintf("standard input: %v", l.err))
			default:
				if err := do(ctx, l.event); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
