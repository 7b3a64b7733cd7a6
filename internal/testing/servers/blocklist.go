package servers

import (
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// Blocklist writes a whole blocklist of one shard into a Redis, as an aggregator that has applied the
// verdict topic to its end and whose rules ask for nothing before an action would, for tests of what reads it.
func Blocklist(t testing.TB, client redis.UniversalClient, prefix string, all ...verdict.Verdict) {
	t.Helper()
	now := event.FromTime(time.Now())
	epoch, stamp := now/1000, "seed"
	key := func(name string) string { return fmt.Sprintf("{%s:0}:%s", prefix, name) }
	fields := []any{"\x00epoch", int64(epoch), "\x00n", 1, "\x00stamp", stamp, "\x00applied", int64(now)}
	for i := range all {
		fields = append(fields, verdict.AppendRecordKey(nil, &all[i]), verdict.AppendJSON(nil, &all[i]))
	}
	pipe := client.TxPipeline()
	pipe.Del(t.Context(), key("verdicts"), key("changes"))
	pipe.HSet(t.Context(), key("verdicts"), fields...)
	pipe.XAdd(t.Context(), &redis.XAddArgs{Stream: key("changes"), ID: fmt.Sprintf("%d-1", epoch), Values: []any{"s", stamp, "p", "", "h", int64(now)}})
	pipe.HSet(t.Context(), "{"+prefix+":rules}:strict", "latest", 1, "kept", "1", "partitions", 1, "shards", 1, "1", "")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatalf("write a blocklist: %v", err)
	}
}
