package aggregate

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// resume finds where to go on in both sources. Recovery is through; nobody else has the shard yet.
func (p *partition) resume(start int64) error {
	is := p.shard.Restored()
	found := shard.Found{ChangelogStart: start, Committed: -1, Rules: p.checkRules(is.Rules)}
	if !is.Checkpoint {
		var err error
		if found.Committed, err = p.committed(); err != nil {
			return err
		}
	}
	for src := range shard.Sources {
		if err := p.findEnds(src, is, &found); err != nil {
			return err
		}
	}
	p.lock()
	defer p.mu.Unlock()
	resumed, err := p.shard.Resume(found, p.clock())
	if err != nil {
		return err
	}
	p.seeks, p.startsOver = resumed.Seek, resumed.StartsOver
	p.agg.metrics.tell(p)
	return p.perform()
}

// findEnds asks where a source's topic begins and ends, and where the leader epoch ends that was counted last.
func (p *partition) findEnds(src shard.Source, is shard.Restored, found *shard.Found) (err error) {
	topic := p.topicOf(src)
	if found.Oldest[src], err = p.agg.clients.bulk.GetOffset(topic, p.id, sarama.OffsetOldest); err != nil {
		return fmt.Errorf("find the start of %s: %w", topic, err)
	}
	if found.Newest[src], err = p.agg.clients.bulk.GetOffset(topic, p.id, sarama.OffsetNewest); err != nil {
		return fmt.Errorf("find the end of %s: %w", topic, err)
	}
	if !is.Epoch[src] {
		return nil
	}
	end, err := p.agg.fetcher.EndOfEpoch(p.ctx, topic, p.id, is.Of[src])
	if errors.Is(err, kerr.UnsupportedVersion) { // a broker before Kafka 2.0
		return nil
	}
	found.EpochEnd[src] = shard.EpochEnd{Known: err == nil, Epoch: end.Epoch, End: end.End}
	return err
}

// committed is the offset of the event partition that the group has committed, -1 if none.
// Only checkpoints commit.
func (p *partition) committed() (int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(p.agg.clients.bulk)
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	ask := func() (*sarama.OffsetFetchResponse, error) {
		return admin.ListConsumerGroupOffsets(p.agg.names.Group, map[string][]int32{p.agg.names.Events: {p.id}})
	}
	offsets, err := ask()
	if err != nil { // the coordinator that sarama remembers may be gone
		_ = p.agg.clients.bulk.RefreshCoordinator(p.agg.names.Group)
		offsets, err = ask()
	}
	if err == nil && !errors.Is(offsets.Err, sarama.ErrNoError) {
		err = offsets.Err
	}
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	switch block := offsets.GetBlock(p.agg.names.Events, p.id); {
	case block == nil:
		return -1, nil
	case !errors.Is(block.Err, sarama.ErrNoError):
		return -1, fmt.Errorf("ask for the group's offsets: %w", block.Err)
	default:
		return block.Offset, nil
	}
}
