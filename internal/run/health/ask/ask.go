// Package ask asks Redis for what findings are judged by.
package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/run/health"
)

// EachPrimary calls do for every primary of a Cluster, or for the single server, one at a time.
func EachPrimary(ctx context.Context, client redis.UniversalClient, do func(ctx context.Context, name string, c redis.Cmdable) error) error {
	cluster, isCluster := client.(*redis.ClusterClient)
	if !isCluster {
		return do(ctx, "Redis", client)
	}
	var mu sync.Mutex
	return cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		mu.Lock()
		defer mu.Unlock()
		return do(ctx, "Redis "+c.Options().Addr, c)
	})
}

// Servers asks each primary how it is. Fields that a user may not read stay empty.
func Servers(ctx context.Context, client redis.UniversalClient) (all []health.Server, err error) {
	err = EachPrimary(ctx, client, func(ctx context.Context, name string, c redis.Cmdable) error {
		var sections []*redis.StringCmd
		_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
			for _, section := range []string{"server", "memory", "replication"} { // older versions take one at a time
				sections = append(sections, p.Info(ctx, section))
			}
			return nil
		})
		if answer := redis.Error(nil); err != nil && !errors.As(err, &answer) {
			return fmt.Errorf("ask Redis how it is: %w", err)
		}
		info := map[string]string{}
		for _, s := range sections {
			for line := range strings.Lines(s.Val()) {
				if field, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
					info[field] = value
				}
			}
		}
		s := health.Server{Name: name, Version: info["redis_version"], Valkey: info["valkey_version"], Role: info["role"],
			Policy:  info["maxmemory_policy"],
			Loading: info["loading"] == "1" || info["master_sync_in_progress"] == "1"}
		if s.Memory, _ = strconv.ParseInt(info["used_memory"], 10, 64); s.Replica() {
			s.Primary = info["master_host"] + ":" + info["master_port"]
		}
		s.MaxMemory, _ = strconv.ParseInt(info["maxmemory"], 10, 64)
		all = append(all, s)
		return nil
	})
	return all, err
}

// The fields of the blocklist's hashes, by docs/reference/redis.md: those before the ones of partitions.
var metaFields = []string{"\x00epoch", "\x00applied", "\x00beat", "\x00shards"}

// Blocklist asks about each shard of the blocklist. partitions is how many the verdict topic has, 0 if unknown.
func Blocklist(ctx context.Context, client redis.UniversalClient, prefix string, shards, partitions int) (health.Redis, error) {
	var is health.Redis
	began := time.Now()
	for shard := range shards {
		var of []int32
		for p := shard; p < partitions; p += shards {
			of = append(of, int32(p)) //nolint:gosec // a partition's number
		}
		s, now, err := readShard(ctx, client, fmt.Sprintf("{%s:%d}:verdicts", prefix, shard), of)
		if err != nil {
			return is, fmt.Errorf("read the blocklist in Redis: %w", err)
		}
		is.Now, is.Shards = now, append(is.Shards, s)
	}
	is.Latency = time.Since(began)
	return is, nil
}

func readShard(ctx context.Context, client redis.UniversalClient, key string, partitions []int32) (s health.Shard, now time.Time, err error) {
	fields := append([]string(nil), metaFields...)
	for _, p := range partitions {
		fields = append(fields, fmt.Sprintf("\x00reached:%d", p), fmt.Sprintf("\x00applied:%d", p))
	}
	var meta *redis.SliceCmd
	var size *redis.IntCmd
	var clock *redis.TimeCmd
	_, err = client.Pipelined(ctx, func(p redis.Pipeliner) error {
		meta, size, clock = p.HMGet(ctx, key, fields...), p.HLen(ctx, key), p.Time(ctx)
		return nil
	})
	// An enforcer's user may not ask for the size. A connection that fails to log in leaves commands without an
	// answer and without an error.
	if wrong := errors.Join(meta.Err(), clock.Err()); wrong != nil {
		return s, now, wrong
	}
	if len(meta.Val()) != len(fields) {
		return s, now, cmp.Or(err, errors.New("no answer"))
	}
	s.Entries = size.Val()
	number := func(i int) int64 {
		text, there := meta.Val()[i].(string)
		if there {
			s.Entries-- // it is no verdict
		}
		n, _ := strconv.ParseInt(text, 10, 64) // absent is 0
		return n
	}
	if s.Written = meta.Val()[0] != nil; s.Written {
		s.Entries -= 3 // with the epoch there are the number and the stamp of the last entry
	}
	if applied := number(1); applied != 0 {
		s.Applied = time.UnixMicro(applied)
	}
	s.Beat, s.Of, s.Reached = time.UnixMilli(number(2)), int(number(3)), map[int32]int64{}
	for i, p := range partitions {
		s.Reached[p] = number(len(metaFields) + 2*i)
		number(len(metaFields) + 2*i + 1)
	}
	if s.Entries = max(0, s.Entries); size.Err() != nil {
		s.Entries = -1
	}
	return s, clock.Val(), nil
}
