package owner

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/tallygate/tallygate/pipeline/aggregate/fenced"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// takeover makes this instance the partition's only writer, and recovers what earlier owners have
// left: it fences them, reads the changelog, and determines where to continue. From the fence
// record on, the broker refuses what they still send. What it had accepted earlier lies below the
// fence, and is read.
type takeover struct {
	*core
	out *outbox

	old   map[int64]fenced.FenceRecord // the newest fence of each other producer id
	start int64                        // of the changelog
	next  int64                        // the first changelog offset not read
	taken []kafkalog.Record            // that were read and not loaded

	// Results, for the partition.
	startsOver bool // a checkpoint is due before the first event
	seeks      bool // claims start where the shard continues; else at the topics' start
}

func newTakeover(c *core, out *outbox) *takeover {
	return &takeover{core: c, out: out, old: map[int64]fenced.FenceRecord{}}
}

func (t *takeover) run(ctx context.Context) error {
	id, err := t.env.Kafka.Acquire(ctx, t.id, t.log)
	if err != nil {
		return fmt.Errorf("get a producer epoch: %w", err)
	}
	names := t.env.Names
	t.out.identity = id
	t.out.changelog = id.NewWriter(names.Table, t.id)
	t.out.verdicts = id.NewWriter(names.Verdicts, t.id)
	fence, at, err := t.out.changelog.FenceAt(ctx)
	if err != nil {
		return fmt.Errorf("fence the changelog: %w", err)
	}
	t.brokers.appended(at)
	if _, _, err := t.out.verdicts.FenceAt(ctx); err != nil {
		return fmt.Errorf("fence the verdicts: %w", err)
	}
	if err := t.read(ctx, fence); err != nil {
		return err
	}
	if err := t.fenceExpired(ctx); err != nil {
		return err
	}
	if err := t.check(ctx); err != nil {
		return err
	}
	if err := t.resume(); err != nil {
		return err
	}
	end, err := t.env.Kafka.Newest(names.Verdicts, t.id)
	if err != nil {
		return fmt.Errorf("find the end of the verdicts: %w", err)
	}
	t.out.own(end)
	t.lock()
	defer t.mu.Unlock()
	if err := t.shard.Takeover().Republish(t.clock()); err != nil {
		return err
	}
	return t.out.perform()
}

// read applies the changelog's records up to the one at offset through.
func (t *takeover) read(ctx context.Context, through int64) error {
	topic := t.env.Names.Table
	if through < t.next { // a fence that an earlier takeover left
		return nil
	}
	if t.next == 0 {
		oldest, err := t.env.Kafka.Oldest(topic, t.id)
		if err != nil {
			return fmt.Errorf("find the start of the changelog: %w", err)
		}
		t.next, t.start = oldest, oldest
	}
	err := t.env.Kafka.Scan(ctx, topic, t.session.Topics[topic].ID, t.id, t.next, through+1, t.take)
	if err == nil {
		err = t.load()
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("read the changelog: %w", err)
	}
	return nil
}

// takenAtOnce is the number of records that are read before they are loaded.
const takenAtOnce = 256

// take takes in a record of the changelog. It is loaded with others.
func (t *takeover) take(rec *kafkalog.Record) error {
	t.next = rec.Offset + 1
	if !fenced.IsFence(rec.Key) {
		if t.taken = append(t.taken, *rec); len(t.taken) < takenAtOnce {
			return nil
		}
		return t.load()
	}
	f, err := fenced.ParseFence(rec.Value)
	if err != nil {
		return t.failed(rec, err)
	}
	if f.ProducerID != t.out.identity.ProducerID() {
		t.old[f.ProducerID] = f
	} else {
		t.brokers.appended(rec.Time()) // the last one is this owner's, from a moment ago
	}
	return nil
}

// load loads what was taken in.
func (t *takeover) load() error {
	n, err := t.shard.Takeover().Load(t.taken)
	if err != nil {
		return t.failed(&t.taken[n], err)
	}
	clear(t.taken) // it keeps the records' batches
	t.taken = t.taken[:0]
	t.stateBytes.Store(t.shard.Bytes())
	return nil
}

// checkedAtOnce is the number of states between two looks at the end of ctx.
const checkedAtOnce = 1 << 13

// check looks at every state that was loaded.
func (t *takeover) check(ctx context.Context) error {
	for more := true; more; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		var err error
		if more, err = t.shard.Takeover().CheckLoaded(checkedAtOnce); err == nil {
			continue
		}
		if bad, ok := errors.AsType[*shard.StateError](err); ok {
			err = t.find(ctx, bad)
		}
		return fmt.Errorf("read the changelog: %w", err)
	}
	return nil
}

// find reads the changelog once more, for where a state is that cannot be read: the last record of its key.
func (t *takeover) find(ctx context.Context, bad *shard.StateError) error {
	topic := t.env.Names.Table
	last := kafkalog.Record{Offset: -1}
	err := t.env.Kafka.Scan(ctx, topic, t.session.Topics[topic].ID, t.id, t.start, t.next, func(rec *kafkalog.Record) error {
		if bytes.Equal(rec.Key, bad.Key) {
			last = *rec
		}
		return nil
	})
	if err != nil || last.Offset < 0 {
		return fmt.Errorf("changelog %s/%d: %w", topic, t.id, bad)
	}
	return t.failed(&last, bad)
}

func (t *takeover) failed(rec *kafkalog.Record, err error) error {
	return fmt.Errorf("changelog record %s/%d at %d: %w", t.env.Names.Table, t.id, rec.Offset, err)
}

// fenceExpired fences owners whose producer ids have expired: the coordinator has forgotten them,
// or their epochs were used up. The epoch of a new producer id does not fence an old one. What
// these owners still appended is read.
func (t *takeover) fenceExpired(ctx context.Context) error {
	for _, pid := range slices.Sorted(maps.Keys(t.old)) {
		if f := t.old[pid]; !f.ShutOut() {
			// It may belong to a successor, which got another id during this takeover. Fencing it
			// would lock that one out for good.
			if err := t.out.identity.Refresh(ctx); err != nil {
				return fmt.Errorf("make sure that this is the newest owner: %w", err)
			}
		}
		// Even if an earlier owner has done so: brokers forget it within a day.
		for _, topic := range []string{t.env.Names.Verdicts, t.env.Names.Table} {
			fence, err := t.out.identity.FenceOld(ctx, topic, t.id, pid)
			if err != nil {
				return fmt.Errorf("fence the owner with the expired producer id %d: %w", pid, err)
			}
			if topic != t.env.Names.Table {
				continue
			}
			if err := t.read(ctx, fence); err != nil {
				return err
			}
		}
		t.out.expired = append(t.out.expired, pid)
	}
	return nil
}
