package owner

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// outbox carries out the shard's effects, and tells it what has become durable. It waits for
// nothing while the partition is locked.
type outbox struct {
	*core
	identity  Identity
	changelog Writer
	verdicts  Writer
	expired   []int64 // producer ids of earlier owners, expired at the coordinator

	loops       map[int32]*loop // by target partition; under mu, like full and offered
	packed      chan struct{}   // see packs.some
	full        []Writer        // with more queued than their bound, see enqueue
	over        []int32         // for which too much waits: see Forwarding
	offered     int64           // Env.Published has the verdict records below this offset
	strict      int64           // the verdict topic below this offset is known to Env.Strict
	strictOwned bool            // which knows that the partition is owned here
	grants      grants
	aux         ticket
	acks        acks
	waits       waits
}

func newOutbox(c *core) *outbox {
	return &outbox{core: c, loops: map[int32]*loop{}, packed: make(chan struct{}, 1), acks: acks{wake: make(chan struct{}, 1)}}
}

// run starts the writers, and tells the shard of acknowledgements, until the partition ends.
func (o *outbox) run() {
	o.goes(func() error { return o.changelog.Run(o.ctx) })
	o.goes(func() error { return o.verdicts.Run(o.ctx) })
	o.goes(o.acknowledge)
}

// perform carries out what the shard has asked for since the last call. The partition is locked.
func (o *outbox) perform() error {
	e := o.shard.Effects()
	if e.Empty() {
		return nil
	}
	defer e.Reset()
	for i := range e.States {
		a := &e.States[i]
		if err := o.enqueue(o.changelog, fenced.Record{Key: a.Key, Value: a.Value}, a.Urgent, o.acknowledged(a)); err != nil {
			return err
		}
	}
	for i := range e.Forwards {
		if err := o.forward(&e.Forwards[i]); err != nil {
			return err
		}
	}
	for i := range e.Aux {
		o.sendAux(&e.Aux[i])
	}
	for i := range e.Verdicts {
		a := &e.Verdicts[i]
		if err := o.enqueue(o.verdicts, fenced.Record{Key: a.Key, Value: a.Value}, a.Urgent, o.acknowledged(a)); err != nil {
			return err
		}
	}
	o.tell(e)
	return nil
}

// forwardOverhead is about what a forward takes in memory beside its value.
const forwardOverhead = 256

// forward appends to the repartition topic. If too much waits for the same partition, no more events are
// applied until there is room. The partition is locked.
func (o *outbox) forward(f *shard.Forward) error {
	o.env.Metrics.forwarded.Add(float64(f.Events))
	o.env.Metrics.forwards.Inc()
	l := o.loopTo(f.To)
	done := l.waits(int64(len(f.Value))+forwardOverhead, f.Packed)
	if o.env.Forwarding.over(f.To) && !slices.Contains(o.over, f.To) {
		o.over = append(o.over, f.To)
	}
	_, err := l.Enqueue(fenced.Record{Value: f.Value, Headers: forwardHeaders(f)}, true, done)
	if err != nil {
		done(-1, time.Time{}, err)
	}
	return err
}

// close takes off what was not forwarded. The partition's goroutines have ended.
func (o *outbox) close() {
	for _, l := range o.loops {
		l.forget()
	}
}

// packing reports whether a pack is on its way to a partition. The partition is locked.
func (o *outbox) packing(to int32) bool {
	l := o.loops[to]
	return l != nil && l.packs.Load() > 0
}

// tell informs others: the blocklist's publisher, callers that wait for a command, metrics and the
// log.
func (o *outbox) tell(e *shard.Effects) {
	for i := range e.Published {
		is := &e.Published[i]
		o.env.Metrics.published(is)
		if is.Traced != nil && o.env.Tracer != nil {
			o.env.Tracer.Published(is)
		}
		o.offer(VerdictRecord{is.Offset, is.Key, is.Value, is.At, is.Verdict})
	}
	o.offerStrict(e)
	for i := range e.Counted {
		o.env.Tracer.Counted(&e.Counted[i])
	}
	for i := range e.Done {
		d := &e.Done[i]
		o.waits.done(d)
	}
	for i := range e.Blown {
		o.env.Metrics.fuses.WithLabelValues(e.Blown[i].Rule).Inc()
	}
	for i := range e.Skipped {
		o.env.Metrics.skipped(e.Skipped[i])
	}
	for _, n := range e.Notes {
		o.log.Log(o.ctx, [...]slog.Level{shard.Info: slog.LevelInfo, shard.Warn: slog.LevelWarn, shard.Error: slog.LevelError}[n.Level], n.Text, n.Args...)
	}
}

// own tells the publisher that the partition is owned here. It reads verdicts below end by itself.
func (o *outbox) own(end int64) {
	o.offered, o.strict = end, end
	if pub := o.env.Published; pub != nil {
		pub.Own(o.id)
	}
}

// offer hands an acknowledged record to the publisher.
func (o *outbox) offer(r VerdictRecord) {
	if pub := o.env.Published; pub != nil {
		pub.Offer(o.id, o.offered, r.Offset+1, r)
	}
	o.offered = r.Offset + 1
}

// sendAux sets a record's time, for topics that do not set it themselves. Brokers refuse a time
// that is in their future, so it should be theirs; the zero time means now.
func (o *outbox) sendAux(a *shard.Aux) {
	topic, kind := o.env.Names.Audit, budget.Audit
	if a.Topic == shard.DeadLetters {
		topic, kind = o.env.Names.DeadLetters, budget.DeadLetters
		o.env.Metrics.deadLetter(a.Reason)
	}
	m := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder(a.Value), Timestamp: a.At, Metadata: auxMark{o.aux.send(), kind}}
	if a.Key != nil {
		m.Key = sarama.ByteEncoder(a.Key)
	}
	for _, h := range a.Headers {
		m.Headers = append(m.Headers, sarama.RecordHeader(h))
	}
	o.env.Aux.send(m)
}

