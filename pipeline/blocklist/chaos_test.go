package blocklist

import (
	"cmp"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
)

// TestChaosBetweenFeedAndRedis lets faults of the network and of Redis come at random for
// TALLYGATE_TEST_CHAOS (5s when it is not set), while verdicts are issued, end and expire.
// TALLYGATE_TEST_SEED draws the same faults and verdicts again.
func TestChaosBetweenFeedAndRedis(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("TALLYGATE_TEST_CHAOS"), "5s"))
	if err != nil {
		t.Fatal(err)
	}
	seed := testrun.Seed(t)
	t.Setenv("TALLYGATE_TEST_SEED", strconv.FormatUint(seed, 10)) // the traffic's too
	server := servers.StartRedis(t, "--appendonly", "yes", "--appendfsync", "always", "--enable-debug-command", "yes")
	s, calm := newWatchedStage(t, single(server.Addr()), func(c *publish.Config) { c.StreamLength = 200 })
	r := rand.New(rand.NewPCG(seed, 3))
	backup := s.snapshotOfRedis()
	faults := []struct {
		name string
		do   func()
	}{
		{"cut", s.network.Cut},
		{"stalled", s.network.Stall},
		{"half open", func() { s.network.Stall(); s.network.Heal() }},
		{"slow", func() { s.network.Slow(rand.N(30 * time.Millisecond)) }},
		{"flushed", s.flush},
		{"killed", func() { server.Kill(); server.Start() }},
		// It answers late, or too late.
		{"asleep", func() { s.redis.Do(t.Context(), "DEBUG", "SLEEP", "0.7") }},
		{"stream trimmed", func() { s.redis.XTrimMaxLen(t.Context(), layout.KeysOf("tallygate", r.IntN(stageShards)).Changes, 1) }},
		{"stream lost", func() { s.redis.Del(t.Context(), layout.KeysOf("tallygate", r.IntN(stageShards)).Changes) }},
		{"backed up", func() { backup = s.snapshotOfRedis() }},
		{"restored", func() { backup() }},
		{"all connections closed", func() { s.redis.Do(t.Context(), "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes") }},
		{"another publisher", func() {
			p, stop := startPublisher(s.t, s.kafka, s.redis, func(c *publish.Config) { c.Partitions, c.Shards = stagePartitions, stageShards })
			defer stop()
			for partition := range int32(stagePartitions) {
				p.Own(partition)
			}
			pause(r)
		}},
		{"full", func() { s.memory("1"); pause(r); s.memory("0") }},
	}
	happened := map[string]int{}
	for end := time.Now().Add(length); time.Now().Before(end) && !t.Failed(); {
		f := faults[r.IntN(len(faults))]
		happened[f.name]++
		f.do()
		pause(r)
		if r.IntN(2) == 0 {
			s.network.Heal()
		}
		if r.IntN(10) == 0 { // now and then all is well for a while
			s.network.Heal()
			s.more()
		}
	}
	s.network.Heal()
	calm()
	s.inStep("at the end")
	s.tableEqualsTruth()
	t.Logf("%v of faults: %v", length, happened)
}

// pause lets things get done, or not.
func pause(r *rand.Rand) { time.Sleep(time.Duration(r.IntN(300)) * time.Millisecond) }

func (s *stage) memory(most string) {
	s.t.Helper()
	s.eventually("maxmemory is set", func() bool { return s.redis.ConfigSet(s.t.Context(), "maxmemory", most).Err() == nil })
}
