package emit

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/produce"
)

// request is one batch each of several partitions that one broker leads.
type request struct {
	leader  int
	boxes   []*outbox // the sender's, untouched by the request's goroutine
	batches []*batch
	size    int
}

// answer is the result of one batch.
type answer struct {
	err error // nil when it is acknowledged
	cut bool  // the connection, not the broker, gave the answer: the batch may have arrived
	bad []produce.ResponseError
}

type result struct {
	*request
	answers []answer // one for each batch
}

// produce sends the request once and waits for its answers, at most RequestTimeout.
//
// It speaks the protocol below kafka-go's Writer and Client: the Writer retries by itself in
// an order that it does not promise, and Client.Produce takes one partition a request.
func (s *sender) produce(ctx context.Context, r *request) []answer {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.RequestTimeout)
	defer cancel()
	partitions := make([]produce.RequestPartition, len(r.batches))
	for i, b := range r.batches {
		partitions[i] = produce.RequestPartition{
			Partition: r.boxes[i].partition,
			RecordSet: protocol.RecordSet{
				Attributes: protocol.Lz4,
				Records:    newReader(b, s.instance, r.boxes[i].partition),
			},
		}
	}
	res, err := s.transport.RoundTrip(ctx, kafka.TCP(s.cfg.Brokers...), &produce.Request{
		Acks: int16(kafka.RequireAll),
		// So that the broker answers first.
		Timeout: int32((s.cfg.RequestTimeout * 3 / 4).Milliseconds()),
		Topics:  []produce.RequestTopic{{Topic: s.cfg.Topic, Partitions: partitions}},
	})
	answers := make([]answer, len(r.batches))
	for i := range answers {
		if err != nil {
			answers[i] = answer{err: err, cut: true}
		} else {
			answers[i] = answerFor(res, r.boxes[i].partition)
		}
	}
	return answers
}

func answerFor(res protocol.Message, partition int32) answer {
	topics := res.(*produce.Response).Topics
	for _, t := range topics {
		for _, p := range t.Partitions {
			if p.Partition != partition {
				continue
			}
			if p.ErrorCode == 0 {
				return answer{}
			}
			err := error(kafka.Error(p.ErrorCode))
			if p.ErrorMessage != "" {
				err = fmt.Errorf("%w: %s", err, p.ErrorMessage)
			}
			return answer{err: err, bad: p.RecordErrors}
		}
	}
	return answer{err: errors.New("the broker's answer lacks the partition"), cut: true}
}

// settle takes a request's answers in.
func (s *sender) settle(r result, now time.Time) {
	if s.flight[r.leader]--; s.flight[r.leader] == 0 {
		delete(s.flight, r.leader)
	}
	for i, box := range r.boxes {
		a, b := r.answers[i], r.batches[i]
		box.busy = false
		b.pinned = b.pinned || a.cut
		switch {
		case a.err == nil:
			s.counts.emitted.Add(uint64(b.events))
			s.toldOf(b, nil)
			s.unreserve(b.events, b.bytes)
			b.release()
			s.advance(box)
		case refused(a.err):
			s.refuse(box, a)
		default:
			s.again(box, a, now)
		}
	}
}

// advance is called when queue[0] is through.
func (s *sender) advance(box *outbox) {
	box.queue = box.queue[1:]
	if box.attempts > 0 {
		box.attempts = 0
		s.failing--
	}
	if s.failing == 0 {
		s.failed(nil)
	}
}

// again has the same batch sent once more, later. That may put it into the log twice, the
// second time perhaps behind newer ones; the consumer knows it by its sequences.
//
// There is no last attempt: errors that do not concern the records themselves (a broker that is
// away, missing rights, too few replicas) can be fixed while they wait. A full queue is the limit
// that the application chose.
func (s *sender) again(box *outbox, a answer, now time.Time) {
	if box.attempts == 0 {
		s.failing++
	}
	box.attempts++
	box.retryAt = now.Add(backoff(box.attempts))
	s.counts.retries.Add(1)
	s.failed(fmt.Errorf("send to partition %d of %s: %w", box.partition, s.cfg.Topic, a.err))
	select {
	case s.refresh <- struct{}{}: // the partition's leader may have moved
	default:
	}
}

// refuse drops the records that the broker will never take, and has the others sent again in
// smaller batches, with the sequences they have.
func (s *sender) refuse(box *outbox, a answer) {
	b := box.queue[0]
	rest := box.queue[1:]
	switch {
	case len(a.bad) > 0 && len(a.bad) < len(b.records):
		bad := make(map[int]bool, len(a.bad))
		for _, r := range a.bad {
			bad[int(r.BatchIndex)] = true
		}
		lost, kept := b.divide(func(i int) bool { return bad[i] })
		box.queue = append([]*batch{kept}, rest...)
		s.lose(lost, Drop{Reason: Refused, Err: a.err})
	case tooLarge(a.err) && len(b.records) > 1:
		half := len(b.records) / 2
		first, second := b.divide(func(i int) bool { return i < half })
		box.queue = append([]*batch{first, second}, rest...)
	default:
		s.lose(b, Drop{Reason: Refused, Err: a.err})
		s.advance(box)
	}
	s.failed(fmt.Errorf("send to partition %d of %s: %w", box.partition, s.cfg.Topic, a.err))
}

func tooLarge(err error) bool {
	return errors.Is(err, kafka.MessageSizeTooLarge) || errors.Is(err, kafka.RecordListTooLarge)
}

// refused reports whether the error is about the records: no retry would change it.
func refused(err error) bool {
	return tooLarge(err) || errors.Is(err, kafka.InvalidRecord) ||
		errors.Is(err, kafka.InvalidTimestamp) || errors.Is(err, kafka.PolicyViolation)
}
