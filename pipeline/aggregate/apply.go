package aggregate

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/fetch"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// decoders are the partition's own. What they returned is in use until the next record that finds
// nothing gathered.
type decoders struct {
	input, loop event.Decoder
	record      fetch.Record
	headers     []event.Header
	events      []event.Event
	droppedIPs  uint64 // of input, as far as the metric knows
}

// decodeRecord decodes a record behind those that are gathered.
func (p *partition) decodeRecord(d *event.Decoder, value []byte, headers []event.Header, key []byte) ([]event.Event, error) {
	decode := d.DecodeMore
	if len(p.gathered.steps) == 0 {
		decode = d.Decode
	}
	events, err := decode(value, headers, key, p.decode.events[:0])
	p.decode.events = events
	return events, err
}

// process applies a bundle's records, and lets others in between them.
func (p *partition) process(b *bundle) {
	defer p.panicked()
	p.mu.Lock()
	for more := true; more; {
		side := p.sideFull()
		if p.waiting.Load() > 0 || len(p.full) > 0 || side {
			full := p.full
			p.full = nil
			p.mu.Unlock()
			p.awaitRoom(full)
			runtime.Gosched()
			if side {
				p.agg.side.waitRoom(p.ctx, p.session.Context())
			}
			p.mu.Lock()
		}
		if p.working.Err() != nil {
			break // failed or released: whoever takes over reads it again
		}
		if e := b.epoch(); e > p.epochs.Is[b.lane] && !p.enterEpoch(b.lane, e) {
			break // the checkpoint failed, or the partition is released
		}
		var err error
		if more, err = p.apply(b); err != nil {
			p.die(p.ended(err))
			break
		}
	}
	p.broker = p.clock()
	p.tally.flush(p.agg.metrics)
	p.mu.Unlock()
}

// enqueue appends a record under the partition's lock, without waiting: whoever waits for the lock is not
// to wait for a topic that takes no appends. Where too much is queued then, no more events are applied
// until there is room again.
func (p *partition) enqueue(w *fenced.Writer, rec fenced.Record, urgent bool, done fenced.Done) error {
	full, err := w.Enqueue(rec, urgent, done)
	if full && !slices.Contains(p.full, w) {
		p.full = append(p.full, w)
	}
	return err
}

// awaitRoom waits until writers have room, or the partition works no more. Without the lock.
func (p *partition) awaitRoom(full []*fenced.Writer) {
	for _, w := range full {
		if w.AwaitRoom(p.working) != nil {
			return
		}
	}
}

// sideFull reports whether so much waits for the audit and the dead-letter topic that nothing may add to it.
func (p *partition) sideFull() bool { return p.agg.side != nil && p.agg.side.full() }

// applyAtOnce is how many records may keep others waiting that none of the rules counts.
const applyAtOnce = 256

// apply applies the first of a bundle's records, until enough is gathered, and reports whether
// there may be more.
func (p *partition) apply(b *bundle) (more bool, err error) {
	next, m := p.next[b.lane], &p.decode.record
	for n := 0; n < applyAtOnce && len(p.gathered.steps) < gatherAtOnce && (n == 0 || !p.sideFull()); n++ {
		if b.epoch() > p.epochs.Is[b.lane] { // first a checkpoint
			more = true
			break
		}
		more, err = b.next(m)
		if bad, ok := errors.AsType[*fetch.Unreadable](err); ok {
			if next, err = p.passOver(b.lane, next, bad); err != nil {
				return false, err
			}
			more = true
			continue
		}
		if err != nil {
			return false, err
		}
		if !more {
			next = max(next, b.place)
			break
		}
		if m.Offset < next {
			p.tally.replayed++
			continue
		}
		if err := p.record(b.lane, m); err != nil {
			return false, err
		}
		next = m.Offset + 1
	}
	if err := p.stepGathered(); err != nil {
		return false, err
	}
	p.next[b.lane] = next
	return more, nil
}

// panicked ends the instance when an event made it panic. goka would recover from that, and
// everything would wait for the lock without a word.
func (p *partition) panicked() {
	r := recover()
	if r == nil {
		return
	}
	p.die(fmt.Errorf("%w: panic: %v\n%s", errFatal, r, debug.Stack()))
	p.mu.Unlock() // what is half done stays in memory: nothing is written after the end
}

