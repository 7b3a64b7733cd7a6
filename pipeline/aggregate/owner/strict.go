package owner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// Strict follows what the partitions that this instance owns say about strict limits, in the verdict
// topic. Own and Offer are called with the partition's lock held: none of the methods may block.
type Strict interface {
	// Own begins with a partition. What is in the topic before end is not offered.
	Own(partition int32, p *Partition, end int64)
	Disown(partition int32)
	// Offer hands over all records about strict limits of the offsets [first, next).
	Offer(partition int32, first, next int64, records []shard.Strict)
}

// strict is the owner's side of strict limits. Its exported methods are a Partition's, and may be
// called by any goroutine without the partition's lock.
type strict struct {
	*core
	out    *outbox
	levels *levels
}

// grants are calls of Grant that wait. The zero value is ready to use.
type grants struct {
	mu   sync.Mutex
	wait map[*protocol.Grants]chan struct{}
}

func (g *grants) begin(of *protocol.Grants) <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.wait == nil {
		g.wait = map[*protocol.Grants]chan struct{}{}
	}
	done := make(chan struct{})
	g.wait[of] = done
	return done
}

func (g *grants) end(of *protocol.Grants) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if done, ok := g.wait[of]; ok {
		close(done)
		delete(g.wait, of)
	}
}

// offerStrict hands over what is in the verdict topic before an offset. The partition is locked.
func (o *outbox) offerStrict(e *shard.Effects) {
	next := o.strict
	for i := range e.Published {
		next = max(next, e.Published[i].Offset+1)
	}
	for i := range e.Strict {
		next = max(next, e.Strict[i].Offset+1)
		if g := e.Strict[i].Record.Grants; g != nil {
			o.grants.end(g)
		}
	}
	if next == o.strict {
		return
	}
	if o.env.Strict != nil && o.strictOwned {
		o.env.Strict.Offer(o.id, o.strict, next, append([]shard.Strict(nil), e.Strict...))
	}
	o.strict = next
}

// ownStrict tells the publisher of strict limits that the partition is owned here.
func (o *outbox) ownStrict(p *Partition) {
	if o.env.Strict == nil {
		return
	}
	o.lock()
	defer o.mu.Unlock()
	o.strictOwned = true
	o.env.Strict.Own(o.id, p, o.strict)
}

// LastGrants names the Redis that may have granted permits when the partition was taken over; nil when none has.
func (s *strict) LastGrants() *protocol.Grants {
	s.lock()
	defer s.mu.Unlock()
	return s.shard.Levels().LastGrants()
}

// within returns a context that also ends with the partition.
func (s *strict) within(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(s.ctx, func() { cancel(context.Cause(s.ctx)) })
	return ctx, func() {
		stop()
		cancel(nil)
	}
}

// do calls f with the partition locked, and carries out the effects.
func (s *strict) do(f func() error) error {
	s.lock()
	defer s.mu.Unlock()
	switch {
	case s.ctx.Err() != nil:
		return fmt.Errorf("partition %d is not owned here any more: %w", s.id, context.Cause(s.ctx))
	case !s.opened.Load():
		return fmt.Errorf("partition %d is not taken over yet", s.id)
	}
	err := f()
	if err == nil {
		err = s.out.perform()
	}
	if err != nil {
		s.fail(s.ended(err))
	}
	return err
}

// Grant appends a grants record to the verdict topic, unless another process owns the partition now. It
// returns when the record is durable.
func (s *strict) Grant(ctx context.Context, g *protocol.Grants) error {
	ctx, cancel := s.within(ctx)
	defer cancel()
	one := *g // who waits is known by its address
	done := s.out.grants.begin(&one)
	defer s.out.grants.end(&one)
	if err := s.do(func() error { return s.shard.Levels().Grant(&one) }); err != nil {
		return err
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("write which Redis may grant permits for partition %d: %w", s.id, context.Cause(ctx))
	}
}

// CountLost has permits counted whose actions never told how they ended. It returns when that is sure,
// before they are counted.
func (s *strict) CountLost(ctx context.Context, lost []protocol.Lost) error {
	if len(lost) == 0 {
		return nil
	}
	ctx, cancel := s.within(ctx)
	defer cancel()
	acks := make(chan error, len(lost))
	err := s.do(func() error {
		w := s.out.loopTo(s.id)
		for i := range lost {
			value, err := shard.AppendLost(nil, &lost[i])
			if err != nil {
				return err
			}
			if err := s.out.enqueue(w.Writer, fenced.Record{Value: value}, true, func(_ int64, _ time.Time, err error) { acks <- err }); err != nil {
				return err
			}
		}
		return nil
	})
	for range lost {
		if err != nil {
			break
		}
		select {
		case err = <-acks:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	if err != nil {
		return fmt.Errorf("count lost permits of partition %d: %w", s.id, err)
	}
	return nil
}

// Progress returns when all that is counted now is durable: what was forwarded is in the loop topic, and
// the levels are in the verdict topic.
func (s *strict) Progress(ctx context.Context) (p protocol.Progress, err error) {
	ctx, cancel := s.within(ctx)
	defer cancel()
	var loops map[int32]*loop
	for more := true; more && err == nil; {
		err = s.do(func() (err error) {
			more, err = s.shard.Levels().Publish(shard.LevelsAtOnce)
			p.Input, p.Loop = s.shard.Log().Next(shard.Input), s.shard.Log().Next(shard.Loop)
			s.shard.Packs().Flush(nil)
			err = errors.Join(err, s.out.perform())
			loops = maps.Clone(s.out.loops)
			return err
		})
		if more && err == nil {
			err = s.levels.publish(ctx) // in slices between events
		}
	}
	if err == nil {
		err = s.out.flushVerdicts(ctx)
	}
	for _, w := range loops {
		if err == nil {
			err = w.Flush(ctx)
		}
	}
	if err == nil {
		err = s.out.settleAcks()
	}
	if err != nil {
		return protocol.Progress{}, fmt.Errorf("wait until what partition %d has counted is durable: %w", s.id, err)
	}
	s.lock()
	defer s.mu.Unlock()
	p.Verdicts, p.Rules = s.out.strict, s.shard.Levels().Said()
	return p, nil
}
