// Package store is the writing end of the blocklist: one script that applies a batch of one
// partition of the verdict topic.
package store

import (
	"context"
	_ "embed" // the scripts
	"fmt"
	"math/rand/v2"
	"strconv"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/internal/verdictlog"
	"github.com/tallygate/tallygate/verdict"
)

//go:embed apply.lua
var applySource string

//go:embed sweep.lua
var sweepSource string

var (
	applyScript = redis.NewScript(applySource)
	sweepScript = redis.NewScript(sweepSource)
)

// Record is one record of the verdict topic. An empty Value removes what its Key names.
type Record = verdictlog.Record

// Batch is one call of the script: the records of one partition at offsets [Start, Next).
type Batch struct {
	Partition   int32
	Start, Next int64
	// Up to when the partition is applied then; 0 when the batch doesn't reach its end.
	Applied event.Micros
	Records []Record
}

// NoOffset as a batch's Start only asks what has been reached.
const NoOffset = -1

const (
	expiredPerBatch = 100
	expiredPerSweep = 1000
	argsPerRecord   = 4
)

// Client is a Store's part of a client of Redis. It is small on purpose: a package that uses one of go-redis' own
// types for it takes fifteen times as long to compile.
type Client interface {
	redis.Scripter
	layout.HashReader
}

// Store writes. All fields are required; its methods may be called by many goroutines.
type Store struct {
	Client       Client
	Prefix       string
	Partitions   int32
	Shards       int
	StreamLength int64
	Grace        event.Micros
	BeatMillis   int64                     // between two heartbeats of a shard
	Bad          func(r Record, err error) // is told of malformed verdicts
}

// ShardOf returns the shard of a partition.
func (s *Store) ShardOf(partition int32) int { return int(partition) % s.Shards }

// Apply runs the script. When ok is false nothing was written, and reached is the offset to go on
// from.
func (s *Store) Apply(ctx context.Context, b Batch) (reached int64, ok bool, err error) {
	shard := s.ShardOf(b.Partition)
	k := layout.KeysOf(s.Prefix, shard)
	args := make([]any, 0, 12+argsPerRecord*len(b.Records))
	applied := ""
	if b.Applied > 0 {
		applied = strconv.FormatInt(int64(b.Applied), 10)
	}
	args = append(args, b.Partition, b.Start, b.Next, applied,
		s.Partitions, shard, s.Shards, strconv.FormatUint(rand.Uint64(), 36), s.StreamLength,
		int64(s.Grace), s.BeatMillis, expiredPerBatch)
	for _, r := range b.Records {
		args = s.appendRecord(args, r)
	}
	reply, err := applyScript.Run(ctx, s.Client, []string{k.Verdicts, k.Expiry, k.Changes}, args...).Slice()
	if err != nil {
		return 0, false, fmt.Errorf("apply partition %d to Redis: %w", b.Partition, err)
	}
	return s.parseReply(b, reply)
}

// CheckShards returns ErrShards when any shard says that there are more or fewer.
func (s *Store) CheckShards(ctx context.Context) error {
	for shard := range s.Shards {
		k := layout.KeysOf(s.Prefix, shard)
		m, found, err := layout.ReadMeta(ctx, s.Client, k)
		switch {
		case err != nil:
			return err
		case found && m.Shards != 0 && m.Shards != s.Shards:
			return layout.ShardsDiffer(k.Verdicts, m.Shards, s.Shards)
		}
	}
	return nil
}

// Sweep removes expired entries of a partition's shard, and returns how many.
func (s *Store) Sweep(ctx context.Context, partition int32) (removed int, err error) {
	k := layout.KeysOf(s.Prefix, s.ShardOf(partition))
	removed, err = sweepScript.Run(ctx, s.Client, []string{k.Verdicts, k.Expiry}, expiredPerSweep).Int()
	if err != nil {
		return 0, fmt.Errorf("remove expired entries of partition %d's shard from Redis: %w", partition, err)
	}
	return removed, nil
}

func (s *Store) parseReply(b Batch, reply []any) (reached int64, ok bool, err error) {
	if len(reply) != 2 {
		return 0, false, fmt.Errorf("apply partition %d to Redis: unexpected reply %v", b.Partition, reply)
	}
	text, _ := reply[1].(string)
	if reached, err = strconv.ParseInt(text, 10, 64); err != nil {
		return 0, false, fmt.Errorf("apply partition %d to Redis: unexpected reply %v", b.Partition, reply)
	}
	if reply[0] == int64(2) {
		return 0, false, fmt.Errorf("apply partition %d to Redis: %w", b.Partition, layout.ShardsDiffer(layout.KeysOf(s.Prefix, s.ShardOf(b.Partition)).Verdicts, int(reached), s.Shards))
	}
	return reached, reply[0] == int64(1), nil
}

// appendRecord appends a record's arguments. A malformed one is reported and left out: it must not
// stop the ones behind it.
func (s *Store) appendRecord(args []any, r Record) []any {
	if len(r.Value) == 0 {
		return append(args, r.Key, 0, 0, "")
	}
	v, err := verdict.Parse(r.Value)
	if err != nil {
		s.Bad(r, err)
		return args
	}
	if v.State == verdict.Left {
		return s.appendLeft(args, r, &v)
	}
	return append(args, r.Key, v.Seq, int64(v.Until), r.Value)
}

// appendLeft appends what a key has left. It is ordered by the records' offsets. It leaves Redis when
// its time is over, without the grace of blocks, which would keep a thing alive that nobody needs. One
// that only ends what was said before stays for that, as a clear does: readers have to hear of it.
func (s *Store) appendLeft(args []any, r Record, v *verdict.Verdict) []any {
	v.Seq = r.Offset
	until := v.Until
	if v.Until > v.Since {
		until -= s.Grace
	}
	return append(args, r.Key, v.Seq, int64(until), verdict.AppendJSON(nil, v))
}
