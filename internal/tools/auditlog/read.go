package auditlog

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

const (
	// Ahead bounds an instance's clock ahead of a broker's. Records are found by the brokers' time, and entries have
	// their own.
	Ahead = time.Minute
	// Late bounds an entry's delay.
	Late = 10 * time.Minute
)

// Scan reads a span of an audit topic, from From to before To of the filter, in the order of the entries' times.
type Scan struct {
	Filter Filter
	// Each gets what is wanted. It may keep it.
	Each func(*Record) error
	// Bad is told of records that cannot be read. Nil leaves them out.
	Bad func(partition int32, offset int64, err error)
	// Progress is told now and then how many offsets of how many have been read. Nil for nobody.
	Progress func(done, total int64)
}

// Run reads to the end. Next is that of a kafkalog.Merge of the topic: see Open.
func (s *Scan) Run(ctx context.Context, log *kafkalog.Merge) error {
	order := newInOrder(func(o *ordered) error {
		if !s.Filter.Wants(o.Entry) {
			return nil
		}
		return s.Each(&o.Record)
	})
	for n := 0; ; n++ {
		if s.Progress != nil && n%1000 == 0 {
			s.Progress(log.Done(), log.Total())
		}
		partition, rec, err := log.Next(ctx)
		if errors.Is(err, io.EOF) {
			return order.flush()
		}
		if u, ok := errors.AsType[*kafkalog.Unreadable](err); ok {
			s.bad(partition, u.First, err)
			continue
		}
		if err != nil {
			return err
		}
		e, err := parseRecord(rec)
		if err != nil {
			s.bad(partition, rec.Offset, err)
			continue
		}
		if err := order.add(&ordered{Record: Record{e, rec.Value, string(rec.Key), partition, rec.Offset}}, event.FromTime(rec.Time())); err != nil {
			return err
		}
	}
}

func (s *Scan) bad(partition int32, offset int64, err error) {
	if s.Bad != nil {
		s.Bad(partition, offset, err)
	}
}

// Open opens the part of an audit topic in which entries of a span lie. The zero To is now.
func Open(ctx context.Context, cfg kafkalog.Config, topic string, from, to time.Time) (*kafkalog.Merge, error) {
	if !from.IsZero() {
		from = from.Add(-Ahead)
	}
	if !to.IsZero() {
		to = to.Add(Late)
	}
	return kafkalog.OpenMerge(ctx, cfg, topic, from, to)
}

// parseRecord parses a record's value. An entry without a time has its record's.
func parseRecord(rec *kafkalog.Record) (*Entry, error) {
	e, err := Parse(rec.Value)
	if err == nil && e.At == event.NoTime {
		e.At = event.FromTime(rec.Time())
	}
	return e, err
}
