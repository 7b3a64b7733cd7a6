package aggregate

import (
	"context"
	"encoding/base64"
	"errors"
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
	fence, err := p.changelog.Fence(ctx)
	if err != nil {
		return fmt.Errorf("fence the changelog: %w", err)
	}
	if _, err := p.verdicts.Fence(ctx); err != nil {
		return fmt.Errorf("fence the verdicts: %w", err)
	}
	r := recovery{partition: p, old: map[int64]fenced.FenceRecord{}, pending: map[string]leftover{}}
	if err := r.read(ctx, fence); err != nil {
		return err
	}
	if err := r.fenceExpired(ctx); err != nil {
		return err
	}
	if err := p.resume(r.checkpoint); err != nil {
		return err
	}
	p.leftovers, p.end = r.pending, r.next
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

func (p *partition) fencedConfig() fenced.Config {
	return fenced.Config{
		Urgent:          p.agg.links.urgent,
		Bulk:            p.agg.links.bulk,
		Log:             p.log,
		TransactionalID: fmt.Sprintf("%s-%d", p.agg.names.Group, p.id),
	}
}

// recovery is a partition's changelog being read.
type recovery struct {
	*partition
	checkpoint *checkpoint
	old        map[int64]fenced.FenceRecord // the newest fence of each producer id that is not ours
	pending    map[string]leftover
	next       int64 // where reading goes on
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
		r.next = oldest
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
		case err := <-pc.Errors():
			r.log.Warn("reading the changelog", "err", err)
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
		err = r.agg.cfg.Rules.CheckWindows(b.state)
	}
	if err != nil {
		return fmt.Errorf("state of a key: %w", err)
	}
	r.table.Load(m.Key, raw)
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
		if !fenced.IsFence(m.Key) {
			return nil
		}
		f, err := fenced.ParseFence(m.Value)
		if err != nil {
			return err
		}
		if f.ProducerID != r.identity.ProducerID() {
			r.old[f.ProducerID] = f
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

// resume finds where to go on in the input and in the loop partition.
func (p *partition) resume(c *checkpoint) error {
	if c == nil {
		c = &checkpoint{}
	}
	if err := p.checkOutputs(c); err != nil {
		return err
	}
	if err := c.restore(p); err != nil {
		return err
	}
	for l, topic := range []string{inputLane: p.agg.names.Events, loopLane: p.agg.names.Loop} {
		if err := p.resumeLane(lane(l), topic, c); err != nil {
			return err
		}
		p.covered[l] = p.next[l]
	}
	return nil
}

// checkOutputs refuses to go on when what earlier owners wrote is gone: verdicts are ordered
// by offsets of the changelog, and in a new one these start below all that Redis and the
// enforcers have.
func (p *partition) checkOutputs(c *checkpoint) error {
	why := ""
	for _, topic := range []string{p.agg.names.Table, p.agg.names.Verdicts} {
		if id, was := p.agg.topicID(topic), c.Topics[topic]; was != "" && was != id {
			why = fmt.Sprintf("topic %s was created anew (its id is %s, the checkpoint is of %s)", topic, id, was)
		}
	}
	if c.Version == 0 {
		committed, err := p.committed()
		if err != nil {
			return err
		}
		if committed >= 0 {
			why = fmt.Sprintf("the group has counted partition %d up to %d, but the changelog %s holds no checkpoint of it: it was created anew or emptied",
				p.id, committed, p.agg.names.Table)
		}
	}
	switch {
	case why == "":
	case !p.agg.cfg.AcceptNewTopic:
		return fmt.Errorf("%w: %s; start over under another --prefix, or delete %s and the blocklist in Redis too, and start with --accept-new-topic",
			errFatal, why, p.agg.names.Verdicts)
	default:
		p.log.Warn("starting over with what is left", "why", why)
	}
	p.seeks = c.Version > 0 || why != ""
	return nil
}

// committed is the offset of the event partition that the group has committed, -1 if none.
// Only checkpoints commit.
func (p *partition) committed() (int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(p.agg.clients.bulk)
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	offsets, err := admin.ListConsumerGroupOffsets(p.agg.names.Group, map[string][]int32{p.agg.names.Events: {p.id}})
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	block := offsets.GetBlock(p.agg.names.Events, p.id)
	if block == nil || !errors.Is(block.Err, sarama.ErrNoError) {
		return -1, nil
	}
	return block.Offset, nil
}

func (p *partition) resumeLane(l lane, topic string, c *checkpoint) error {
	oldest, err := p.agg.clients.bulk.GetOffset(topic, p.id, sarama.OffsetOldest)
	if err != nil {
		return fmt.Errorf("find the start of %s: %w", topic, err)
	}
	newest, err := p.agg.clients.bulk.GetOffset(topic, p.id, sarama.OffsetNewest)
	if err != nil {
		return fmt.Errorf("find the end of %s: %w", topic, err)
	}
	id, was := p.agg.topicID(topic), c.Topics[topic]
	next := c.Next[l]
	switch {
	case c.Version == 0: // no checkpoint yet
		p.next[l] = oldest
		return nil
	case was != id || next > newest:
		why := fmt.Sprintf("topic %s was created anew (its id is %s, the counts are of %s)", topic, id, was)
		if was == id {
			why = fmt.Sprintf("topic %s was cut: its partition %d ends at %d, but was counted up to %d", topic, p.id, newest, next)
		}
		if !p.agg.cfg.AcceptNewTopic {
			return fmt.Errorf("%w: %s; start with --accept-new-topic to keep the counts and take up the topic from its start", errFatal, why)
		}
		p.log.Warn("taking up a new topic from its start", "why", why)
		p.dropMarks(l)
		p.next[l] = oldest
		return nil
	case next < oldest:
		p.log.Error("records were deleted before they were counted", "topic", topic, "lost", oldest-next)
		p.agg.metrics.lost.Add(float64(oldest - next))
		next = oldest
	}
	p.next[l] = next
	return nil
}

// ownTopics are those that cannot be replaced by another of the same name in silence.
func (a *Aggregator) ownTopics() []string {
	return []string{a.names.Events, a.names.Loop, a.names.Table, a.names.Verdicts}
}

// topicID is Kafka's id of a topic, which no other topic of the same name will ever have.
func (a *Aggregator) topicID(topic string) string {
	id := a.found.Load().IDs[topic]
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// dropMarks forgets every place in a topic that is no more: in the new one, offsets start
// below all of them, and every event would be taken for a replay.
func (p *partition) dropMarks(l lane) {
	if l == inputLane {
		clear(p.origins)
	}
	var keys [][]byte
	for ref := range p.table.All() {
		keys = append(keys, append([]byte(nil), p.table.Key(ref)...))
	}
	for _, key := range keys {
		ref, _ := p.table.Get(key)
		b, err := decodeBlock(p.table.Block(ref))
		if err != nil {
			continue // checked when it was read
		}
		b.marks[l] = mark{}
		raw := append(appendBlockHeader(nil, &b), b.state...)
		p.table.Set(key, raw)
	}
}
