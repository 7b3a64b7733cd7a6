package aggregate

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
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
	r := recovery{p: p, old: map[int64]fenced.FenceRecord{}}
	if err := r.read(ctx, fence); err != nil {
		return err
	}
	if err := r.fenceExpired(ctx); err != nil {
		return err
	}
	if err := p.resume(r.start); err != nil {
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
	p.lock()
	defer p.mu.Unlock()
	if err := p.shard.Republish(p.clock()); err != nil {
		return err
	}
	return p.perform()
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
	p     *partition
	old   map[int64]fenced.FenceRecord // the newest fence of each producer id that is not ours
	start int64                        // of the changelog
	next  int64                        // where reading goes on
}

// read applies the changelog's records up to the one at offset through.
func (r *recovery) read(ctx context.Context, through int64) error {
	topic := r.p.agg.names.Table
	if through < r.next { // a fence that an earlier takeover has left
		return nil
	}
	if r.next == 0 {
		oldest, err := r.p.agg.clients.bulk.GetOffset(topic, r.p.id, sarama.OffsetOldest)
		if err != nil {
			return fmt.Errorf("find the start of the changelog: %w", err)
		}
		r.next, r.start = oldest, oldest
	}
	err := r.p.agg.logs.Scan(ctx, topic, r.p.session.topics[topic].ID, r.p.id, r.next, through+1, func(rec *kafkalog.Record) error {
		if err := r.apply(rec); err != nil {
			return fmt.Errorf("changelog record %s/%d at %d: %w", topic, r.p.id, rec.Offset, err)
		}
		r.next = rec.Offset + 1
		return nil
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	return nil
}

func (r *recovery) apply(rec *kafkalog.Record) error {
	if !fenced.IsFence(rec.Key) {
		return r.p.shard.Load(rec.Offset, rec.Key, rec.Value)
	}
	f, err := fenced.ParseFence(rec.Value)
	if err != nil {
		return err
	}
	if f.ProducerID != r.p.identity.ProducerID() {
		r.old[f.ProducerID] = f
	} else {
		r.p.clockOfBroker.appended(rec.Time()) // in the end our own, from a moment ago
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
			if err := r.p.identity.Refresh(ctx); err != nil {
				return fmt.Errorf("make sure that this is the newest owner: %w", err)
			}
		}
		// Also when an owner before has done so: brokers forget within a day.
		for _, topic := range []string{r.p.agg.names.Verdicts, r.p.agg.names.Table} {
			fence, err := fenced.FenceOld(ctx, r.p.fencedConfig(), topic, r.p.id, pid)
			if err != nil {
				return fmt.Errorf("fence the owner with the expired producer id %d: %w", pid, err)
			}
			if topic != r.p.agg.names.Table {
				continue
			}
			if err := r.read(ctx, fence); err != nil {
				return err
			}
		}
		r.p.expired = append(r.p.expired, pid)
	}
	return nil
}
