package owner

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
)

// fakeProducer hands the test what is sent.
type fakeProducer struct {
	sarama.AsyncProducer // the writer uses nothing else of it
	input                chan *sarama.ProducerMessage
	good                 chan *sarama.ProducerMessage
	bad                  chan *sarama.ProducerError
}

func (p *fakeProducer) Input() chan<- *sarama.ProducerMessage     { return p.input }
func (p *fakeProducer) Successes() <-chan *sarama.ProducerMessage { return p.good }
func (p *fakeProducer) Errors() <-chan *sarama.ProducerError      { return p.bad }
func (p *fakeProducer) AsyncClose()                               { close(p.good); close(p.bad) }

func auxTest(t *testing.T) (*Aux, *fakeProducer) {
	f := &fakeProducer{input: make(chan *sarama.ProducerMessage), good: make(chan *sarama.ProducerMessage), bad: make(chan *sarama.ProducerError)}
	s := NewAux(f, budget.New(256<<20), func(error) {})
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); s.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
	return s, f
}

func auxMessage(open *ticket, size int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: "audit", Value: sarama.ByteEncoder(make([]byte, size)), Metadata: auxMark{open.send(), budget.Audit}}
}

// A partition's lock is held while auxiliary output is sent. A topic that took nothing once kept it
// locked.
func TestAuxiliaryOutputNeverBlocks(t *testing.T) {
	t.Parallel()
	s, f := auxTest(t)
	var open ticket
	const n = 1000
	for range n { // nothing is taken
		s.send(auxMessage(&open, int(s.budget.AuxLimit()/n)))
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if !s.full() || s.awaitRoom(ended) {
		t.Fatal("there is room for more than there should be")
	}
	waited := make(chan bool)
	go func() { waited <- s.awaitRoom(t.Context()) }()
	gen := open.cut()
	for range n {
		f.good <- <-f.input
	}
	if err := open.wait(t.Context(), gen); err != nil {
		t.Error(err)
	}
	if held := s.budget.Held(budget.Audit); !<-waited || held != 0 {
		t.Errorf("%d bytes wait of what was acknowledged", held)
	}
}

// What a topic refuses temporarily is sent until it is taken. What it refuses for good ends the
// partition.
func TestWhatIsRefusedForNowIsSentAgain(t *testing.T) {
	t.Parallel()
	s, f := auxTest(t)
	var open ticket
	s.send(auxMessage(&open, 10))
	gen := open.cut()
	for _, err := range []error{sarama.ErrNotEnoughReplicas, fmt.Errorf("dial: %w", errors.New("connection refused"))} {
		f.bad <- &sarama.ProducerError{Msg: <-f.input, Err: err}
	}
	f.good <- <-f.input
	if err := open.wait(t.Context(), gen); err != nil {
		t.Error(err)
	}
	s.send(auxMessage(&open, 10))
	f.bad <- &sarama.ProducerError{Msg: <-f.input, Err: sarama.ErrMessageSizeTooLarge}
	if err := open.wait(t.Context(), open.cut()); !errors.Is(err, sarama.ErrMessageSizeTooLarge) {
		t.Errorf("too large: %v", err)
	}
}
