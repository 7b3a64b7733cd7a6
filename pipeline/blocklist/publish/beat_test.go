package publish

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
)

// TestPartitionsOfOneShardBeatTogether: when each partition wrote at a moment of its own, the shard
// seemed to be behind by up to a beat more than it was.
func TestPartitionsOfOneShardBeatTogether(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
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
	kafka := rig.NewBroker(t, 4)
	p, stop := startPublisher(t, kafka, client, func(c *Config) {
		c.Partitions, c.Heartbeat, c.PublishOnly, c.Prefix = 4, beat, publishOnly, prefix
	})
	for partition := range int32(4) {
		p.Own(partition)
		time.Sleep(beat / 4) // so that they would beat one after the other
	}
	var behind []time.Duration
	var seen int64
	testrun.Eventually(t, "heartbeats are fresh", func() bool {
		meta, err := client.HMGet(t.Context(), layout.KeysOf(prefix, 0).Verdicts, "\x00beat", layout.MetaApplied).Result()
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
		// The median: with beats of their own it was three quarters of a beat.
		return latest[2] < beat/2
	})
	stop()
}
