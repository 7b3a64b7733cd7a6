package rig

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"slices"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/layout"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/store"
	"github.com/tallygate/tallygate/verdict"
)

// NoNotices has clients ask for no notices of maintenance. To find out that a server has none,
// connections write a field of their client's options, and those of Client.Conn do it under another
// lock.
var NoNotices = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

// OnEachRedis runs a test on miniredis, and where real servers are wanted on a Redis of its own.
func OnEachRedis(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		servers.Embedded(t)
		test(t, Dial(t, miniredis.RunT(t).Addr()))
	})
	t.Run("redis", func(t *testing.T) {
		servers.Redis(t)
		test(t, Dial(t, RealRedis(t)))
	})
}

// Dial returns a client, which is closed when the test ends.
func Dial(t testing.TB, addr string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: addr, MaintNotificationsConfig: NoNotices})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// RealRedis returns the address of an empty Redis that runs as long as the test: tests flush it,
// and change its settings, so it is not that of TALLYGATE_TEST_REDIS, which other packages use at
// the same time.
func RealRedis(t testing.TB) string {
	binary, err := exec.LookPath("redis-server")
	if err != nil {
		if os.Getenv("TALLYGATE_TEST_REQUIRE") != "" {
			t.Fatal(err)
		}
		t.Skip("redis-server is not installed")
	}
	addr := servers.FreeAddr(t)
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(binary, "--port", port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	client := Dial(t, addr)
	testrun.Eventually(t, "redis-server answers", func() bool { return client.Ping(context.Background()).Err() == nil })
	return addr
}

// Contents returns the verdicts of the hash and checks that the sorted set has the same keys.
func Contents(t *testing.T, client redis.UniversalClient) []string {
	t.Helper()
	k := layout.KeysOf("tallygate", 0)
	var hash *redis.MapStringStringCmd
	var expiry *redis.StringSliceCmd
	// At one moment: a publisher may be writing.
	_, err := client.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		hash, expiry = p.HGetAll(t.Context(), k.Verdicts), p.ZRange(t.Context(), k.Expiry, 0, -1)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var lines, names []string
	for name, value := range hash.Val() {
		if name[0] == layout.MetaPrefix[0] {
			continue
		}
		v, err := verdict.Parse([]byte(value))
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, name)
		lines = append(lines, fmt.Sprintf("%s %s %d", name, v.State, v.Seq))
	}
	slices.Sort(names)
	slices.Sort(lines)
	scored := expiry.Val()
	if slices.Sort(scored); !slices.Equal(names, scored) {
		t.Errorf("the hash has %v, the sorted set %v", names, scored)
	}
	return lines
}

// CheckStream checks that the stream's entries follow each other, up to the meta's place.
func CheckStream(t *testing.T, client redis.UniversalClient) []redis.XMessage {
	t.Helper()
	k := layout.KeysOf("tallygate", 0)
	entries, err := client.XRange(t.Context(), k.Changes, "-", "+").Result()
	if err != nil {
		t.Fatal(err)
	}
	m, _, err := layout.ReadMeta(t.Context(), client, k)
	if err != nil {
		t.Fatal(err)
	}
	at := layout.Place{Epoch: m.Epoch}
	for _, e := range entries {
		if p, _ := e.Values["p"].(string); !at.Follows(e.ID, p) {
			t.Errorf("entry %s with predecessor %q does not follow %s with stamp %q", e.ID, p, at.ID(), at.Stamp)
		}
		at.N++
		at.Stamp, _ = e.Values["s"].(string)
	}
	if at != m.Place {
		t.Errorf("the stream ends at %v, the meta says %v", at, m.Place)
	}
	return entries
}

// NewStore writes a blocklist of one partition, with a stream of 1,000 entries, a grace of an hour
// and no heartbeats but the first. What is no verdict fails the test.
func NewStore(t testing.TB, client redis.UniversalClient) *store.Store {
	return &store.Store{
		Client: client, Prefix: "tallygate", Partitions: 1, Shards: 1, StreamLength: 1000, Grace: event.Hour, BeatMillis: 1 << 40,
		Bad: func(r store.Record, err error) { t.Errorf("record at offset %d: %v", r.Offset, err) },
	}
}
