package kafkalog

import (
	"context"
)

// Scan reads a partition from one offset up to another, which is not read, and calls each with
// every record, in order. A record is in use until each returns. It waits for records that are not
// there yet. An error is each's, an *Unreadable, ctx's, or one that reading again does not cure.
func (f *Fetcher) Scan(ctx context.Context, topic string, id [16]byte, partition int32, from, to int64, each func(*Record) error) error {
	if from >= to {
		return nil
	}
	r := f.Read(topic, id, partition, from)
	defer r.Close()
	for place := from; place < to; {
		c, err := r.Next(ctx)
		if err != nil {
			return err
		}
		if err := c.scan(to, each); err != nil {
			return err
		}
		place = c.Place()
	}
	return nil
}

// scan calls each with the chunk's records below an offset.
func (c *Chunk) scan(to int64, each func(*Record) error) error {
	var rec Record
	for {
		b, more, err := c.Next()
		if !more || err != nil {
			return err
		}
		for {
			ok, err := b.Next(&rec)
			if err != nil {
				return err
			}
			if !ok {
				break
			}
			if rec.Offset >= to {
				continue
			}
			if err := each(&rec); err != nil {
				return err
			}
		}
	}
}

// Open is New and Start.
func Open(cfg Config) (f *Fetcher, stop func(), err error) {
	if f, err = New(cfg); err == nil {
		stop, err = f.Start()
	}
	return f, stop, err
}
