package owner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// Aux writes auxiliary output, which counts do not depend on: dead letters and audit records. They
// may repeat after a crash, but none is lost, because a checkpoint waits for them.
//
// Sending never blocks, because the caller holds a partition's lock or reports a verdict's
// acknowledgement. The queue stays bounded because partitions stop between two events, without
// their lock, while it is full. An Aux may be used by any goroutine; Run is called once.
type Aux struct {
	producer sarama.AsyncProducer
	budget   *budget.Budget
	onError  func(error) // called for each failed attempt; must not block

	mu     sync.Mutex
	queue  []*sarama.ProducerMessage // oldest first
	ahead  []*sarama.ProducerMessage // sent before the queue
	failed bool                      // some could not be sent: wait before the next attempt
	closed bool
	work   chan struct{} // tells run that something is queued
	room   chan struct{} // closed when there is room again; nil while none waits
}

const (
	// AuxRetries is the number of sarama's own retries. It keeps a list of so many entries of 32 bytes for each
	// partition that it writes to. A message that fails after that is queued here again.
	AuxRetries = 8
	auxPause   = time.Second

	// auxEndsWithin bounds Run after its context has ended.
	auxEndsWithin = 5 * time.Second
)

// AuxBatch bounds an auxiliary batch, and maxDeadLetter how much of a record goes to the
// dead-letter topic, where the topics take that much.
const (
	AuxBatch      = 832 << 10
	maxDeadLetter = 768 << 10

	// letterRoom is a dead letter's size beside its value: headers, a key, and the batch around it.
	letterRoom = 16 << 10
)

// AuxBatchOf returns the largest batch of auxiliary output, in bytes, that all its topics take. A
// larger one would be refused, and counting would stop.
func AuxBatchOf(l *topics.Layout) int {
	n := AuxBatch
	for _, topic := range []string{l.Names.DeadLetters, l.Names.Audit} {
		if most := l.MaxBytes[topic]; most > 0 {
			n = min(n, most)
		}
	}
	return n
}

// DeadLetterOf returns how many bytes of a record a dead letter may hold, given the topics'
// settings.
func DeadLetterOf(l *topics.Layout) int { return min(maxDeadLetter, AuxBatchOf(l)-letterRoom) }

// NewAux makes a writer on a producer, which it closes. It calls onError for each failed attempt; onError must not
// block.
func NewAux(p sarama.AsyncProducer, b *budget.Budget, onError func(error)) *Aux {
	return &Aux{producer: p, budget: b, onError: onError, work: make(chan struct{}, 1)}
}

// auxMark comes back with a message's result.
type auxMark struct {
	ticketMark
	kind budget.Kind
}

// send queues a message whose Metadata is an auxMark.
func (s *Aux) send(m *sarama.ProducerMessage) {
	s.add(m, 1)
	s.mu.Lock()
	s.queue = append(s.queue, m)
	s.mu.Unlock()
	s.wake()
}

// SendAndWait sends a record ahead of the queue, and waits until it is durable. Use it for few
// records: those that a caller waits for while an attack's verdicts fill the queue.
func (s *Aux) SendAndWait(ctx context.Context, topic string, key, value []byte) error {
	var t ticket
	m := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(value), Metadata: auxMark{t.send(), budget.Audit}}
	if key != nil {
		m.Key = sarama.ByteEncoder(key)
	}
	s.add(m, 1)
	s.mu.Lock()
	s.ahead = append(s.ahead, m)
	s.mu.Unlock()
	s.wake()
	return t.wait(ctx, 0)
}

func (s *Aux) wake() {
	ring(s.work)
}

// auxBytes estimates what a message takes in memory.
func auxBytes(m *sarama.ProducerMessage) int64 {
	n := 256 + m.Value.Length()
	if m.Key != nil {
		n += m.Key.Length()
	}
	for i := range m.Headers {
		n += len(m.Headers[i].Key) + len(m.Headers[i].Value)
	}
	return int64(n)
}

// add counts a message, or takes it off if sign is -1.
func (s *Aux) add(m *sarama.ProducerMessage, sign int64) {
	s.budget.Add(m.Metadata.(auxMark).kind, sign*auxBytes(m))
}

func (s *Aux) full() bool {
	return s.budget.Held(budget.DeadLetters)+s.budget.Held(budget.Audit) >= s.budget.AuxLimit()
}

