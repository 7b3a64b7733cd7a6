package owner

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
)

// resume determines where to continue in both sources. Recovery is complete, and no other goroutine
// uses the shard yet.
func (t *takeover) resume() error {
	is := t.shard.Takeover().Restored()
	found := shard.Found{ChangelogStart: t.start, Committed: -1, Rules: t.checkRules(is.Rules)}
	if !is.Checkpoint {
		var err error
		if found.Committed, err = t.env.Kafka.Committed(t.env.Names.Events, t.id); err != nil { // only checkpoints commit
			return fmt.Errorf("ask for the group's offsets: %w", err)
		}
	}
	for src := range shard.Sources {
		if err := t.findEnds(src, is, &found); err != nil {
			return err
		}
	}
	t.lock()
	defer t.mu.Unlock()
	resumed, err := t.shard.Takeover().Resume(found, t.clock())
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
	if found.Oldest[src], err = t.env.Kafka.Oldest(topic, t.id); err != nil {
		return fmt.Errorf("find the start of %s: %w", topic, err)
	}
	if found.Newest[src], err = t.env.Kafka.Newest(topic, t.id); err != nil {
		return fmt.Errorf("find the end of %s: %w", topic, err)
	}
	if !is.Epoch[src] {
		return nil
	}
	found.EpochEnd[src], err = t.env.Kafka.EndOfEpoch(t.ctx, topic, t.id, is.Of[src])
	return err
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
