package blocklist

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Record is one record of the verdict topic. An empty Value removes what its Key names.
type Record struct {
	Offset     int64
	Key, Value []byte
	Time       event.Micros // the broker's
}

// batch is what one call of the script applies: the records of one partition at offsets [start, next).
type batch struct {
	partition   int32
	start, next int64
	applied     event.Micros // 0 when the batch doesn't reach the partition's end
	records     []Record
}

// noOffset as a batch's start only asks what has been reached.
const noOffset = -1

const (
	expiredPerBatch = 100
	expiredPerSweep = 1000
	argsPerRecord   = 4
)

// store is the writing end of the blocklist.
type store struct {
	client     redis.UniversalClient
	prefix     string
	partitions int32
	shards     int
	streamLen  int64
	grace      event.Micros
	beatMillis int64 // between two heartbeats of a shard
	bad        func(r Record, err error)
}

func (s *store) shardOf(partition int32) int { return int(partition) % s.shards }

// apply runs the script. When ok is false nothing was written, and reached is the offset to go on from.
func (s *store) apply(ctx context.Context, b batch) (reached int64, ok bool, err error) {
	shard := s.shardOf(b.partition)
	k := shardKeys(s.prefix, shard)
	args := make([]any, 0, 12+argsPerRecord*len(b.records))
	applied := ""
	if b.applied > 0 {
		applied = strconv.FormatInt(int64(b.applied), 10)
	}
	args = append(args, b.partition, b.start, b.next, applied,
		s.partitions, shard, s.shards, strconv.FormatUint(rand.Uint64(), 36), s.streamLen,
		int64(s.grace), s.beatMillis, expiredPerBatch)
	for _, r := range b.records {
		args = s.appendRecord(args, r)
	}
	reply, err := applyScript.Run(ctx, s.client, []string{k.verdicts, k.expiry, k.changes}, args...).Slice()
	if err != nil {
		return 0, false, fmt.Errorf("apply partition %d to Redis: %w", b.partition, err)
	}
	return s.parseReply(b, reply)
}

// checkShards returns ErrShards when any shard says that there are more or fewer.
func (s *store) checkShards(ctx context.Context) error {
	for shard := range s.shards {
		k := shardKeys(s.prefix, shard)
		m, found, err := readMeta(ctx, s.client, k)
		switch {
		case err != nil:
			return err
		case found && m.shards != 0 && m.shards != s.shards:
			return shardsDiffer(k.verdicts, m.shards, s.shards)
		}
	}
	return nil
}

// sweep removes expired entries of a partition's shard, and returns how many.
func (s *store) sweep(ctx context.Context, partition int32) (removed int, err error) {
	k := shardKeys(s.prefix, s.shardOf(partition))
	removed, err = sweepScript.Run(ctx, s.client, []string{k.verdicts, k.expiry}, expiredPerSweep).Int()
	if err != nil {
		return 0, fmt.Errorf("remove expired entries of partition %d's shard from Redis: %w", partition, err)
	}
	return removed, nil
}

func (s *store) parseReply(b batch, reply []any) (reached int64, ok bool, err error) {
	if len(reply) != 2 {
		return 0, false, fmt.Errorf("apply partition %d to Redis: unexpected reply %v", b.partition, reply)
	}
	text, _ := reply[1].(string)
	if reached, err = strconv.ParseInt(text, 10, 64); err != nil {
		return 0, false, fmt.Errorf("apply partition %d to Redis: unexpected reply %v", b.partition, reply)
	}
	if reply[0] == int64(2) {
		return 0, false, fmt.Errorf("apply partition %d to Redis: %w", b.partition, shardsDiffer(shardKeys(s.prefix, s.shardOf(b.partition)).verdicts, int(reached), s.shards))
	}
	return reached, reply[0] == int64(1), nil
}

// appendRecord appends a record's arguments. One that is no verdict is reported and left out: it must
// not stop the ones behind it.
func (s *store) appendRecord(args []any, r Record) []any {
	if len(r.Value) == 0 {
		return append(args, r.Key, 0, 0, "")
	}
	v, err := verdict.Parse(r.Value)
	if err != nil {
		s.bad(r, err)
		return args
	}
	return append(args, r.Key, v.Seq, int64(v.Until), r.Value)
}