// awaitRoom waits while the queue is full. It returns false if ctx ends first.
func (s *Aux) awaitRoom(ctx context.Context) bool {
	for s.full() {
		s.mu.Lock()
		if s.room == nil {
			s.room = make(chan struct{})
		}
		room := s.room
		s.mu.Unlock()
		if !s.full() { // emptied before room was made
			break
		}
		select {
		case <-room:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// done tells a message's partition that the message is durable, or cannot be sent.
func (s *Aux) done(m *sarama.ProducerMessage, err error) {
	s.add(m, -1)
	if !s.full() {
		s.mu.Lock()
		if s.room != nil {
			close(s.room)
			s.room = nil
		}
		s.mu.Unlock()
	}
	m.Metadata.(auxMark).acked(err)
}

// Run sends what is queued until ctx ends, then what is left, and returns.
func (s *Aux) Run(ctx context.Context) {
	var wg sync.WaitGroup
	wg.Go(func() {
		for m := range s.producer.Successes() {
			s.done(m, nil)
		}
	})
	wg.Go(func() {
		for e := range s.producer.Errors() {
			s.onError(e.Err)
			if !s.again(e) {
				s.done(e.Msg, explainAux(e))
			}
		}
	})
	for ctx.Err() == nil {
		s.pass(ctx)
		select {
		case <-s.work:
		case <-ctx.Done():
		}
	}
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	last, stop := context.WithTimeout(context.WithoutCancel(ctx), auxEndsWithin)
	defer stop()
	s.pass(last)
	s.producer.AsyncClose()
	sent := make(chan struct{})
	go func() {
		wg.Wait()
		close(sent)
	}()
	select { // without Kafka it would not end; no checkpoint covers what is not sent
	case <-sent:
	case <-last.Done():
	}
}

// pass hands over all that is queued, after a pause if some of it has failed before.
func (s *Aux) pass(ctx context.Context) {
	s.mu.Lock()
	failed, closed := s.failed, s.closed
	s.failed = false
	s.mu.Unlock()
	if failed && !closed && !retry.Sleep(ctx, auxPause) {
		return
	}
	for {
		some, of := s.take()
		if len(some) == 0 {
			return
		}
		for i, m := range some {
			select {
			case s.producer.Input() <- m:
			case <-ctx.Done():
				s.mu.Lock()
				*of = append(some[i:], *of...)
				s.mu.Unlock()
				return
			}
		}
	}
}

// takeAtOnce bounds the part of the queue that may precede a record that goes ahead of it.
const takeAtOnce = 256

// take takes the messages to send next, and returns the list that they come from.
func (s *Aux) take() (some []*sarama.ProducerMessage, of *[]*sarama.ProducerMessage) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of = &s.queue
	if len(s.ahead) > 0 {
		of = &s.ahead
	}
	n := min(len(*of), takeAtOnce)
	some, *of = (*of)[:n:n], (*of)[n:]
	if len(*of) == 0 {
		*of = nil
	}
	return some, of
}

// again queues a message that could not be sent for now.
func (s *Aux) again(e *sarama.ProducerError) bool {
	m := e.Msg
	fresh := &sarama.ProducerMessage{Topic: m.Topic, Key: m.Key, Value: m.Value, Headers: m.Headers, Timestamp: m.Timestamp, Metadata: m.Metadata}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed || !passes(e.Err) {
		return false
	}
	s.queue, s.failed = append(s.queue, fresh), true
	s.wake()
	return true
}

// passing are the answers after which a message may be sent again.
var passing = []sarama.KError{
	sarama.ErrUnknownTopicOrPartition, sarama.ErrLeaderNotAvailable, sarama.ErrNotLeaderForPartition,
	sarama.ErrRequestTimedOut, sarama.ErrBrokerNotAvailable, sarama.ErrReplicaNotAvailable,
	sarama.ErrNetworkException, sarama.ErrNotEnoughReplicas, sarama.ErrNotEnoughReplicasAfterAppend,
	sarama.ErrInvalidMessage, sarama.ErrKafkaStorageError, sarama.ErrThrottlingQuotaExceeded,
}

// passes reports whether an error may be temporary: its answer is one of passing, or there was no
// answer.
func passes(err error) bool {
	if code, ok := errors.AsType[sarama.KError](err); ok {
		return slices.Contains(passing, code)
	}
	if _, ok := errors.AsType[sarama.ConfigurationError](err); ok { // too large for our settings
		return false
	}
	if _, ok := errors.AsType[sarama.PacketEncodingError](err); ok {
		return false
	}
	return !errors.Is(err, sarama.ErrClosedClient) && !errors.Is(err, sarama.ErrShuttingDown)
}

func explainAux(e *sarama.ProducerError) error {
	err := fmt.Errorf("append to %s: %w", e.Msg.Topic, e.Err)
	if errors.Is(e.Err, sarama.ErrMessageSizeTooLarge) {
		err = fmt.Errorf("%w: raise the topic's max.message.bytes", err)
	}
	return err
}
