package owner

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// Partition is one owned partition, from takeover to release or failure. Make it with New, call
// Open, then Process from one goroutine. Call Close once, also after Open has failed. All other
// methods may be called by any goroutine.
type Partition struct {
	core *core
	*progress
	*commands
	*strict
	out         *outbox
	checkpoints *checkpoints
	ends        *ends
	levels      *levels
	quotas      *quotas
	packs       *packs
	judging     *judging
	intake      *intake
}

// New makes a partition that is not open yet.
func New(env *Env, id int32, s *Session) *Partition {
	c := newCore(env, id, s)
	p := &Partition{core: c, progress: &progress{core: c}, out: newOutbox(c)}
	p.commands = &commands{core: c, out: p.out, progress: p.progress}
	p.ends = &ends{core: c, out: p.out, some: make(chan struct{}, 1)}
	p.levels = &levels{core: c, out: p.out, some: make(chan struct{}, 1)}
	p.quotas = &quotas{core: c, out: p.out, some: make(chan struct{}, 1)}
	p.strict = &strict{core: c, out: p.out, levels: p.levels}
	p.checkpoints = &checkpoints{core: c, out: p.out, ends: p.ends, levels: p.levels, quotas: p.quotas, turn: make(chan struct{}, 1)}
	p.packs = &packs{core: c, out: p.out, some: p.out.packed}
	p.judging = &judging{core: c, out: p.out, levels: p.levels, quotas: p.quotas}
	p.intake = &intake{core: c, out: p.out, checkpoints: p.checkpoints, ends: p.ends, levels: p.levels, quotas: p.quotas, packs: p.packs}
	return p
}

// Open takes the partition over: a new producer epoch, fence records, and recovery up to the fence.
func (p *Partition) Open() error {
	began, c := time.Now(), p.core
	release := context.AfterFunc(c.session.Context(), func() { c.cancel(ErrReleased) })
	t := newTakeover(c, p.out)
	settled, err := c.env.Kafka.Newest(c.env.Names.Loop, c.id) // before the rules are read
	if err == nil {
		err = c.env.Rules.Refresh(c.ctx) // at least as new as any checkpoint's
	}
	if err == nil {
		v := c.env.Rules.Current()
		failed, _ := c.env.Rules.FailedAt()
		c.begin(v, shard.Settled{Below: settled, Newest: max(v.Number, failed)})
		err = t.run(c.ctx)
	}
	if err != nil {
		err = fmt.Errorf("take over partition %d: %w", c.id, err)
		if isFinal(err) {
			err = c.env.Fail(err)
		}
		c.cancel(err)
		return err
	}
	p.out.run()
	if t.startsOver {
		// Before the first event: after a crash, the next owner would drop the applied offsets
		// again.
		if err := p.checkpoints.make(c.ctx); err != nil {
			err = fmt.Errorf("take over partition %d: note that offsets start over: %w", c.id, err)
			c.cancel(err)
			c.wg.Wait()
			return err
		}
	}
	keys, next := p.keysAndNext()
	if t.seeks {
		p.seek(next)
	}
	c.env.Metrics.opened(c.id, keys)
	context.AfterFunc(c.session.Context(), p.bound)
	release() // from here on Close ends it, and the shard is used under the lock
	c.goes(p.checkpoints.run)
	c.goes(p.ends.run)
	c.goes(p.levels.run)
	c.goes(p.quotas.run)
	c.goes(p.packs.run)
	c.goes(func() error { return p.out.identity.Run(c.ctx) })
	c.openedAt, c.took = time.Now(), time.Since(began)
	c.opened.Store(true)
	p.out.ownStrict(p)
	p.Use(c.env.Rules.Current())
	c.log.Info("partition taken over", "keys", keys, "next_offset", next[shard.Input], "took_seconds", time.Since(began).Seconds())
	return nil
}

func (p *Partition) keysAndNext() (keys int, next [shard.Sources]int64) {
	p.core.lock()
	defer p.core.mu.Unlock()
	for src := range shard.Sources {
		next[src] = p.core.shard.Log().Next(src)
	}
	return p.core.shard.Keys(), next
}

