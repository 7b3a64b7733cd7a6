package memlog

import (
	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// producer appends to partition 0 of each topic, whatever the key: no test asks which it would be. An owner.Aux needs
// no more of a sarama.AsyncProducer, and calls nothing else.
type producer struct {
	sarama.AsyncProducer
	input chan *sarama.ProducerMessage
	good  chan *sarama.ProducerMessage
	bad   chan *sarama.ProducerError
}

// NewProducer returns what auxiliary output is written with.
func (l *Log) NewProducer() sarama.AsyncProducer {
	p := &producer{input: make(chan *sarama.ProducerMessage), good: make(chan *sarama.ProducerMessage), bad: make(chan *sarama.ProducerError)}
	go func() {
		defer close(p.good)
		defer close(p.bad)
		for m := range p.input {
			rec := kafkalog.Record{}
			if !m.Timestamp.IsZero() { // else it is that of the append
				rec.Timestamp = m.Timestamp.UnixMilli()
			}
			if m.Key != nil {
				rec.Key, _ = m.Key.Encode() // sarama.ByteEncoder: no error
			}
			rec.Value, _ = m.Value.Encode()
			var headers [][]byte
			for _, h := range m.Headers {
				headers = append(headers, h.Key, h.Value)
			}
			rec.Headers = record.HeadersOf(headers...)
			l.Append(m.Topic, 0, rec)
			p.good <- m
		}
	}()
	return p
}

func (p *producer) Input() chan<- *sarama.ProducerMessage     { return p.input }
func (p *producer) Successes() <-chan *sarama.ProducerMessage { return p.good }
func (p *producer) Errors() <-chan *sarama.ProducerError      { return p.bad }
func (p *producer) AsyncClose()                               { close(p.input) }
