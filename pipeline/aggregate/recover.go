package aggregate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/rules"
)

// takeOver makes this instance the partition's only writer, and recovers what its owners
// before have left. From the fence record on, the broker refuses what any of them still sends;
// what it had accepted earlier lies below the fence, and is read.
func (p *partition) takeOver(ctx context.Context) error {
	id, err := fenced.Acquire(ctx, p.fencedConfig())
	if err != nil {
		return fmt.Errorf("get a producer epoch: %w", err)
	}
	p.identity = id
	p.changelog = id.NewWriter(p.agg.names.Table, p.id)
	p.verdicts = id.NewWriter(p.agg.names.Verdicts, p.id)
	fence, at, err := p.changelog.FenceAt(ctx)
	if err != nil {
		return fmt.Errorf("fence the changelog: %w", err)
	}
	p.clockOfBroker.appended(at)
	if _, err := p.verdicts.Fence(ctx); err != nil {
		return fmt.Errorf("fence the verdicts: %w", err)
	}
	r := recovery{partition: p, old: map[int64]fenced.FenceRecord{}, pending: map[string]leftover{}, parts: map[string][]byte{}}
	if err := r.read(ctx, fence); err != nil {
		return err
	}
	if err := r.fenceExpired(ctx); err != nil {
		return err
	}
	if err := p.resume(r.checkpoint); err != nil {
		return err
	}
	if r.checkpoint != nil {
		gone, err := p.producers.restore(r.checkpoint, r.parts)
		if err != nil {
			return err
		}
		if gone > 0 {
			p.log.Warn("the changelog lacks parts of the table of producers: what they sent twice may count twice", "parts", gone)
		}
	}
	p.leftovers, p.end = r.pending, r.next
	p.useExemptions()
	if err := p.noteBlocks(); err != nil {
		return err
	}
	end, err := p.agg.clients.bulk.GetOffset(p.agg.names.Verdicts, p.id, sarama.OffsetNewest)
	if err != nil {
		return fmt.Errorf("find the end of the verdicts: %w", err)
	}
	p.offered = end
	if pub := p.agg.cfg.Published; pub != nil {
		pub.Own(p.id)
	}
	return nil
}

// noteBlocks tells the rules' fuses which keys are blocked.
func (p *partition) noteBlocks() error {
	if p.stepper.Fuses == nil {
		return nil
	}
	for ref := range p.table.All() {
		b, err := decodeBlock(p.table.Block(ref))
		if err != nil {
			return err
		}
		p.stepper.NoteState(b.state, p.table.Key(ref))
	}
	return nil
}

func (p *partition) fencedConfig() fenced.Config {
	return fenced.Config{
		Urgent:          p.agg.links.urgent,
		Bulk:            p.agg.links.bulk,
		Log:             p.log,
		OnError:         p.agg.metrics.kafkaError,
		TransactionalID: fmt.Sprintf("%s-%d", p.agg.names.Group, p.id),
	}
}

// recovery is a partition's changelog being read.
type recovery struct {
	*partition
	checkpoint *checkpoint
	old        map[int64]fenced.FenceRecord // the newest fence of each producer id that is not ours
	pending    map[string]leftover
	parts      map[string][]byte // of the table of producers, by key
	next       int64             // where reading goes on
}

// leftover is what a key's last record says of verdicts that were not yet published.
type leftover struct {
	offset   int64 // of that record: the seq of those without one
	verdicts []unpublished
}