// seek tells the group where the claims start: right after what the checkpoint covers, whatever the
// group has committed. Without a checkpoint the group gets no offset, because an offset means that
// there was one.
func (p *Partition) seek(next [shard.Sources]int64) {
	c := p.core
	for src := range shard.Sources {
		// sarama moves a mark back by the first call, and forward by the second.
		c.session.ResetOffset(c.topicOf(src), c.id, next[src], "")
		c.session.MarkOffset(c.topicOf(src), c.id, next[src], "")
	}
}

// errReleaseTook is the cause if a partition could not be released in time.
var errReleaseTook = fmt.Errorf("%w, but not in time", ErrReleased)

// bound ends the partition some time after its session, so that a release does not wait for a Kafka
// that takes no appends.
func (p *Partition) bound() {
	c := p.core
	late := time.AfterFunc(closeWithin, func() {
		if c.ctx.Err() == nil {
			c.log.Warn("the partition could not be released in time; its events will be replayed", "waited_seconds", closeWithin.Seconds())
			c.cancel(errReleaseTook)
		}
	})
	context.AfterFunc(c.ctx, func() { late.Stop() })
}

// Close makes everything durable, if the partition is still owned here, and ends it.
func (p *Partition) Close() {
	c := p.core
	close(c.stop)
	if c.opened.Load() {
		p.checkpoints.last()
	}
	c.lock() // no goroutine starts from here on
	c.cancel(ErrReleased)
	c.mu.Unlock()
	c.wg.Wait()
	p.out.close()
	p.packs.note(0)
	c.env.Closed(p)
	if pub := c.env.Published; pub != nil {
		pub.Disown(c.id)
	}
	if s := c.env.Strict; s != nil {
		s.Disown(c.id)
	}
	c.env.Metrics.closed(c.id, c.opened.Load())
}

// ID is the partition's number.
func (p *Partition) ID() int32 { return p.core.id }

// Opened reports whether the partition was taken over; it may have failed since.
func (p *Partition) Opened() bool { return p.core.opened.Load() }

// Live reports whether the partition was taken over, and has neither failed nor been closed.
func (p *Partition) Live() bool { return p.Opened() && p.core.ctx.Err() == nil }

// Done is closed when the partition fails or is closed. Err then says why: ErrReleased if it was
// released normally.
func (p *Partition) Done() <-chan struct{} { return p.core.ctx.Done() }

// Err is why the partition has ended; nil until then.
func (p *Partition) Err() error { return context.Cause(p.core.ctx) }

// Fail ends the partition for an error. It can be taken over again, also by this instance.
func (p *Partition) Fail(err error) { p.core.fail(err) }

// Context ends with the partition.
func (p *Partition) Context() context.Context { return p.core.ctx }

// StateBytes returns the memory of the keys' states and their index, as of a moment ago.
func (p *Partition) StateBytes() int64 { return p.core.stateBytes.Load() }

// Use makes the partition count by a version of the rules from its next event on, and evaluates its
// keys by them. A partition that is not open yet takes the newest version when it opens.
func (p *Partition) Use(v *Rules) { p.judging.use(v) }

// SweepAll evicts all idle keys at once. By itself a partition checks a part of them after each
// checkpoint.
func (p *Partition) SweepAll(ctx context.Context) error { return p.checkpoints.sweepAll(ctx) }

// Process applies a bundle's records. Only the partition's own goroutine may call it.
func (p *Partition) Process(b *Bundle) { p.intake.process(b) }

// View calls f with the shard and its rules, while no event is applied. f must be short, must keep
// neither, and must not change them.
func (p *Partition) View(f func(*shard.Shard, *Rules)) {
	p.core.lock()
	defer p.core.mu.Unlock()
	f(p.core.shard, p.core.rules)
}

// SliceTime bounds the delay of events at a time by whoever examines many keys.
const SliceTime = sliceTime

// ViewSome is View for callers that examine many keys. It calls f repeatedly, until f returns false
// or events have been delayed for long enough.
func (p *Partition) ViewSome(f func(*shard.Shard, *Rules) bool) {
	p.core.lock()
	defer p.core.mu.Unlock()
	for began := time.Now(); f(p.core.shard, p.core.rules) && time.Since(began) < sliceTime; {
	}
}
