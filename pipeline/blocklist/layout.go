package blocklist

import (
	"context"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
)

//go:embed apply.lua
var applySource string

//go:embed sweep.lua
var sweepSource string

var (
	applyScript = redis.NewScript(applySource)
	sweepScript = redis.NewScript(sweepSource)
)

// The fields of the hash that are not verdicts begin with metaPrefix.
const (
	metaPrefix  = "\x00"
	metaEpoch   = metaPrefix + "epoch"
	metaN       = metaPrefix + "n"
	metaStamp   = metaPrefix + "stamp"
	metaApplied = metaPrefix + "applied"
	metaBeat    = metaPrefix + "beat"
	metaShards  = metaPrefix + "shards"
)

// keys are the three keys of one shard.
type keys struct{ verdicts, expiry, changes string }

func shardKeys(prefix string, shard int) keys {
	tag := "{" + prefix + ":" + strconv.Itoa(shard) + "}:"
	return keys{tag + "verdicts", tag + "expiry", tag + "changes"}
}

// place is a place in a shard's stream: the entry epoch-n, which has this stamp.
type place struct {
	epoch, n uint64
	stamp    string
}

func (p place) id() string { return fmt.Sprintf("%d-%d", p.epoch, p.n) }

// follows reports whether an entry with this id and predecessor is the next one after p.
func (p place) follows(id, predecessor string) bool {
	epoch, n, err := parseID(id)
	return err == nil && epoch == p.epoch && n == p.n+1 && predecessor == p.stamp
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

// meta is what the hash says about itself.
type meta struct {
	place
	applied event.Micros // 0: a partition is being filled for the first time
	beat    event.Micros // the latest heartbeat, by the server's clock; 0: unknown
	shards  int          // how many the blocklist has; 0: its publishers are older, and don't say
}

// readMeta reads a shard's meta; found is false when nothing was ever written there.
func readMeta(ctx context.Context, client redis.Cmdable, k keys) (m meta, found bool, err error) {
	fields, err := client.HMGet(ctx, k.verdicts, metaEpoch, metaN, metaStamp, metaApplied, metaBeat, metaShards).Result()
	if err != nil {
		return meta{}, false, fmt.Errorf("read the meta of %s: %w", k.verdicts, err)
	}
	if fields[0] == nil {
		return meta{}, false, nil
	}
	text := func(i int) string {
		s, _ := fields[i].(string)
		return s
	}
	m.stamp = text(2)
	if m.epoch, m.n, err = parseID(text(0) + "-" + text(1)); err != nil {
		return meta{}, false, fmt.Errorf("read the meta of %s: %w", k.verdicts, err)
	}
	numbers := [3]int64{}
	for i, name := range []string{"applied", "beat", "shards"} {
		if s := text(3 + i); s != "" {
			if numbers[i], err = strconv.ParseInt(s, 10, 64); err != nil {
				return meta{}, false, fmt.Errorf("read the meta of %s: %s: %w", k.verdicts, name, err)
			}
		}
	}
	m.applied, m.beat, m.shards = event.Micros(numbers[0]), event.Micros(numbers[1])*event.Millisecond, int(numbers[2])
	return m, true, nil
}
