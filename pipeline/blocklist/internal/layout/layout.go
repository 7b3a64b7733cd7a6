// Package layout is shared by writers and readers of the blocklist: its keys in Redis, and its meta
// fields. The doc comment of package blocklist describes all of it.
package layout

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// ShardsDiffer is failure.ErrShards with the numbers: that by a hash of the blocklist, and this program's.
func ShardsDiffer(hash string, there, here int) error {
	return fmt.Errorf("%w: %s says %d, and this program was started with %d", failure.ErrShards, hash, there, here)
}

// The fields of the hash that are not verdicts begin with MetaPrefix.
const (
	MetaPrefix  = "\x00"
	MetaEpoch   = MetaPrefix + "epoch"
	MetaN       = MetaPrefix + "n"
	MetaStamp   = MetaPrefix + "stamp"
	MetaApplied = MetaPrefix + "applied"
	MetaBeat    = MetaPrefix + "beat"
	MetaShards  = MetaPrefix + "shards"
)

// Keys are the three keys of one shard.
type Keys struct{ Verdicts, Expiry, Changes string }

// KeysOf returns the keys of a shard.
func KeysOf(prefix string, shard int) Keys {
	tag := "{" + prefix + ":" + strconv.Itoa(shard) + "}:"
	return Keys{tag + "verdicts", tag + "expiry", tag + "changes"}
}

// Place is a place in a shard's stream: the entry EPOCH-N, which has this stamp.
type Place struct {
	Epoch, N uint64
	Stamp    string
}

// ID is the entry's id.
func (p Place) ID() string { return fmt.Sprintf("%d-%d", p.Epoch, p.N) }

// Follows reports whether an entry with this id and predecessor is the next one after p.
func (p Place) Follows(id, predecessor string) bool {
	epoch, n, err := parseID(id)
	return err == nil && epoch == p.Epoch && n == p.N+1 && predecessor == p.Stamp
}

func parseID(id string) (epoch, n uint64, err error) {
	left, right, _ := strings.Cut(id, "-")
	if epoch, err = strconv.ParseUint(left, 10, 64); err == nil {
		n, err = strconv.ParseUint(right, 10, 64)
	}
	if err != nil {
		return 0, 0, fmt.Errorf("parse stream id %.60q: %w", id, err)
	}
	return epoch, n, nil
}

// Meta has the meta fields of the hash.
type Meta struct {
	Place
	Applied event.Micros // 0: a partition is being filled for the first time
	Beat    event.Micros // the latest heartbeat, by the server's clock; 0: unknown
	Shards  int          // how many the blocklist has; 0: its publishers are older, and don't say
}

// HashReader is what ReadMeta needs of a client.
type HashReader interface {
	HMGet(ctx context.Context, key string, fields ...string) *redis.SliceCmd
}

// ReadMeta reads a shard's meta fields; found is false if nothing was ever written there.
func ReadMeta(ctx context.Context, client HashReader, k Keys) (m Meta, found bool, err error) {
	fields, err := client.HMGet(ctx, k.Verdicts, MetaEpoch, MetaN, MetaStamp, MetaApplied, MetaBeat, MetaShards).Result()
	if err != nil {
		return Meta{}, false, fmt.Errorf("read the metadata of %s: %w", k.Verdicts, err)
	}
	if fields[0] == nil {
		return Meta{}, false, nil
	}
	text := func(i int) string {
		s, _ := fields[i].(string)
		return s
	}
	m.Stamp = text(2)
	if m.Epoch, m.N, err = parseID(text(0) + "-" + text(1)); err != nil {
		return Meta{}, false, fmt.Errorf("read the metadata of %s: %w", k.Verdicts, err)
	}
	numbers := [3]int64{}
	for i, name := range []string{"applied", "beat", "shards"} {
		if s := text(3 + i); s != "" {
			if numbers[i], err = strconv.ParseInt(s, 10, 64); err != nil {
				return Meta{}, false, fmt.Errorf("read the metadata of %s: %s: %w", k.Verdicts, name, err)
			}
		}
	}
	m.Applied, m.Beat, m.Shards = event.Micros(numbers[0]), event.Micros(numbers[1])*event.Millisecond, int(numbers[2])
	return m, true, nil
}

// PrimariesOnly refuses clients that are configured to read from replicas, as far as that is
// visible.
func PrimariesOnly(client redis.UniversalClient) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		if o := c.Options(); o.ReadOnly || o.RouteByLatency || o.RouteRandomly {
			return errors.New("blocklist: the Redis client reads from replicas (ReadOnly, RouteByLatency or RouteRandomly), want primaries only")
		}
	}
	return nil
}

// EachPrimary does something at each server that the client writes to.
func EachPrimary(ctx context.Context, client redis.UniversalClient, do func(context.Context, redis.Cmdable) error) error {
	if c, ok := client.(*redis.ClusterClient); ok {
		return c.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error { return do(ctx, c) })
	}
	return do(ctx, client)
}
