package owner

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// Partition is one owned partition, from takeover to release, or until it fails. Make it with New, call
// Open, then Process from one goroutine; Close it once, also after Open has failed.
type Partition struct {
	core *core
	*progress
	*commands
	out         *outbox
	checkpoints *checkpoints
	ends        *ends
	judging     *judging
	intake      *intake
}

// New makes a partition that is not open yet.
func New(env *Env, id int32, s *Session) *Partition {
	c := newCore(env, id, s)
	p := &Partition{core: c, progress: &progress{core: c}, out: newOutbox(c)}
	p.commands = &commands{core: c, out: p.out, progress: p.progress}
	p.ends = &ends{core: c, out: p.out, some: make(chan struct{}, 1)}
	p.checkpoints = &checkpoints{core: c, out: p.out, ends: p.ends, turn: make(chan struct{}, 1)}
	p.judging = &judging{core: c, out: p.out}
	p.intake = &intake{core: c, out: p.out, checkpoints: p.checkpoints, ends: p.ends}
	return p
}

// Open takes the partition over: new epoch, fence records, recovery up to the fence.
func (p *Partition) Open() error {
	began, c := time.Now(), p.core
	release := context.AfterFunc(c.session.Context(), func() { c.cancel(ErrReleased) })
	t := newTakeover(c, p.out)
	err := c.env.Rules.Refresh(c.ctx) // no older version than any checkpoint's
	if err == nil {
		c.begin(c.env.Rules.Current())
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
		// Before the first event: an owner after a crash would drop the marks once more.
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
	release() // from here on Close ends it, and the state is read and written with the lock
	c.goes(p.checkpoints.run)
	c.goes(p.ends.run)
	c.goes(func() error { return p.out.identity.Run(c.ctx) })
	c.openedAt = time.Now()
	c.opened.Store(true)
	p.Use(c.env.Rules.Current())
	c.log.Info("partition taken over", "keys", keys, "next_offset", next[shard.Input], "took_seconds", time.Since(began).Seconds())
	return nil
}

func (p *Partition) keysAndNext() (keys int, next [shard.Sources]int64) {
	p.core.lock()
	defer p.core.mu.Unlock()
	for src := range shard.Sources {
		next[src] = p.core.shard.Next(src)
	}
	return p.core.shard.Keys(), next
}

// seek notes with the group where the claims start: right after what the checkpoint covers, whatever
// offset it has. Where there is no checkpoint the group is left without an offset: one that is there
// tells that a checkpoint was.
func (p *Partition) seek(next [shard.Sources]int64) {
	c := p.core
	for src := range shard.Sources {
		c.session.ResetOffset(c.topicOf(src), c.id, next[src], "") // sarama moves a mark back by the one,
		c.session.MarkOffset(c.topicOf(src), c.id, next[src], "")  // and forward by the other
	}
}

// errReleaseTook is why a partition ended that could not be released in good order in time.
var errReleaseTook = fmt.Errorf("%w, but not in time", ErrReleased)

// bound ends the partition when it is still there some time after its session: whoever waits for
// it does not wait for a Kafka that takes no appends.
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

// Close makes everything durable, if that is still ours to do, and ends the partition.
func (p *Partition) Close() {
	c := p.core
	close(c.stop)
	if c.opened.Load() {
		p.checkpoints.last()
	}
	c.lock() // nothing new begins from here on
	c.cancel(ErrReleased)
	c.mu.Unlock()
	c.wg.Wait()
	c.env.Closed(p)
	if pub := c.env.Published; pub != nil {
		pub.Disown(c.id)
	}
	c.env.Metrics.closed(c.id, c.opened.Load())
}

// ID is the partition's number.
func (p *Partition) ID() int32 { return p.core.id }

// Opened reports whether the partition was taken over; it may have failed since.
func (p *Partition) Opened() bool { return p.core.opened.Load() }

// Live reports whether the partition was taken over, and has neither failed nor been closed.
func (p *Partition) Live() bool { return p.Opened() && p.core.ctx.Err() == nil }

// Done is closed when the partition fails or is closed; Err says why then: ErrReleased if all is well.
func (p *Partition) Done() <-chan struct{} { return p.core.ctx.Done() }

// Err is why the partition has ended; nil while it has not.
func (p *Partition) Err() error { return context.Cause(p.core.ctx) }

// Fail ends the partition for an error: it can be taken over again, also by this instance.
func (p *Partition) Fail(err error) { p.core.fail(err) }

// Context ends with the partition.
func (p *Partition) Context() context.Context { return p.core.ctx }

// Use makes the partition count by a version of the rules from its next event on, and judges
// the keys that it has by them. One that is not open yet takes the newest version when it is.
func (p *Partition) Use(v *Rules) { p.judging.use(v) }

// SweepAll lets all idle keys go at once. By itself a partition looks at a part of them after each checkpoint.
func (p *Partition) SweepAll(ctx context.Context) error { return p.checkpoints.sweepAll(ctx) }

// Process applies a bundle's records. It is for the partition's own goroutine.
func (p *Partition) Process(b *Bundle) { p.intake.process(b) }

// View calls f with the shard, and the rules that it counts by, while no event is applied. It must be short, keep
// neither, and change nothing.
func (p *Partition) View(f func(*shard.Shard, *Rules)) {
	p.core.lock()
	defer p.core.mu.Unlock()
	f(p.core.shard, p.core.rules)
}

// ViewSome is View for those who look at many keys: it calls f again and again, for as long as events may be kept
// waiting, and until f returns false.
func (p *Partition) ViewSome(f func(*shard.Shard, *Rules) bool) {
	p.core.lock()
	defer p.core.mu.Unlock()
	for began := time.Now(); f(p.core.shard, p.core.rules) && time.Since(began) < sliceTime; {
	}
}
