package blocklist

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/event"
)

// beats returns what the stream's heartbeats say, in order.
func beats(t *testing.T, client redis.UniversalClient) (applied []int64) {
	t.Helper()
	for _, e := range checkStream(t, client) {
		if h, ok := e.Values["h"].(string); ok {
			n, err := strconv.ParseInt(h, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			applied = append(applied, n)
		}
	}
	return applied
}

func TestAHeartbeatComesWithTheLastPartition(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		const beat = 40 * time.Millisecond
		s := testStore(t, client)
		s.partitions, s.beatMillis = 2, beat.Milliseconds()
		now := event.Micros(0) // the publishers' clock
		apply := func(partition int32) {
			t.Helper()
			start, _, err := s.apply(t.Context(), batch{partition: partition, start: noOffset})
			if err != nil {
				t.Fatal(err)
			}
			if _, ok, err := s.apply(t.Context(), batch{partition: partition, start: start, next: start, applied: now}); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
		last := func() event.Micros { all := beats(t, client); return event.Micros(all[len(all)-1]) }
		now += event.FromDuration(beat)
		apply(0)
		apply(1)
		if last() != now {
			t.Errorf("the first heartbeat says %d, want %d as soon as all partitions are filled", last(), now)
		}
		for range 3 {
			eventually(t, "a heartbeat comes with partition 1", func() bool {
				now += event.FromDuration(beat)
				time.Sleep(beat) // as the publishers do; Redis' clock goes by itself
				apply(0)
				apply(1)
				return last() == now
			})
		}
		all := now
		eventually(t, "there are heartbeats though partition 1 stands still", func() bool {
			before := len(beats(t, client))
			now += event.FromDuration(beat)
			apply(0)
			return len(beats(t, client)) > before
		})
		if last() != all {
			t.Errorf("the last heartbeat says %d, want %d as long as one partition is not applied further", last(), all)
		}
	})
}

// TestPartitionsOfOneShardBeatTogether: when each partition wrote at a moment of its own, the shard seemed to be
// behind by up to a beat more than it was.
func TestPartitionsOfOneShardBeatTogether(t *testing.T) {
	onEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		for _, publishOnly := range []bool{false, true} {
			t.Run(fmt.Sprintf("publish only %v", publishOnly), func(t *testing.T) {
				t.Parallel() // they wait
				beatsTogether(t, client, publishOnly)
			})
		}
	})
}

func beatsTogether(t *testing.T, client redis.UniversalClient, publishOnly bool) {
	const beat = 400 * time.Millisecond
	prefix := fmt.Sprintf("tallygate-%v", publishOnly)
	kafka := newBroker(t, 4)
	p, stop := kafka.publisher(client, func(c *PublisherConfig) {
		c.Partitions, c.Heartbeat, c.PublishOnly, c.Prefix = 4, beat, publishOnly, prefix
	})
	for partition := range int32(4) {
		p.Own(partition)
		time.Sleep(beat / 4) // so that they would beat one after the other
	}
	var behind []time.Duration
	var seen int64
	eventually(t, "heartbeats are fresh", func() bool {
		meta, err := client.HMGet(t.Context(), shardKeys(prefix, 0).verdicts, "\x00beat", metaApplied).Result()
		if err != nil {
			t.Fatal(err)
		}
		at, _ := meta[0].(string)
		upTo, _ := meta[1].(string)
		wrote, _ := strconv.ParseInt(at, 10, 64)
		applied, _ := strconv.ParseInt(upTo, 10, 64)
		if wrote == seen || applied == 0 {
			return false
		}
		seen = wrote
		behind = append(behind, time.UnixMilli(wrote).Sub(time.UnixMicro(applied)))
		if len(behind) < 5 {
			return false
		}
		latest := slices.Sorted(slices.Values(behind[len(behind)-5:]))
		return latest[2] < beat/2 // the median: with beats of their own it was three quarters of a beat
	})
	stop()
}
