package admit

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const header = "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n  rules:\n"

const (
	rigShards     = 2
	rigPartitions = 4
)

// rig is the owner's and the publisher's side of partitions in Redis.
type rig struct {
	t      testing.TB
	client *redis.Client
	addr   string
	shards *script.Shards
	prefix string

	inMemory bool

	mu   sync.Mutex
	next [rigPartitions]int64
}

// onEach runs a test on the Redis in memory, and on a real one where there is one.
func onEach(t *testing.T, test func(*testing.T, *rig)) {
	t.Run("miniredis", func(t *testing.T) {
		servers.Embedded(t)
		r := newRig(t, miniredis.RunT(t).Addr())
		r.inMemory = true
		test(t, r)
	})
	t.Run("redis", func(t *testing.T) { test(t, newRig(t, servers.StartRedis(t).Addr())) })
}

func newRig(t testing.TB, addr string) *rig {
	client := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { client.Close() })
	return &rig{t: t, client: client, addr: addr, prefix: "t", shards: &script.Shards{Client: client, Prefix: "t", Shards: rigShards, Partitions: rigPartitions}}
}

// rules publishes a version, and has all partitions count by it.
func (r *rig) rules(version uint64, source string) {
	r.t.Helper()
	r.put(version, source)
	for p := range int32(rigPartitions) {
		r.follow(p, version)
	}
}

func (r *rig) put(version uint64, source string) {
	r.t.Helper()
	text, err := json.Marshal(map[string]any{"format": 1, "file": "rules.yaml", "source": header + source})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.shards.PutRules(r.t.Context(), version, text); err != nil {
		r.t.Fatal(err)
	}
}

// follow has a partition count by a version, and opens it.
func (r *rig) follow(p int32, version uint64) {
	r.t.Helper()
	first := r.apply(p, protocol.Record{Version: version})
	r.apply(p, protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: event.FromTime(time.Now()) + event.Hour}})
}

func (r *rig) apply(p int32, records ...protocol.Record) protocol.Applied {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &protocol.Batch{Partition: p, Of: rigPartitions, Start: r.next[p], Next: r.next[p] + int64(len(records)), Beat: event.FromTime(time.Now()), Records: records}
	a, err := r.shards.Apply(r.t.Context(), b)
	if err != nil || !a.OK {
		r.t.Fatal(a, err)
	}
	r.next[p] = a.Reached
	return a
}

// admitter returns one that runs, and knows the rules.
func (r *rig) admitter(change ...func(*Config)) *Admitter {
	r.t.Helper()
	client := redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1, DialTimeout: time.Second})
	r.t.Cleanup(func() { client.Close() })
	return r.admitterOn(client, change...)
}

func (r *rig) admitterOn(client *redis.Client, change ...func(*Config)) *Admitter {
	r.t.Helper()
	cfg := Config{Redis: client, Prefix: r.prefix, Poll: 20 * time.Millisecond}
	for _, c := range change {
		c(&cfg)
	}
	a, err := New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = a.Run(ctx)
	}()
	r.t.Cleanup(func() { stop(); <-done })
	testrun.Eventually(r.t, "the rules are read", func() bool { return a.Stats().Version > 0 })
	return a
}

func (r *rig) admit(a *Admitter, q Request) *Permit {
	r.t.Helper()
	p, err := a.Admit(r.t.Context(), q)
	if err != nil {
		r.t.Fatal(err)
	}
	return p
}

func uid(api, uid string, more ...event.Dim) Request {
	return Request{API: api, Dims: append([]event.Dim{{Name: "uid", Value: uid}}, more...)}
}