// enqueue appends a record under the partition's lock, without waiting, so that others do not wait
// for a topic that takes no appends. If too much is queued then, no more events are applied until
// there is room.
func (o *outbox) enqueue(w Writer, rec fenced.Record, urgent bool, done fenced.Done) error {
	full, err := w.Enqueue(rec, urgent, done)
	if full && !slices.Contains(o.full, w) {
		o.full = append(o.full, w)
	}
	return err
}

// crowded reports whether too much is queued to apply another event. The partition is locked.
func (o *outbox) crowded() bool { return len(o.full) > 0 || o.forwardsFull() || o.auxFull() }

// forwardsFull reports whether too much waits for a partition that something was forwarded to, or for all. The
// partition is locked.
func (o *outbox) forwardsFull() bool { return len(o.over) > 0 || o.env.Forwarding.full() }

// auxFull reports whether the queue for the audit and the dead-letter topic is full.
func (o *outbox) auxFull() bool { return o.env.Aux != nil && o.env.Aux.full() }

// crowds have no room.
type crowds struct {
	writers []Writer
	loops   []int32
}

// takeFull takes what has too much queued. The partition is locked.
func (o *outbox) takeFull() crowds {
	full := crowds{o.full, o.over}
	o.full, o.over = nil, nil
	return full
}

// awaitRoom waits until there is room in these, in all forwards and in Aux, or the partition stops working.
// The partition is not locked.
func (o *outbox) awaitRoom(full crowds) {
	for _, w := range full.writers {
		if w.AwaitRoom(o.working) != nil {
			return
		}
	}
	if f := o.env.Forwarding; (len(full.loops) > 0 || f.full()) && !f.awaitRoom(o.working, full.loops) {
		return
	}
	if o.auxFull() {
		o.env.Aux.awaitRoom(o.working)
	}
}

// loopTo returns the way to a partition of the repartition topic. The partition is locked.
func (o *outbox) loopTo(target int32) *loop {
	l := o.loops[target]
	if l == nil {
		l = &loop{Writer: o.identity.NewWriter(o.env.Names.Loop, target), to: target, all: o.env.Forwarding, some: o.packed}
		o.loops[target] = l
		o.goes(func() error { return o.runLoop(l.Writer, target) })
	}
	return l
}

// runLoop fences a partition of the repartition topic before the first forward to it, then runs the
// writer.
func (o *outbox) runLoop(w Writer, target int32) error {
	for _, pid := range o.expired {
		if _, err := o.identity.FenceOld(o.ctx, o.env.Names.Loop, target, pid); err != nil {
			return err
		}
	}
	if _, _, err := w.FenceAt(o.ctx); err != nil {
		return err
	}
	return w.Run(o.ctx)
}

// acknowledged returns the function that a writer calls when an append is durable; nil if there is
// nothing to do then. It ignores errors, because the writer's Run returns them.
func (o *outbox) acknowledged(a *shard.Append) fenced.Done {
	if a.Ack == nil && !a.Urgent {
		return nil
	}
	ack := a.Ack
	return func(offset int64, at time.Time, err error) {
		if err != nil {
			return
		}
		o.brokers.appended(at)
		if ack != nil {
			o.acks.add(acked{ack, offset})
		}
	}
}

// acknowledge tells the shard of acknowledgements while no events arrive.
func (o *outbox) acknowledge() error {
	for {
		select {
		case <-o.acks.wake:
		case <-o.ctx.Done():
			return nil
		}
		if !o.acks.some.Load() {
			continue // the partition's goroutine took them
		}
		if err := o.settleAcks(); err != nil {
			return err
		}
	}
}

// settleAcks is takeAcks for callers without the lock.
func (o *outbox) settleAcks() error {
	o.lock()
	defer o.mu.Unlock()
	return o.takeAcks()
}

// takeAcks tells the shard what was acknowledged. The partition is locked.
func (o *outbox) takeAcks() error {
	if !o.acks.some.Load() {
		return nil
	}
	clock := o.clock()
	for _, a := range o.acks.take() {
		o.shard.Acked(a.of, a.offset, clock)
	}
	return o.perform()
}

// timed calls f with the partition locked, and carries out the effects.
func (o *outbox) timed(f func() error) error {
	o.lockTimed()
	defer o.unlockTimed()
	if err := f(); err != nil {
		return err
	}
	return o.perform()
}

// sent is the output up to a moment, except states and verdicts.
type sent struct {
	loops map[int32]*loop
	aux   int
}

// cut returns the output up to now. The partition is locked, and everything of the previous cut is
// durable.
func (o *outbox) cut() sent { return sent{maps.Clone(o.loops), o.aux.cut()} }

// flush waits until everything up to the cut is acknowledged: states, the verdicts that these
// acknowledgements trigger, forwards to other partitions, and auxiliary output.
func (o *outbox) flush(ctx context.Context, s sent) error {
	if err := o.flushVerdicts(ctx); err != nil {
		return err
	}
	for _, w := range s.loops {
		if err := w.Flush(ctx); err != nil {
			return err
		}
	}
	return o.aux.wait(ctx, s.aux)
}

// flushVerdicts waits until the states asked for so far are acknowledged, and the verdicts that
// these acknowledgements trigger.
func (o *outbox) flushVerdicts(ctx context.Context) error {
	if err := o.changelog.Flush(ctx); err != nil {
		return err
	}
	if err := o.settleAcks(); err != nil {
		return err
	}
	return o.verdicts.Flush(ctx)
}
