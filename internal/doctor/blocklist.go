package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"
)

const (
	beatWarn = 3 * time.Second  // after that enforcers reconnect
	beatFail = 10 * time.Second // far beyond that
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
	shards := make([]*shard, e.cfg.Shards)
	for i := range shards {
		if shards[i], err = e.readShard(ctx, i, int32(len(before))); err != nil {
			return found(fail("blocklist", "see redis-rights", "shard %d cannot be read: %v", i, err))
		}
	}
	after, err := e.ends(topic)
	if err != nil {
		return found(fail("blocklist", "", "the end of the verdicts cannot be read: %v", err))
	}
	before = e.lastVerdicts(ctx, topic, shards, before)
	var results []Result
	entries := int64(0)
	beat := time.Duration(0)
	for _, s := range shards {
		entries, beat = entries+s.entries, max(beat, s.beat)
		results = append(results, e.judgeShard(s, before, after)...)
	}
	if len(results) == 0 {
		upTo := "in sync with the verdict topic"
		if e.layout == nil {
			upTo = "not compared with the verdict topic, which could not be read"
		}
		results = []Result{ok("blocklist", "%s, %s, last heartbeat %v ago", plural(int(entries), "verdict"), upTo, beat.Round(100*time.Millisecond))}
	}
	return found(worst(results)...)
}

// ends is empty while the topics are unknown.
func (e *examination) ends(topic string) (map[int32]int64, error) {
	if e.layout == nil {
		return nil, nil
	}
	return e.offsets(topic, e.layout.Topics[topic].Partitions, sarama.OffsetNewest)
}

// shard is the state of one shard in Redis.
type shard struct {
	number    int
	published bool // it was written at least once
	// How many shards the blocklist has, according to its publishers; 0 if they are older, and do
	// not say.
	of      int
	entries int64
	beat    time.Duration // since the latest heartbeat
	reached map[int32]int64
}

// gap is a partition of the verdict topic of which Redis and Kafka differ.
type gap struct {
	partition      int32
	reached, ended int64
}

func (g gap) String() string {
	return fmt.Sprintf("%d (at %d of %d)", g.partition, g.reached, g.ended)
}

func (e *examination) readShard(ctx context.Context, number int, topicPartitions int32) (*shard, error) {
	key := fmt.Sprintf("{%s:%d}:verdicts", e.cfg.Prefix, number)
	fields := []string{"\x00epoch", "\x00n", "\x00stamp", "\x00applied", "\x00beat", "\x00shards"}
	var partitions []int32
	for p := range topicPartitions {
		if int(p)%e.cfg.Shards == number {
			partitions = append(partitions, p)
			fields = append(fields, fmt.Sprintf("\x00reached:%d", p), fmt.Sprintf("\x00applied:%d", p))
		}
	}
	var meta *redis.SliceCmd
	var size *redis.IntCmd
	var now *redis.TimeCmd
	if _, err := e.cfg.Redis.Pipelined(ctx, func(p redis.Pipeliner) error {
		meta, size = p.HMGet(ctx, key, fields...), p.HLen(ctx, key)
		now = p.Time(ctx)
		return nil
	}); err != nil {
		return nil, err
	}
	s := &shard{number: number, entries: size.Val(), reached: map[int32]int64{}}
	value := map[string]string{}
	for i, v := range meta.Val() {
		if text, there := v.(string); there {
			value[fields[i]] = text
			s.entries--
		}
	}
	_, s.published = value["\x00epoch"]
	s.of, _ = strconv.Atoi(value["\x00shards"])
	beat, _ := strconv.ParseInt(value["\x00beat"], 10, 64)
	s.beat = max(0, now.Val().Sub(time.UnixMilli(beat)))
	for _, p := range partitions {
		// Absent is 0.
		s.reached[p], _ = strconv.ParseInt(value[fmt.Sprintf("\x00reached:%d", p)], 10, 64)
	}
	return s, nil
}

func (e *examination) judgeShard(s *shard, before, after map[int32]int64) (results []Result) {
	var missing, beyond []gap
	for _, p := range slices.Sorted(maps.Keys(s.reached)) {
		switch at := s.reached[p]; {
		case at < before[p]:
			missing = append(missing, gap{p, at, before[p]})
		case at > after[p]:
			beyond = append(beyond, gap{p, at, after[p]})
		}
	}
	const start = "start an aggregator with --redis, or one with --publish-only; check that --redis, --prefix and --shards are theirs"
	switch {
	case !s.published && len(missing) > 0:
		return []Result{fail("blocklist", start, "shard %d: it was never written, but there are verdicts: no request is blocked", s.number)}
	case !s.published:
		return []Result{warn("blocklist", start, "shard %d: it was never written; enforcers are not ready until then", s.number)}
	case s.of != 0 && s.of != e.cfg.Shards:
		return []Result{fail("blocklist", fmt.Sprintf("give all programs --shards %d; or, to have %d, stop them all, delete the keys of all %d shards, and start them with --shards %[2]d: the blocklist is then rebuilt", s.of, e.cfg.Shards, s.of),
			"shard %d: the blocklist has %s, and --shards is %d: publishers and enforcers with this number refuse the blocklist", s.number, plural(s.of, "shard"), e.cfg.Shards)}
	case s.beat > beatFail:
		results = append(results, fail("blocklist", start, "shard %d: the last heartbeat was %v ago: no publisher runs, and new blocks do not arrive", s.number, s.beat.Round(time.Second)))
	case s.beat > beatWarn:
		results = append(results, warn("blocklist", "check again; if it persists, see the publishers' logs", "shard %d: the last heartbeat was %v ago", s.number, s.beat.Round(time.Second)))
	}
	if len(beyond) > 0 {
		results = append(results, fail("blocklist", fmt.Sprintf("if so, delete the blocklist's keys, and it is rebuilt: DEL {%[1]s:%[2]d}:verdicts {%[1]s:%[2]d}:expiry {%[1]s:%[2]d}:changes", e.cfg.Prefix, s.number),
			"shard %d is beyond the end of %s in partition %s: the topic was recreated or truncated, or Redis belongs to another cluster", s.number, e.names.Verdicts, some(beyond)))
	}
	if len(missing) > 0 {
		results = append(results, warn("blocklist", "check again: a few verdicts may be in flight; if it persists, see the publishers' logs",
			"shard %d lacks verdicts of partition %s", s.number, some(missing)))
	}
	return results
}
