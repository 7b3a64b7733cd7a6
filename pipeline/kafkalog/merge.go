package kafkalog

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// silence is the time for which Kafka may not answer while there are records.
const silence = 30 * time.Second

// Merge reads a topic from one moment to another, once: its partitions merged by their records'
// times, each in the log's order. All but Done is for one goroutine.
type Merge struct {
	fetcher *Fetcher
	topic   string
	coming  []*mergePart  // whose first record is to be read
	parts   earliestFirst // that have a record
	given   *mergePart    // of parts: Next returned its record last
	total   int64
	done    atomic.Int64
	stop    func() // of the Fetcher, if it is only for this
}

// OpenMerge is Open and Fetcher.Merge; Close ends both.
func OpenMerge(ctx context.Context, cfg Config, topic string, from, to time.Time) (*Merge, error) {
	f, stop, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	m, err := f.Merge(ctx, topic, from, to)
	if err != nil {
		stop()
		return nil, err
	}
	m.stop = stop
	return m, nil
}

// Merge begins with the first record at a time or later, the zero time being the log's start;
// brokers look it up. It ends before the first record at another time, the zero time being where
// the partitions end now. Where records have their producers' times, whose order is not the log's,
// each partition ends at its first record of that time or later.
func (f *Fetcher) Merge(ctx context.Context, topic string, from, to time.Time) (*Merge, error) {
	partitions, err := f.Partitions(ctx, topic)
	if err != nil {
		return nil, err
	}
	// Each in a request of its own: a partition may be in a request once.
	starts, err := f.offsets(ctx, topic, partitions, atStart)
	if err != nil {
		return nil, err
	}
	ends, err := f.offsets(ctx, topic, partitions, atEnd)
	if err != nil {
		return nil, err
	}
	until := maps.Clone(ends)
	for _, bound := range []struct {
		at  time.Time
		set map[int32]int64
	}{{from, starts}, {to, until}} {
		if bound.at.IsZero() {
			continue
		}
		found, err := f.offsets(ctx, topic, partitions, max(bound.at.UnixMilli(), 0))
		if err != nil {
			return nil, err
		}
		for id, offset := range found {
			if offset < 0 { // no record is that late
				offset = ends[id]
			}
			bound.set[id] = min(offset, ends[id])
		}
	}
	m := &Merge{fetcher: f, topic: topic}
	for id, start := range starts {
		if end := until[id]; start < end {
			m.total += end - start
			m.coming = append(m.coming, &mergePart{of: m, partition: id, place: start, counted: start, end: end})
		}
	}
	return m, nil
}

// Partitions returns the number of a topic's partitions.
func (f *Fetcher) Partitions(ctx context.Context, topic string) (int32, error) {
	client, err := f.connected(ctx)
	if err != nil {
		return 0, err
	}
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = &topic
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, client)
	if err == nil {
		err = kerr.ErrorForCode(resp.Topics[0].ErrorCode)
	}
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return 0, fmt.Errorf("there is no topic %s: is its name right, or the prefix that it begins with?", topic)
	}
	if err != nil {
		return 0, fmt.Errorf("ask Kafka for topic %s: %w", topic, err)
	}
	return int32(len(resp.Topics[0].Partitions)), nil
}

// Total counts the offsets to read. Of a compacted topic that is more than its records.
func (m *Merge) Total() int64 { return m.total }

// Done counts the offsets passed; any goroutine may ask.
func (m *Merge) Done() int64 { return m.done.Load() }

// Close ends the readers.
func (m *Merge) Close() {
	for _, p := range append(m.coming, m.parts...) {
		p.close()
	}
	m.coming, m.parts, m.given = nil, nil, nil
	if m.stop != nil {
		m.stop()
	}
}

