package world

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// The fields of the blocklist's hashes, by docs/reference/redis.md.
const (
	fieldEpoch   = "\x00epoch"
	fieldApplied = "\x00applied"
	fieldBeat    = "\x00beat"
	fieldShards  = "\x00shards"
	fieldReached = "\x00reached:"
)

// redisPoll asks Redis.
type redisPoll struct {
	client redis.UniversalClient
	prefix string
	shards int
}

// read asks about the blocklist of each shard, and about the servers. partitions is how many the verdict topic
// has, 0 if unknown.
func (r *redisPoll) read(ctx context.Context, partitions int) (Redis, error) {
	is := Redis{Written: true, Reached: map[int32]int64{}}
	began := time.Now()
	for shard := range r.shards {
		if err := r.readShard(ctx, shard, partitions, &is); err != nil {
			return is, fmt.Errorf("read the blocklist in Redis: %w", err)
		}
	}
	is.Latency = time.Since(began)
	if err := r.servers(ctx, &is); err != nil {
		return is, err
	}
	return is, nil
}

func (r *redisPoll) readShard(ctx context.Context, shard, partitions int, is *Redis) error {
	key := "{" + r.prefix + ":" + strconv.Itoa(shard) + "}:verdicts"
	fields := []string{fieldEpoch, fieldApplied, fieldBeat, fieldShards}
	of := []int32{}
	for p := shard; p < partitions; p += r.shards {
		fields, of = append(fields, fieldReached+strconv.Itoa(p)), append(of, int32(p)) //nolint:gosec // a partition's number
	}
	var meta *redis.SliceCmd
	var size *redis.IntCmd
	var now *redis.TimeCmd
	_, err := r.client.Pipelined(ctx, func(p redis.Pipeliner) error {
		meta, size, now = p.HMGet(ctx, key, fields...), p.HLen(ctx, key), p.Time(ctx)
		return nil
	})
	// An enforcer's user may not ask for the size. A connection that fails to log in leaves commands without an
	// answer and without an error.
	if wrong := errors.Join(meta.Err(), now.Err()); wrong != nil {
		return wrong
	}
	if len(meta.Val()) != len(fields) {
		return cmp.Or(err, errors.New("no answer"))
	}
	text := func(i int) string {
		s, _ := meta.Val()[i].(string)
		return s
	}
	number := func(i int) int64 {
		n, _ := strconv.ParseInt(text(i), 10, 64) // absent is 0
		return n
	}
	is.Now = now.Val()
	is.Written = is.Written && text(0) != ""
	if is.Entries += max(0, size.Val()-metaFields(meta.Val())); size.Err() != nil {
		is.Entries = -1
	}
	is.Shards = cmp.Or(int(number(3)), is.Shards)
	applied, beat := number(1), time.UnixMilli(number(2))
	if at := time.UnixMicro(applied); shard == 0 || at.Before(is.Applied) {
		is.Applied = at
	}
	if applied == 0 {
		is.Applied = time.Time{}
	}
	if shard == 0 || beat.Before(is.Beat) {
		is.Beat = beat
	}
	for i, p := range of {
		is.Reached[p] = number(4 + i)
	}
	return nil
}

// metaFields is how many of a hash's fields are no verdicts: those that were read, and of each partition what
// was applied; the epoch stands with the number and the stamp of the last entry.
func metaFields(values []any) (n int64) {
	for i, v := range values {
		switch {
		case v == nil:
		case i == 0:
			n += 3
		case i >= 4:
			n += 2
		default:
			n++
		}
	}
	return n
}

// servers asks each primary how it is. A user without the right to ask learns nothing of it.
func (r *redisPoll) servers(ctx context.Context, is *Redis) error {
	ask := func(ctx context.Context, c redis.Cmdable) error {
		text, err := c.Info(ctx, "server", "memory", "replication").Result()
		if err != nil {
			var answer redis.Error
			if errors.As(err, &answer) {
				return nil
			}
			return fmt.Errorf("ask Redis how it is: %w", err)
		}
		info := parseInfo(text)
		is.Version = info["redis_version"]
		is.Replica = is.Replica || info["role"] == "slave"
		if policy := info["maxmemory_policy"]; is.Policy == "" || policy != "noeviction" {
			is.Policy = policy
		}
		used, _ := strconv.ParseInt(info["used_memory"], 10, 64)
		most, _ := strconv.ParseInt(info["maxmemory"], 10, 64)
		is.Memory, is.MaxMemory = is.Memory+used, is.MaxMemory+most
		return nil
	}
	if c, ok := r.client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return ask(ctx, c) })
	}
	return ask(ctx, r.client)
}

func parseInfo(text string) map[string]string {
	info := map[string]string{}
	for s := bufio.NewScanner(strings.NewReader(text)); s.Scan(); {
		if name, value, ok := strings.Cut(strings.TrimSpace(s.Text()), ":"); ok {
			info[name] = value
		}
	}
	return info
}
