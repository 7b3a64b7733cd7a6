package aggregate

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/IBM/sarama"
)

// fakeProducer hands the test what is sent.
type fakeProducer struct {
	sarama.AsyncProducer // of which the writer uses no more
	input                chan *sarama.ProducerMessage
	good                 chan *sarama.ProducerMessage
	bad                  chan *sarama.ProducerError
}

func (p *fakeProducer) Input() chan<- *sarama.ProducerMessage     { return p.input }
func (p *fakeProducer) Successes() <-chan *sarama.ProducerMessage { return p.good }
func (p *fakeProducer) Errors() <-chan *sarama.ProducerError      { return p.bad }
func (p *fakeProducer) AsyncClose()                               { close(p.good); close(p.bad) }

func sideTest(t *testing.T) (*sideWriter, *fakeProducer) {
	f := &fakeProducer{input: make(chan *sarama.ProducerMessage), good: make(chan *sarama.ProducerMessage), bad: make(chan *sarama.ProducerError)}
	s := &sideWriter{producer: f, onError: func(error) {}, work: make(chan struct{}, 1)}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s, f
}

func sideMessage(ticket *sideTicket, size int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: "audit", Value: sarama.ByteEncoder(make([]byte, size)), Metadata: ticket.send()}
}

// The lock of a partition is held while something is sent aside. A topic that takes nothing once kept it
// until it did.
func TestSendingAsideNeverBlocks(t *testing.T) {
	t.Parallel()
	s, f := sideTest(t)
	var ticket sideTicket
	const n = 1000
	for range n { // nothing takes any of it
		s.send(sideMessage(&ticket, sideRoomBytes/n))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if !s.full() || s.waitRoom(t.Context(), ended) {
		t.Fatal("there is room for more than there should be")
	}
	waited := make(chan bool)
	go func() { waited <- s.waitRoom(t.Context(), t.Context()) }()
	gen := ticket.cut()
	for range n {
		f.good <- <-f.input
	}
	if err := ticket.wait(t.Context(), gen); err != nil {
		t.Error(err)
	}
	if !<-waited || s.bytes.Load() != 0 {
		t.Errorf("%d bytes wait of what was acknowledged", s.bytes.Load())
	}
}

// What a topic refuses for now is sent until it is taken, and what it refuses for good ends the partition.
func TestWhatIsRefusedForNowIsSentAgain(t *testing.T) {
	t.Parallel()
	s, f := sideTest(t)
	var ticket sideTicket
	s.send(sideMessage(&ticket, 10))
	gen := ticket.cut()
	for _, err := range []error{sarama.ErrNotEnoughReplicas, fmt.Errorf("dial: %w", errors.New("connection refused"))} {
		f.bad <- &sarama.ProducerError{Msg: <-f.input, Err: err}
	}
	f.good <- <-f.input
	if err := ticket.wait(t.Context(), gen); err != nil {
		t.Error(err)
	}
	s.send(sideMessage(&ticket, 10))
	f.bad <- &sarama.ProducerError{Msg: <-f.input, Err: sarama.ErrMessageSizeTooLarge}
	if err := ticket.wait(t.Context(), ticket.cut()); !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		t.Errorf("too large: %v", err)
	}
}
