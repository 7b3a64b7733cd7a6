package aggregate

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// perform does what the shard has asked for since it was called last. It waits for nothing. The partition is locked.
func (p *partition) perform() error {
	e := p.shard.Effects()
	if e.Empty() {
		return nil
	}
	defer e.Reset()
	for i := range e.States {
		a := &e.States[i]
		if err := p.enqueue(p.changelog, fenced.Record{Key: a.Key, Value: a.Value}, a.Urgent, p.acknowledged(a)); err != nil {
			return err
		}
	}
	for i := range e.Forwards {
		f := &e.Forwards[i]
		if err := p.enqueue(p.loopWriter(f.To), fenced.Record{Value: f.Value}, true, nil); err != nil {
			return err
		}
	}
	p.agg.metrics.forwarded.Add(float64(len(e.Forwards)))
	for i := range e.Aux {
		p.sendAux(&e.Aux[i])
	}
	for i := range e.Verdicts {
		a := &e.Verdicts[i]
		if err := p.enqueue(p.verdicts, fenced.Record{Key: a.Key, Value: a.Value}, a.Urgent, p.acknowledged(a)); err != nil {
			return err
		}
	}
	p.tell(e)
	return nil
}

// tell hands on what others are to know: the blocklist's publisher, who waits for a command, metrics and the log.
func (p *partition) tell(e *shard.Effects) {
	for i := range e.Published {
		is := &e.Published[i]
		p.agg.metrics.published(is)
		p.offer(VerdictRecord{is.Offset, is.Key, is.Value, is.At, is.Verdict})
	}
	for i := range e.Done {
		d := &e.Done[i]
		p.commands.done(d.ID, d.Had, d.Verdicts)
	}
	for i := range e.Blown {
		p.agg.metrics.fuses.WithLabelValues(e.Blown[i].Rule).Inc()
	}
	for i := range e.Skipped {
		p.agg.metrics.skipped(e.Skipped[i])
	}
	for _, n := range e.Notes {
		p.log.Log(p.ctx, [...]slog.Level{shard.Info: slog.LevelInfo, shard.Warn: slog.LevelWarn, shard.Error: slog.LevelError}[n.Level], n.Text, n.Args...)
	}
}

// offer hands an acknowledged record to the publisher.
func (p *partition) offer(r VerdictRecord) {
	if pub := p.agg.cfg.Published; pub != nil {
		pub.Offer(p.id, p.offered, r.Offset+1, r)
	}
	p.offered = r.Offset + 1
}

// sendAux stamps a record for topics that don't by themselves. A time that brokers think is in
// the future they refuse, so it should be theirs; the zero time is now.
func (p *partition) sendAux(a *shard.Aux) {
	topic := p.agg.names.Audit
	if a.Topic == shard.DeadLetters {
		topic = p.agg.names.DeadLetters
		p.agg.metrics.deadLetter(a.Reason)
	}
	m := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(a.Value), Timestamp: a.At, Metadata: p.side.send()}
	if a.Key != nil {
		m.Key = sarama.ByteEncoder(a.Key)
	}
	for _, h := range a.Headers {
		m.Headers = append(m.Headers, sarama.RecordHeader(h))
	}
	p.agg.side.send(m)
}

// acks are acknowledgements on their way from the writers' goroutines to the shard: a writer does not wait for the
// partition's lock.
type acks struct {
	mu   sync.Mutex
	list []acked
	some atomic.Bool
	wake chan struct{} // holds one while some came
}

type acked struct {
	of     *shard.Ack
	offset int64
}

func (s *acks) add(a acked) {
	s.mu.Lock()
	s.list = append(s.list, a)
	first := len(s.list) == 1
	s.some.Store(true)
	s.mu.Unlock()
	if !first {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *acks) take() []acked {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.list
	s.list = nil
	s.some.Store(false)
	return list
}

// acknowledged is what a writer calls when an append is durable; nil when nobody is to know. What an error means, its Run says.
func (p *partition) acknowledged(a *shard.Append) fenced.Done {
	if a.Ack == nil && !a.Urgent {
		return nil
	}
	ack := a.Ack
	return func(offset int64, at time.Time, err error) {
		if err != nil {
			return
		}
		p.clockOfBroker.appended(at)
		if ack != nil {
			p.acks.add(acked{ack, offset})
		}
	}
}

// acknowledge tells the shard of acknowledgements while no events do.
func (p *partition) acknowledge() error {
	for {
		select {
		case <-p.acks.wake:
		case <-p.ctx.Done():
			return nil
		}
		if !p.acks.some.Load() {
			continue // the partition's goroutine took them
		}
		if err := p.settleAcks(); err != nil {
			return err
		}
	}
}

// settleAcks is takeAcks for who has not the lock.
func (p *partition) settleAcks() error {
	p.lock()
	defer p.mu.Unlock()
	return p.takeAcks()
}

// takeAcks tells the shard what was acknowledged. The partition is locked.
func (p *partition) takeAcks() error {
	if !p.acks.some.Load() {
		return nil
	}
	clock := p.clock()
	for _, a := range p.acks.take() {
		p.shard.Acked(a.of, a.offset, clock)
	}
	return p.perform()
}