func (p *partition) record(l lane, m *fetch.Record) error {
	if l == loopLane {
		return p.loopRecord(m)
	}
	return p.inputRecord(m)
}

// inputRecord applies what a producer sent: an event, several, or something else.
func (p *partition) inputRecord(m *fetch.Record) error {
	broker := brokerTime(m)
	p.broker, p.lastOf[inputLane] = max(p.broker, broker), broker
	if p.repeated(m, broker) {
		p.tally.producerRepeat++
		return nil
	}
	d := &p.decode
	d.headers = d.headers[:0]
	for headers := m.Headers; ; {
		key, value, ok := headers.Next()
		if !ok {
			break
		}
		if event.IsCloudEvents(key) {
			d.headers = append(d.headers, event.Header{Key: string(key), Value: value})
		}
	}
	events, err := p.decodeRecord(&d.input, m.Value, d.headers, m.Key)
	if err != nil || len(d.input.Bad) > 0 {
		if err := p.deadLetter(inputLane, m, d.input.Bad, err); err != nil {
			return err
		}
	}
	if n := d.input.DroppedIPs; n > d.droppedIPs {
		p.agg.metrics.droppedIPs.Add(float64(n - d.droppedIPs))
		d.droppedIPs = n
	}
	for i := range events {
		if err := p.inputEvent(&events[i], d.input.Raw(i), m.Offset, i, broker); err != nil {
			return err
		}
	}
	return nil
}

// brokerTime is a record's time; event.NoTime when it has none, as its producer may leave it out
// where the topic takes the producer's.
func brokerTime(m *fetch.Record) event.Micros {
	const none = -1
	if m.Timestamp == none {
		return event.NoTime
	}
	return event.FromTime(m.Time())
}

// repeated reports whether an emitter's retry put this record into the log a second time.
func (p *partition) repeated(m *fetch.Record, broker event.Micros) bool {
	var instance []byte
	var seq uint64
	from := p.id
	for headers := m.Headers; ; {
		key, value, ok := headers.Next()
		if !ok {
			break
		}
		switch string(key) {
		case event.HeaderInstance:
			instance = value
		case event.HeaderSequence:
			seq, _ = event.ParseSequence(value)
		case event.HeaderPartition:
			if to, ok := event.ParsePartition(value); ok {
				from = to
			}
		}
	}
	return len(instance) > 0 && seq > 0 && p.producers.repeated(instance, from, seq, broker)
}

// inputEvent gathers the steps of the keys that this partition owns, and forwards the event, once
// each, to the partitions that own the others: raw, as it came, unless it is part of a CloudEvent.
func (p *partition) inputEvent(e *event.Event, raw []byte, offset int64, index int, broker event.Micros) error {
	at, ok := p.rules.set.EventTime(e, broker)
	switch {
	case ok:
	case at == event.NoTime:
		p.tally.noTime++
		return nil
	default:
		p.tally.tooOld++
		return nil
	}
	works := p.match(e, at)
	targets := p.targets[:0]
	for i := range works {
		owner := p.owner(&works[i])
		if owner != p.id {
			if !slices.Contains(targets, owner) {
				targets = append(targets, owner)
			}
			continue
		}
		p.gathered.add(&works[i], gatheredStep{
			id: e.ID, at: at, broker: broker, lane: inputLane, mark: mark{offset + 1, index},
			cause: verdict.Cause{ID: e.ID, Partition: p.id, Offset: offset},
		})
	}
	p.targets = targets
	for _, target := range targets {
		from, value := origin{p.id, offset, index, p.generation}, []byte(nil)
		if raw != nil {
			value = appendForwardRaw(nil, from, broker, raw)
		} else {
			value = appendForward(nil, from, broker, e)
		}
		if err := p.forward(target, value); err != nil {
			return err
		}
	}
	return nil
}

