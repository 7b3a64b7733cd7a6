package owner

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// resume determines where to continue in both sources. Recovery is complete, and no other goroutine
// uses the shard yet.
func (t *takeover) resume() error {
	is := t.shard.Restored()
	found := shard.Found{ChangelogStart: t.start, Committed: -1, Rules: t.checkRules(is.Rules)}
	if !is.Checkpoint {
		var err error
		if found.Committed, err = t.committed(); err != nil {
			return err
		}
	}
	for src := range shard.Sources {
		if err := t.findEnds(src, is, &found); err != nil {
			return err
		}
	}
	t.lock()
	defer t.mu.Unlock()
	resumed, err := t.shard.Resume(found, t.clock())
	if err != nil {
		return err
	}
	t.seeks, t.startsOver = resumed.Seek, resumed.StartsOver
	t.tally()
	return t.out.perform()
}

// findEnds asks where a source's topic begins and ends, and where the leader epoch counted last
// ends.
func (t *takeover) findEnds(src shard.Source, is shard.Restored, found *shard.Found) (err error) {
	topic := t.topicOf(src)
	if found.Oldest[src], err = t.env.Client.GetOffset(topic, t.id, sarama.OffsetOldest); err != nil {
		return fmt.Errorf("find the start of %s: %w", topic, err)
	}
	if found.Newest[src], err = t.env.Client.GetOffset(topic, t.id, sarama.OffsetNewest); err != nil {
		return fmt.Errorf("find the end of %s: %w", topic, err)
	}
	if !is.Epoch[src] {
		return nil
	}
	end, err := t.env.Claims.EndOfEpoch(t.ctx, topic, t.id, is.Of[src])
	if errors.Is(err, kerr.UnsupportedVersion) { // a broker before Kafka 2.0
		return nil
	}
	found.EpochEnd[src] = shard.EpochEnd{Known: err == nil, Epoch: end.Epoch, End: end.End}
	return err
}

// committed returns the group's offset of the event partition, -1 if there is none. Only
// checkpoints commit.
func (t *takeover) committed() (int64, error) {
	admin, err := sarama.NewClusterAdminFromClient(t.env.Client)
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	ask := func() (*sarama.OffsetFetchResponse, error) {
		return admin.ListConsumerGroupOffsets(t.env.Names.Group, map[string][]int32{t.env.Names.Events: {t.id}})
	}
	offsets, err := ask()
	if err != nil { // sarama may remember a coordinator that is gone
		_ = t.env.Client.RefreshCoordinator(t.env.Names.Group)
		offsets, err = ask()
	}
	if err == nil && !errors.Is(offsets.Err, sarama.ErrNoError) {
		err = offsets.Err
	}
	if err != nil {
		return -1, fmt.Errorf("ask for the group's offsets: %w", err)
	}
	switch block := offsets.GetBlock(t.env.Names.Events, t.id); {
	case block == nil:
		return -1, nil
	case !errors.Is(block.Err, sarama.ErrNoError):
		return -1, fmt.Errorf("ask for the group's offsets: %w", block.Err)
	default:
		return block.Offset, nil
	}
}

// checkRules refuses to continue under older rules than those that the partition was last counted
// by. The newest version was read before. So that one does not compile here, or the topic was
// recreated.
func (t *takeover) checkRules(countedBy int64) error {
	failed, why := t.env.Rules.FailedAt()
	switch have := t.rules.Number; {
	case countedBy <= have || !t.env.Rules.Shared():
		return nil
	case failed >= countedBy:
		return fmt.Errorf("%w: the partition was counted by version %d of the rules: %w", ErrFatal, countedBy, why)
	case t.env.AcceptNewTopic:
		t.log.Warn("the versions of the rules start over", "version_before", countedBy, "version", have)
		return nil
	default:
		return fmt.Errorf("%w: the partition was counted by version %d of the rules, and topic %s holds %d at most: it was created anew; start with --accept-new-topic to continue with its rules",
			ErrFatal, countedBy, t.env.Names.Rules, have)
	}
}