// read applies the changelog's records up to the one at offset through.
func (r *recovery) read(ctx context.Context, through int64) error {
	topic := r.agg.names.Table
	if through < r.next { // a fence that an earlier takeover has left
		return nil
	}
	if r.next == 0 {
		oldest, err := r.agg.clients.bulk.GetOffset(topic, r.id, sarama.OffsetOldest)
		if err != nil {
			return fmt.Errorf("find the start of the changelog: %w", err)
		}
		r.next, r.start = oldest, oldest
	}
	consumer, err := sarama.NewConsumerFromClient(r.agg.clients.read)
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	defer consumer.Close()
	pc, err := consumer.ConsumePartition(topic, r.id, r.next)
	if err != nil {
		return fmt.Errorf("read the changelog from %d: %w", r.next, err)
	}
	defer pc.AsyncClose()
	for {
		select {
		case m, ok := <-pc.Messages():
			if !ok {
				return fmt.Errorf("read the changelog from %d: its start has moved beyond that", r.next)
			}
			if err := r.apply(m); err != nil {
				return fmt.Errorf("changelog record %s/%d at %d: %w", topic, r.id, m.Offset, err)
			}
			r.next = m.Offset + 1
			if m.Offset >= through {
				return nil
			}
		case err, ok := <-pc.Errors():
			if !ok {
				return fmt.Errorf("read the changelog from %d: its start has moved beyond that", r.next)
			}
			r.log.Warn("reading the changelog", "error", err)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (r *recovery) apply(m *sarama.ConsumerMessage) error {
	switch {
	case fenced.IsOwnerRecord(m.Key):
		return r.applyOwnerRecord(m)
	case m.Value == nil:
		r.table.Delete(m.Key)
		r.exempt.forget(m.Key)
		delete(r.pending, string(m.Key))
		return nil
	}
	pending, raw, err := decodeWire(m.Value)
	if err != nil {
		return err
	}
	b, err := decodeBlock(raw)
	if err != nil {
		return err
	}
	err = rules.CheckState(b.state)
	if err == nil {
		err = r.rules.set.CheckWindows(b.state)
	}
	if err != nil {
		return fmt.Errorf("state of a key: %w", err)
	}
	r.table.Load(m.Key, raw)
	r.exempt.note(m.Key, b.state)
	if len(pending) > 0 {
		r.pending[string(m.Key)] = leftover{m.Offset, pending}
	} else if len(r.pending) > 0 {
		delete(r.pending, string(m.Key))
	}
	return nil
}

func (r *recovery) applyOwnerRecord(m *sarama.ConsumerMessage) error {
	switch string(m.Key) {
	case checkpointKey:
		c, err := decodeCheckpoint(m.Value)
		if err != nil {
			return fmt.Errorf("%w: %w", errFatal, err) // trying again reads the same
		}
		r.checkpoint = c
	default:
		if isPart(m.Key) {
			r.parts[string(m.Key)] = m.Value
			return nil
		}
		if !fenced.IsFence(m.Key) {
			return nil
		}
		f, err := fenced.ParseFence(m.Value)
		if err != nil {
			return err
		}
		if f.ProducerID != r.identity.ProducerID() {
			r.old[f.ProducerID] = f
		} else {
			r.clockOfBroker.appended(m.Timestamp) // in the end our own, from a moment ago
		}
	}
	return nil
}

// fenceExpired refuses owners whose producer ids are no more: the coordinator has forgotten
// them, or their epochs were used up. Ours is another one, and its epoch says nothing about
// theirs. What they still got in is read.
func (r *recovery) fenceExpired(ctx context.Context) error {
	for _, pid := range slices.Sorted(maps.Keys(r.old)) {
		if f := r.old[pid]; !f.ShutOut() {
			// Were it our successor's, who was given another id while we were taking over, it
			// would be refused for ever.
			if err := r.identity.Refresh(ctx); err != nil {
				return fmt.Errorf("make sure that this is the newest owner: %w", err)
			}
		}
		// Also when an owner before has done so: brokers forget within a day.
		for _, topic := range []string{r.agg.names.Verdicts, r.agg.names.Table} {
			fence, err := fenced.FenceOld(ctx, r.fencedConfig(), topic, r.id, pid)
			if err != nil {
				return fmt.Errorf("fence the owner with the expired producer id %d: %w", pid, err)
			}
			if topic != r.agg.names.Table {
				continue
			}
			if err := r.read(ctx, fence); err != nil {
				return err
			}
		}
		r.expired = append(r.expired, pid)
	}
	return nil
}
