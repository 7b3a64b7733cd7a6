package auditlog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
)

// Older reads entries from before those in memory.
type Older struct {
	Found
	Back time.Time // how far back it has read: everything from then on that is wanted is found, up to the limit
	Done bool      // Back is where the filter begins
}

const (
	// firstWindow is the time that is read at first; then twice as much, and so on.
	firstWindow = time.Hour
	// farthest bounds a read without a bound.
	farthest = 400 * 24 * time.Hour
)

// Older reads entries from the topic, the newest first: windows of time, each before the other, until it has the
// limit, or ctx ends; then Next says where to go on. It begins at the filter's To, or, without one, where memory
// begins. after is the Next of an answer before.
func (f *Follower) Older(ctx context.Context, want Filter, after string, limit int) (Older, error) {
	end, err := parseCursor(after)
	if err != nil {
		return Older{}, err
	}
	to := want.To
	if from := f.Health().From; to.IsZero() || !from.IsZero() && from.Before(to) {
		to = from
	}
	if to.IsZero() {
		to = time.Now()
	}
	if end != nil {
		to = end.At.Time().Add(time.Microsecond)
	}
	if want.From.IsZero() {
		want.From = to.Add(-farthest)
	}
	out := Older{Back: to}
	for window := firstWindow; len(out.Entries) <= limit && out.Back.After(want.From); window *= 2 {
		from := maxTime(want.From, out.Back.Add(-window))
		part, err := f.window(ctx, want, end, from, out.Back)
		if err != nil {
			if errors.Is(ctx.Err(), context.DeadlineExceeded) {
				break // what was found so far is an answer
			}
			return out, err
		}
		out.Entries, out.Back = append(out.Entries, part...), from
	}
	if out.Done = !out.Back.After(want.From); len(out.Entries) > limit {
		out.Entries, out.Done = out.Entries[:limit], false
		out.Back = out.Entries[limit-1].At.Time()
		out.Next = cursor(out.Entries[limit-1])
	} else if !out.Done {
		out.Next = cursor(&Record{Entry: &Entry{At: event.FromTime(out.Back)}, Partition: -1, Offset: -1})
	}
	return out, nil
}

// window reads one span, the newest entries first: those before end, if it is given.
func (f *Follower) window(ctx context.Context, want Filter, end *Record, from, to time.Time) (list []*Record, err error) {
	log, err := Open(ctx, f.cfg.Kafka, f.cfg.Topic, from, to)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	want.From, want.To = from, to
	s := Scan{Filter: want, Each: func(r *Record) error {
		if end == nil || compare(r, end) < 0 {
			one := *r
			list = append(list, &one)
		}
		return nil
	}}
	if err := s.Run(ctx, log); err != nil {
		return nil, err
	}
	slices.Reverse(list)
	return list, nil
}
