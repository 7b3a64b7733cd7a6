// Package topiclog reads what is committed of a topic from one moment to another, once: its partitions
// merged by their
// records' times, each in the log's order. Commands look at topics with it; nothing is committed.
package topiclog

import (
	"cmp"
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/internal/ops"
)

// Config says what to read. Kafka and Topic are required.
type Config struct {
	Kafka *ops.Kafka
	Topic string

	// From is the time of the first record wanted; the zero time is the log's start. Brokers
	// look it up, so that nothing before it is read.
	From time.Time

	// To is the time before which records are wanted; the zero time is where the partitions
	// end when Open is called. Where a topic has its producers' timestamps, whose order is not the log's, each
	// partition ends at its first record of To or later.
	To time.Time

	// ClientID is what the brokers' logs call this; "" is "tallygate".
	ClientID string
}

func (c *Config) validate() error {
	var errs []error
	if c.Kafka == nil {
		errs = append(errs, errors.New("no Kafka"))
	}
	if c.Topic == "" {
		errs = append(errs, errors.New("no Topic"))
	}
	return errors.Join(errs...)
}

// Log is a topic that is being read. All but Done is for one goroutine.
type Log struct {
	name      string
	transport *kafka.Transport
	client    *kafka.Client
	reader    sarama.Client // of the records
	lanes     lanes
	opened    bool
	total     int64
	done      atomic.Int64
}

// Open finds out what there is to read.
func Open(ctx context.Context, cfg Config) (*Log, error) {
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("topiclog: config: %w", err)
	}
	transport, err := cfg.Kafka.Transport()
	if err != nil {
		return nil, err
	}
	if cfg.ClientID != "" {
		transport.ClientID = cfg.ClientID
	}
	l := &Log{
		name: cfg.Topic, transport: transport,
		client: &kafka.Client{Addr: kafka.TCP(cfg.Kafka.Brokers...), Transport: transport, Timeout: 10 * time.Second},
	}
	spans, err := l.spans(ctx, cfg.From, cfg.To)
	if err == nil {
		l.reader, err = newReader(cfg)
	}
	if err != nil {
		transport.CloseIdleConnections()
		return nil, err
	}
	for _, s := range spans {
		if s.from < s.to {
			l.total += s.to - s.from
			l.lanes = append(l.lanes, &lane{log: l, partition: s.partition, next: s.from, counted: s.from, end: s.to})
		}
	}
	return l, nil
}

// Total is how many offsets there are to read. Of a compacted topic that is more than its records.
func (l *Log) Total() int64 { return l.total }

// Done is how many of them have been passed; safe to call at any time.
func (l *Log) Done() int64 { return l.done.Load() }

// Close ends what is being fetched.
func (l *Log) Close() error {
	for _, p := range l.lanes {
		p.stop()
	}
	l.lanes = nil
	l.transport.CloseIdleConnections()
	if l.reader.Closed() {
		return nil
	}
	return l.reader.Close()
}

func newReader(cfg Config) (sarama.Client, error) {
	s := sarama.NewConfig()
	s.Version = sarama.V2_8_0_0
	s.ClientID = cmp.Or(cfg.ClientID, "tallygate")
	s.Net.DialTimeout, s.Net.WriteTimeout, s.Net.ReadTimeout = 10*time.Second, 10*time.Second, 15*time.Second
	cfg.Kafka.Sarama(s)
	c, err := sarama.NewClient(cfg.Kafka.Brokers, s)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", cfg.Kafka.Brokers, err)
	}
	return c, nil
}

// Next returns the next record, or io.EOF behind the last one. Kafka's own records, which end transactions, are left out. The
// record stays as it is. All calls take the same ctx: what is fetched ahead ends with it.
func (l *Log) Next(ctx context.Context) (*kafka.Message, error) {
	if err := l.start(ctx); err != nil {
		return nil, err
	}
	if len(l.lanes) == 0 {
		return nil, io.EOF
	}
	first := l.lanes[0]
	m := first.head
	there, err := first.advance(ctx)
	if err != nil {
		return nil, err
	}
	if there {
		heap.Fix(&l.lanes, 0)
	} else {
		heap.Pop(&l.lanes)
	}
	return m, nil
}

// start reads each partition's first record.
func (l *Log) start(ctx context.Context) error {
	if l.opened {
		return nil
	}
	l.opened = true
	all := l.lanes
	l.lanes = l.lanes[:0:0]
	for _, p := range all {
		p.fetchAhead(ctx) // all of them at once
	}
	for i, p := range all {
		there, err := p.advance(ctx)
		if err != nil {
			l.lanes = append(l.lanes, all[i:]...)
			return err
		}
		if there {
			l.lanes = append(l.lanes, p)
		}
	}
	heap.Init(&l.lanes)
	return nil
}

// lanes is a heap: the partition with the earliest record is first.
type lanes []*lane

func (l lanes) Len() int { return len(l) }
func (l lanes) Less(i, j int) bool {
	a, b := l[i].head, l[j].head
	if !a.Time.Equal(b.Time) {
		return a.Time.Before(b.Time)
	}
	return a.Partition < b.Partition
}
func (l lanes) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *lanes) Push(x any)   { *l = append(*l, x.(*lane)) }
func (l *lanes) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}
