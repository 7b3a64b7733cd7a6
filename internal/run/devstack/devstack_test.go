package devstack_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m,
		// sarama's meters; they run for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

func start(t *testing.T) *devstack.Stack {
	t.Helper()
	s, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func ExampleStart() {
	ctx := context.Background()
	stack, err := devstack.Start(ctx, devstack.Config{})
	if err != nil {
		panic(err)
	}
	defer stack.Close()
	rdb := redis.NewClient(&redis.Options{Addr: stack.Redis})
	defer func() { _ = rdb.Close() }()
	println(rdb.Ping(ctx).Val())
}

func TestPortsThatAreAskedFor(t *testing.T) {
	first := start(t)
	if _, err := devstack.Start(t.Context(), devstack.Config{KafkaPort: port(t, first.Kafka[0])}); err == nil {
		t.Error("a second Kafka started on the same port")
	}
	if _, err := devstack.Start(t.Context(), devstack.Config{RedisPort: port(t, first.Redis)}); err == nil {
		t.Error("a second Redis started on the same port")
	}
	if _, err := devstack.Start(t.Context(), devstack.Config{KafkaPort: -1, RedisPort: 70_000}); err == nil {
		t.Error("ports -1 and 70000 were taken")
	}
	first.Close()
	again, err := devstack.Start(t.Context(), devstack.Config{
		KafkaPort: port(t, first.Kafka[0]), RedisPort: port(t, first.Redis)})
	if err != nil {
		t.Fatal(err)
	}
	again.Close()
	if again.Kafka[0] != first.Kafka[0] || again.Redis != first.Redis {
		t.Errorf("asked for %v and %v, got %v and %v", first.Kafka, first.Redis, again.Kafka, again.Redis)
	}
}

func TestTheContextEndsTheStack(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	s, err := devstack.Start(ctx, devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	testrun.Eventually(t, "both ports are closed", func() bool { return !answers(s.Kafka[0]) && !answers(s.Redis) })
	s.Close() // twice does no harm
}

func TestRedisKeepsTime(t *testing.T) {
	rdb := redis.NewClient(&redis.Options{Addr: start(t).Redis})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()

	before := time.Now().Truncate(time.Microsecond)
	if now := rdb.Time(ctx).Val(); now.Before(before) || now.After(time.Now()) {
		t.Errorf("TIME is %v, the clock says %v", now, before)
	}
	inLua := rdb.Eval(ctx, `return redis.call('TIME')[1] + 0`, nil)
	if s, err := inLua.Int64(); err != nil || s < before.Unix() {
		t.Errorf("TIME in a script: %v", inLua)
	}

	rdb.Set(ctx, "short", "1", 20*time.Millisecond)
	testrun.Eventually(t, "the key expires", func() bool { return rdb.Exists(ctx, "short").Val() == 0 })

	policy := rdb.ConfigGet(ctx, "maxmemory-policy")
	if policy.Val()["maxmemory-policy"] != "noeviction" {
		t.Errorf("CONFIG GET: %v", policy)
	}
}

func TestRedisStreams(t *testing.T) {
	s := start(t)
	rdb := redis.NewClient(&redis.Options{Addr: s.Redis})
	t.Cleanup(func() { _ = rdb.Close() })
	ctx := t.Context()

	blocked := rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{"feed", "0"}, Block: 20 * time.Millisecond})
	if !errors.Is(blocked.Err(), redis.Nil) {
		t.Errorf("XREAD BLOCK of nothing: %v", blocked)
	}
	got := make(chan *redis.XStreamSliceCmd)
	go func() {
		got <- rdb.XRead(ctx, &redis.XReadArgs{Streams: []string{"feed", "0"}, Block: 10 * time.Second})
	}()
	add := rdb.Eval(ctx, `return redis.call('XADD', KEYS[1], 'MAXLEN', '~', 100, '7-1', 'v', ARGV[1])`, []string{"feed"}, "x")
	if add.Err() != nil {
		t.Fatal(add.Err())
	}
	read := <-got
	if read.Err() != nil || read.Val()[0].Messages[0].ID != "7-1" {
		t.Errorf("a blocked reader got %v", read)
	}
	if err := rdb.XAdd(ctx, &redis.XAddArgs{Stream: "feed", ID: "7-1", Values: []string{"v", "y"}}).Err(); err == nil {
		t.Error("the same stream id was taken twice")
	}
	if n := rdb.XTrimMaxLen(ctx, "feed", 0).Val(); n != 1 {
		t.Errorf("XTRIM took %d entries", n)
	}
}