// Next returns the next record and its partition, or io.EOF behind the last one. The record struct
// is in use until the next call; what its slices point to stays. Behind an *Unreadable it goes on
// when it is called again.
func (m *Merge) Next(ctx context.Context) (partition int32, rec *Record, err error) {
	for _, p := range m.coming { // all of them at once
		p.open()
	}
	for len(m.coming) > 0 {
		p := m.coming[0]
		there, err := p.advance(ctx)
		if err != nil {
			return p.partition, nil, err
		}
		m.coming = m.coming[1:]
		if there {
			heap.Push(&m.parts, p)
		}
	}
	if p := m.given; p != nil {
		there, err := p.advance(ctx)
		switch {
		case err != nil:
			return p.partition, nil, err
		case there:
			heap.Fix(&m.parts, 0)
		default:
			heap.Pop(&m.parts)
		}
	}
	if m.given = nil; len(m.parts) == 0 {
		return 0, nil, io.EOF
	}
	m.given = m.parts[0]
	return m.given.partition, &m.given.head, nil
}

// mergePart is one partition.
type mergePart struct {
	of        *Merge
	partition int32
	place     int64 // behind what was read
	end       int64
	counted   int64 // behind what Done counts

	reader *Reader
	chunk  Chunk
	batch  Batch
	head   Record
}

func (p *mergePart) open() {
	if p.reader == nil {
		p.reader = p.of.fetcher.Read(p.of.topic, [16]byte{}, p.partition, p.place)
	}
}

func (p *mergePart) close() {
	if p.reader != nil {
		p.reader.Close()
		p.reader = nil
	}
}

// advance makes head the partition's next record; there is none when its end has been reached.
func (p *mergePart) advance(ctx context.Context) (there bool, err error) {
	for p.place < p.end {
		ok, err := p.batch.Next(&p.head)
		if bad, is := errors.AsType[*Unreadable](err); is {
			p.batch = Batch{}
			p.pass(bad.Last + 1)
			return false, bad
		}
		if err != nil {
			return false, err
		}
		if ok {
			if p.head.Offset >= p.end {
				break
			}
			p.pass(p.head.Offset + 1)
			return true, nil
		}
		if err := p.nextBatch(ctx); err != nil {
			return false, fmt.Errorf("read %s/%d at offset %d: %w", p.of.topic, p.partition, p.place, err)
		}
	}
	p.pass(p.end)
	p.close()
	return false, nil
}

// nextBatch makes batch the next one, and place what lies before it.
func (p *mergePart) nextBatch(ctx context.Context) error {
	batch, ok, err := p.chunk.Next()
	if err != nil {
		return err
	}
	if ok {
		p.batch = batch
		return nil
	}
	p.pass(max(p.place, p.chunk.Place()))
	if p.place >= p.end {
		return nil
	}
	p.open()
	waits, cancel := context.WithTimeout(ctx, silence)
	defer cancel()
	p.chunk, err = p.reader.Next(waits)
	switch {
	case errors.Is(err, ErrOutOfRange):
		return p.deleted(ctx, err)
	case err != nil && ctx.Err() == nil && waits.Err() != nil:
		return errors.Join(errors.New("no record arrives, although there is one"), p.reader.Progress().Err)
	}
	return err
}

// deleted goes on where the log begins now: retention was faster.
func (p *mergePart) deleted(ctx context.Context, why error) error {
	starts, err := p.of.fetcher.Starts(ctx, p.of.topic, p.partition+1)
	if err != nil {
		return err
	}
	if starts[p.partition] <= p.place {
		return why
	}
	p.close()
	p.pass(min(starts[p.partition], p.end))
	return nil
}

func (p *mergePart) pass(place int64) {
	p.place = place
	p.of.done.Add(min(place, p.end) - p.counted)
	p.counted = min(place, p.end)
}

// earliestFirst is a heap: the partition with the earliest record is first.
type earliestFirst []*mergePart

func (l earliestFirst) Len() int { return len(l) }
func (l earliestFirst) Less(i, j int) bool {
	a, b := &l[i].head, &l[j].head
	if a.Timestamp != b.Timestamp {
		return a.Timestamp < b.Timestamp
	}
	return l[i].partition < l[j].partition
}
func (l earliestFirst) Swap(i, j int) { l[i], l[j] = l[j], l[i] }
func (l *earliestFirst) Push(x any)   { *l = append(*l, x.(*mergePart)) }
func (l *earliestFirst) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}
