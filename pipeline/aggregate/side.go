package aggregate

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/fetch"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/pipeline/event"
)

const (
	// maxSideBatch bounds what is sent aside at once, and maxDeadLetter how much of a record goes
	// to the dead-letter topic, where the topics take that much.
	maxSideBatch  = 832 << 10
	maxDeadLetter = 768 << 10

	// sideRoom is what a dead letter needs beside its value: headers, a key, the batch around it.
	sideRoom = 16 << 10
)

// sideBatch is what the topics take: a batch that is larger than one of them allows would be
// refused, and nothing counted any more.
func sideBatch(l *topics.Layout) int {
	n := maxSideBatch
	for _, topic := range []string{l.Names.DeadLetters, l.Names.Audit} {
		if most := l.MaxBytes[topic]; most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// sideTicket counts what a partition has sent aside and is not acknowledged: what was sent
// before the last cut, and what after it.
type sideTicket struct {
	mu    sync.Mutex
	open  [2]int64
	gen   int // what is sent now belongs to open[gen]
	err   error
	moved chan struct{} // closed at the next acknowledgement; nil when nobody waits
}

// sideMark comes back with an acknowledgement.
type sideMark struct {
	ticket *sideTicket
	gen    int
}

func (t *sideTicket) send() sideMark {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[t.gen]++
	return sideMark{t, t.gen}
}

// cut starts a new generation. The one before the last must have been waited for.
func (t *sideTicket) cut() (gen int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	gen, t.gen = t.gen, 1-t.gen
	return gen
}

func (m sideMark) acked(err error) {
	t := m.ticket
	t.mu.Lock()
	defer t.mu.Unlock()
	t.open[m.gen]--
	if t.err == nil {
		t.err = err
	}
	if t.moved != nil {
		close(t.moved)
		t.moved = nil
	}
}

// wait returns when all of a generation is acknowledged.
func (t *sideTicket) wait(ctx context.Context, gen int) error {
	for {
		t.mu.Lock()
		if t.err != nil || t.open[gen] == 0 {
			err := t.err
			t.mu.Unlock()
			return err
		}
		if t.moved == nil {
			t.moved = make(chan struct{})
		}
		moved := t.moved
		t.mu.Unlock()
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// sendAside stamps a record for topics that don't by themselves. A time that brokers think is in
// the future they refuse, so it should be theirs; the zero time is now.
func (p *partition) sendAside(topic string, at time.Time, key, value []byte, headers []sarama.RecordHeader) error {
	m := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value), Headers: headers, Timestamp: at, Metadata: p.side.send()}
	if key != nil {
		m.Key = sarama.ByteEncoder(key)
	}
	p.agg.side.send(m)
	return nil
}

// deadLetter keeps a record of which something is no event, as it came, with why and from
// where. What is an event in it counts all the same.
func (p *partition) deadLetter(l lane, m *fetch.Record, bad []event.BadEvent, err error) error {
	reason, detail := reasonOf(bad, err)
	p.agg.metrics.deadLetter(reason)
	headers := []sarama.RecordHeader{
		{Key: []byte("reason"), Value: []byte(reason)},
		{Key: []byte("detail"), Value: []byte(detail)},
		{Key: []byte("topic"), Value: []byte(p.topicOf(l))},
		{Key: []byte("partition"), Value: strconv.AppendInt(nil, int64(p.id), 10)},
		{Key: []byte("offset"), Value: strconv.AppendInt(nil, m.Offset, 10)},
	}
	for _, b := range bad[:min(len(bad), maxBadIndexes)] {
		headers = append(headers, sarama.RecordHeader{Key: []byte("index"), Value: strconv.AppendInt(nil, int64(b.Index), 10)})
	}
	value, key := m.Value, m.Key
	most := min(maxDeadLetter, sideBatch(p.agg.found.Load())-sideRoom)
	headers, size := appendOwnHeaders(headers, m.Headers, most/2)
	most -= size
	if len(value) > most || len(key) > maxDeadLetterKey {
		headers = append(headers, sarama.RecordHeader{Key: []byte("cut-from"), Value: strconv.AppendInt(nil, int64(len(value)), 10)})
		value, key = value[:min(len(value), most)], key[:min(len(key), maxDeadLetterKey)]
	}
	return p.sendAside(p.agg.names.DeadLetters, m.Time(), key, value, headers)
}

// passOver goes on behind records that nobody can read, now or later, and keeps where they are as a dead
// letter: the range of their offsets, and why. It returns the first offset behind them.
func (p *partition) passOver(l lane, next int64, bad *fetch.Unreadable) (behind int64, err error) {
	if bad.Last < next {
		return next, nil
	}
	reason := reasonUnreadable
	if errors.Is(bad.Err, fetch.ErrTooLarge) {
		reason = event.ReasonTooLarge
	}
	first := max(bad.First, next)
	p.log.Error("records that cannot be read are passed over: they are a range of offsets in the dead-letter topic",
		"topic", p.topicOf(l), "first_offset", first, "last_offset", bad.Last, "reason", reason, "error", bad.Err)
	p.agg.metrics.deadLetter(reason)
	p.agg.metrics.passedOver.Add(float64(bad.Last + 1 - first))
	err = p.sendAside(p.agg.names.DeadLetters, time.Time{}, nil, nil, []sarama.RecordHeader{
		{Key: []byte("reason"), Value: []byte(reason)},
		{Key: []byte("detail"), Value: []byte(clip(bad.Error()))},
		{Key: []byte("topic"), Value: []byte(p.topicOf(l))},
		{Key: []byte("partition"), Value: strconv.AppendInt(nil, int64(p.id), 10)},
		{Key: []byte("offset"), Value: strconv.AppendInt(nil, first, 10)},
		{Key: []byte("last-offset"), Value: strconv.AppendInt(nil, bad.Last, 10)},
	})
	return bad.Last + 1, err
}

const (
	maxBadIndexes    = 100
	maxDeadLetterKey = 4 << 10

	// ownHeader begins the names of the headers that the record had itself.
	ownHeader = "header:"
	// ownHeaderRoom is what a header takes beside its name and value.
	ownHeaderRoom = 16
)

// appendOwnHeaders appends the headers that a record had itself, up to so many bytes, and returns how many these are: first those that
// make it a CloudEvent, for without them its value is not the event. What finds no room is counted in headers-cut.
func appendOwnHeaders(dst []sarama.RecordHeader, own fetch.Headers, most int) (headers []sarama.RecordHeader, size int) {
	cut := 0
	for _, cloud := range []bool{true, false} {
		for left := own; ; {
			key, value, ok := left.Next()
			if !ok {
				break
			}
			if event.IsCloudEvents(key) != cloud {
				continue
			}
			n := len(ownHeader) + len(key) + len(value) + ownHeaderRoom
			if size+n > most {
				cut++
				continue
			}
			size += n
			dst = append(dst, sarama.RecordHeader{Key: append([]byte(ownHeader), key...), Value: value})
		}
	}
	if cut > 0 {
		dst = append(dst, sarama.RecordHeader{Key: []byte("headers-cut"), Value: strconv.AppendInt(nil, int64(cut), 10)})
	}
	return dst, size
}