// loopRecord counts an event that another partition forwarded, unless it has come before: an
// owner forwards again after a crash, in the same order.
func (p *partition) loopRecord(m *fetch.Record) error {
	if fenced.IsOwnerRecord(m.Key) {
		return nil
	}
	if isCommand(m.Value) {
		return p.commandRecord(m)
	}
	from, broker, body, err := decodeForward(m.Value)
	if err != nil {
		if errors.Is(err, errNewerFormat) {
			return err
		}
		return p.deadLetter(loopLane, m, nil, err)
	}
	p.broker, p.lastOf[loopLane] = max(p.broker, broker), broker
	if p.origins[from.partition].covers(from) {
		p.tally.replayed++
		return nil
	}
	p.origins[from.partition] = seen{mark{from.offset + 1, from.index}, from.generation}
	events, err := p.decodeRecord(&p.decode.loop, body, nil, nil)
	if err != nil || len(events) != 1 {
		return p.deadLetter(loopLane, m, p.decode.loop.Bad, err)
	}
	e := &events[0]
	at, ok := p.rules.set.EventTime(e, broker)
	if !ok {
		return nil // its source tallied it
	}
	works := p.match(e, at)
	for i := range works {
		if p.owner(&works[i]) != p.id {
			continue
		}
		p.gathered.add(&works[i], gatheredStep{
			id: e.ID, at: at, broker: broker, lane: loopLane, mark: mark{m.Offset + 1, 0},
			cause: verdict.Cause{ID: e.ID, Partition: from.partition, Offset: from.offset},
		})
	}
	return nil
}

func (p *partition) match(e *event.Event, at event.Micros) []rules.Work {
	works := p.matcher.Match(e, at)
	for _, s := range p.matcher.Skipped {
		p.agg.metrics.skipped(s)
	}
	if len(works) == 0 {
		p.tally.unmatched++
	}
	return works
}

func (p *partition) owner(w *rules.Work) int32 { return int32(w.Hash&0x7fffffff) % p.of }

// step applies an event to one key's state, once: what is at or below the key's mark is in it
// already.
func (p *partition) step(hash uint64, w *rules.Work, s *gatheredStep) error {
	p.hot.Touch(w.Key)
	var b block
	ref, known := p.table.Find(hash, w.Key)
	if known {
		var err error
		if b, err = decodeBlock(p.table.Block(ref)); err != nil {
			return err
		}
	}
	if b.marks[s.lane].covers(s.mark.next-1, s.mark.index) {
		p.tally.replayed++
		return nil
	}
	next, res := p.stepper.Step(append(p.scratch[:0], blockHeaderSpace[:]...), b.state, rules.Input{
		Key: w.Key, Hits: w.Hits, At: s.at, ID: s.id, Cause: s.cause, Active: p.table.Len(),
	})
	p.scratch = next
	for _, r := range res.Blown {
		if err := p.blown(r); err != nil {
			return err
		}
	}
	p.tally.stepped(w, &res)
	if res.Repeat || res.Unknown {
		return nil
	}
	changes := p.holdBack(w.Key, p.worthPublishing(res.Changes, b.state, w.Key, s), res.Moves)
	b.marks[s.lane], b.spent = s.mark, res.SpentAt
	raw := putBlockHeader(next, &b)
	if known {
		ref = p.table.Replace(ref, w.Key, raw)
	} else {
		ref = p.table.Add(hash, w.Key, raw)
	}
	if len(changes) == 0 {
		return nil
	}
	return p.writeThrough(ref, changes, s.broker)
}

// forward hands an event to the partition that owns a key of it.
func (p *partition) forward(target int32, value []byte) error {
	p.agg.metrics.forwarded.Inc()
	return p.enqueue(p.loopWriter(target), fenced.Record{Value: value}, true, nil)
}

// loopWriter is the writer to a loop partition. The partition is locked.
func (p *partition) loopWriter(target int32) *fenced.Writer {
	w := p.loops[target]
	if w == nil {
		w = p.identity.NewWriter(p.agg.names.Loop, target)
		p.loops[target] = w
		p.wg.Go(func() { p.die(p.ended(p.runLoop(w, target))) })
	}
	return w
}

// runLoop fences a loop partition before the first forward there, then lets the writer write.
func (p *partition) runLoop(w *fenced.Writer, target int32) error {
	for _, pid := range p.expired {
		if _, err := fenced.FenceOld(p.ctx, p.fencedConfig(), p.agg.names.Loop, target, pid); err != nil {
			return err
		}
	}
	if _, err := w.Fence(p.ctx); err != nil {
		return err
	}
	return w.Run(p.ctx)
}
