package script

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// bare is the script that people write today.
var bare = redis.NewScript(`
local n = redis.call('INCR', KEYS[1])
redis.call('EXPIRE', KEYS[1], ARGV[2])
return n <= tonumber(ARGV[1]) and 1 or 0`)

// BenchmarkAdmit measures the CPU of Redis' process for a permit, and for a bare script that counts. Its CPU is what
// other load on the machine hardly changes.
func BenchmarkAdmit(b *testing.B) {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(b).Addr()})
	b.Cleanup(func() { client.Close() })
	b.Run("bare", func(b *testing.B) {
		measure(b, client, func(i int) {
			if err := bare.Run(b.Context(), client, []string{fmt.Sprint("bare", i%10_000)}, 1_000_000, 60).Err(); err != nil {
				b.Fatal(err)
			}
		})
	})
	for _, kind := range []string{"window", "bucket"} {
		b.Run(kind, func(b *testing.B) { benchAdmit(b, client, kind) })
	}
}

func benchAdmit(b *testing.B, client *redis.Client, kind string) {
	s := &Shards{Client: client, Prefix: "bench" + kind, Shards: 1, Partitions: 1}
	w := protocol.Want{Limit: protocol.Limit{Name: "f00dcafe", Grain: event.Hour, Keeps: event.Hour, Hold: 30 * event.Second}, Amount: event.One, Threshold: 1_000_000 * event.One}
	if kind == "bucket" {
		w.Limit = protocol.Limit{Name: "f00dcafe", Kind: protocol.Bucket, Rate: 1000 * event.One, Per: event.Second, Hold: 30 * event.Second}
	}
	now := event.FromTime(time.Now())
	first, err := s.Apply(b.Context(), &protocol.Batch{Next: 1, Beat: now, Records: []protocol.Record{{Version: 1}}})
	if err != nil {
		b.Fatal(err)
	}
	next, seq := first.Reached, int64(0)
	apply := func(records ...protocol.Record) {
		batch := &protocol.Batch{Start: next, Next: next + int64(len(records)), Beat: event.FromTime(time.Now()), Records: records}
		a, err := s.Apply(b.Context(), batch)
		if err != nil || !a.OK {
			b.Fatal(a, err)
		}
		next = a.Reached
	}
	apply(protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: now + event.Day}})
	var settle []protocol.Record
	var spent time.Duration
	measure(b, client, func(i int) {
		key, id := fmt.Sprint("uid=", i%10_000), fmt.Sprintf("%016x", i)
		a, err := s.Admit(b.Context(), &protocol.Ask{Key: key, IDs: []string{id}, Before: event.MaxTime, Version: 1, Wants: []protocol.Want{w}})
		if err != nil || a.Status != protocol.Granted {
			b.Fatal(a, err)
		}
		seq++
		level := &protocol.Level{Key: key, Seq: seq, Latest: a.At, Settles: []string{id}, Sections: []protocol.Section{{Name: w.Name, Level: 5, Steps: []protocol.Step{{Until: a.At + event.Hour, Amount: event.One}}}}}
		if settle = append(settle, protocol.Record{Level: level}); len(settle) == 100 {
			before := cpuOf(b, client)
			apply(settle...)
			settle = nil
			spent += cpuOf(b, client) - before
		}
	})
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N)/1000, "redis-µs/settled")
}

// measure reports the CPU of Redis' process.
func measure(b *testing.B, client *redis.Client, do func(i int)) {
	i := 0
	for range 20_000 { // all keys are known
		do(i)
		i++
	}
	before := cpuOf(b, client)
	for b.Loop() {
		do(i)
		i++
	}
	b.ReportMetric(float64((cpuOf(b, client)-before).Nanoseconds())/float64(b.N)/1000, "redis-µs/op")
}

func cpuOf(b *testing.B, client *redis.Client) (sum time.Duration) {
	b.Helper()
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for _, name := range []string{"used_cpu_user", "used_cpu_sys"} {
		s, err := strconv.ParseFloat(strings.TrimSpace(infoField(info, name)), 64)
		if err != nil {
			b.Fatal(err)
		}
		sum += time.Duration(s * float64(time.Second))
	}
	return sum
}
