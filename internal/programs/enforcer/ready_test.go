package enforcer

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// running starts the program, and returns how to ask whether it is ready.
func running(t *testing.T, args ...string) (ready func() (int, string)) {
	t.Helper()
	return saying(t, io.Discard, args...)
}

// saying is running with a log.
func saying(t *testing.T, log io.Writer, args ...string) (ready func() (int, string)) {
	t.Helper()
	args = append(args, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--grpc-listen", "none")
	e, err := parse(args, io.Discard, log, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, e.Redis.Close()); err != nil {
			t.Error(err)
		}
	})
	client := described(t, &http.Transport{DisableKeepAlives: true})
	return func() (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + e.HTTP.Addr().String() + "/readyz")
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
}

// TestStaysReadyWhileRedisIsAway: /readyz of all enforcers turned 503 when Redis, or one
// aggregator, was away for longer than --max-staleness, and took every service behind them out of
// rotation.
func TestStaysReadyWhileRedisIsAway(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	publish(t, server.Addr())
	ready := running(t, "--redis", server.Addr(), "--max-staleness", "1ms")
	testrun.Eventually(t, "it is ready", func() bool { status, _ := ready(); return status == http.StatusOK })
	server.Close()
	for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if status, body := ready(); status != http.StatusOK {
			t.Fatalf("%d %s while Redis is away", status, body)
		}
	}
}

// TestNotReadyWithAnotherNumberOfShards, and it says why.
func TestNotReadyWithAnotherNumberOfShards(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	publish(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	key := "{tallygate:0}:verdicts"
	if err := client.HSet(t.Context(), key, "\x00shards", 2).Err(); err != nil {
		t.Fatal(err)
	}
	ready := running(t, "--redis", server.Addr())
	testrun.Eventually(t, "it says why it is not ready", func() bool {
		status, body := ready()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "another number of shards") && strings.Contains(body, "says 2")
	})
	if err := client.HSet(t.Context(), key, "\x00shards", 1).Err(); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "it is ready", func() bool { status, _ := ready(); return status == http.StatusOK })
}

// TestNotReadyUntilTheRulesAreKnown: the program said that it is ready, and for a second each permit was denied, in
// doubt.
func TestNotReadyUntilTheRulesAreKnown(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	publish(t, server.Addr())
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	t.Cleanup(func() { _ = client.Close() })
	const key = "{tallygate:rules}:strict"
	fields, err := client.HGetAll(t.Context(), key).Result()
	if err == nil {
		err = client.Del(t.Context(), key).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
	ready := running(t, "--redis", server.Addr())
	testrun.Eventually(t, "it waits for the rules only", func() bool {
		status, body := ready()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "the rules of strict limits are not known yet")
	})
	if err := client.HSet(t.Context(), key, fields).Err(); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "it is ready", func() bool { status, _ := ready(); return status == http.StatusOK })
	if err := client.Del(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if status, body := ready(); status != http.StatusOK {
		t.Errorf("%d %s after Redis has lost the rules, which the program still knows", status, body)
	}
}

// TestNotReadyWhileRedisRefusesAndNothingIsKnown, and it says why.
func TestNotReadyWhileRedisRefusesAndNothingIsKnown(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t) // nothing was published yet
	log := &said{}
	ready := saying(t, log, "--redis", server.Addr())
	testrun.Eventually(t, "Redis has answered", func() bool { return log.has(t, "following the blocklist in Redis is waiting") != nil })
	server.RequireAuth("another")
	testrun.Eventually(t, "it says that it is refused", func() bool {
		status, body := ready()
		return status == http.StatusServiceUnavailable && strings.Contains(body, "Redis has refused us since") && strings.Contains(body, "has not been read yet")
	})
}
