package doctor

import (
	"context"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/ask"
)

// checkBlocklist compares the verdicts in Redis with the end of the verdict topic, by the
// blocklist's documented layout (package blocklist).
func (e *examination) checkBlocklist(ctx context.Context) outcome {
	topic := e.names.Verdicts
	if e.layout != nil && !e.exists(topic) {
		return found(skip("blocklist", "there is no %s yet", topic))
	}
	// Verdicts keep coming: Redis is compared with an end from before it is read, and one from
	// after.
	before, err := e.ends(topic)
	if err != nil {
		return found(fail("blocklist", "", "the end of the verdicts cannot be read: %v", err))
	}
	is, err := ask.Blocklist(ctx, e.cfg.Redis, e.cfg.Prefix, e.cfg.Shards, len(before))
	if err != nil {
		return found(fail("blocklist", "see redis-rights", "%v", err))
	}
	after, err := e.ends(topic)
	if err != nil {
		return found(fail("blocklist", "", "the end of the verdicts cannot be read: %v", err))
	}
	o := e.cfg.look()
	o.Redis.Took(is, nil, o.Now)
	if e.layout != nil {
		o.Kafka.Took(health.Kafka{Verdicts: health.Topic{Name: topic, Partitions: len(before), Ends: e.lastVerdicts(ctx, topic, &is, before), Later: after}}, nil, o.Now)
	}
	o.Now = time.Now()
	if results := judged("blocklist", o); len(results) > 0 {
		return found(worst(results)...)
	}
	upTo := "in sync with the verdict topic"
	if e.layout == nil {
		upTo = "not compared with the verdict topic, which could not be read"
	}
	beat := time.Duration(0)
	for i := range is.Shards {
		beat = max(beat, is.Now.Sub(is.Shards[i].Beat))
	}
	return found(ok("blocklist", "%s, %s, last heartbeat %v ago", words.Plural(int(is.Entries()), "verdict"), upTo, beat.Round(100*time.Millisecond)))
}

// ends is empty while the topics are unknown.
func (e *examination) ends(topic string) (map[int32]int64, error) {
	if e.layout == nil {
		return nil, nil
	}
	return e.offsets(topic, e.layout.Topics[topic].Partitions, sarama.OffsetNewest)
}
