package admit

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A service that listened before the rules were known answered each request as in doubt, 503. What is
// missing is told: here a right, which is given while it runs.
func TestWaitReady(t *testing.T) {
	server := servers.StartRedis(t)
	r := newRig(t, server.Addr())
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	allow := func(args ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "service"}, args...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	allow("on", ">secret", "~*")
	client := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "service", Password: "secret"})
	defer client.Close()
	var log testrun.Output
	a, err := New(Config{Redis: client, Prefix: r.prefix, Poll: 10 * time.Millisecond, Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	wait := func(within time.Duration) error {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return a.WaitReady(ctx)
	}
	if err := wait(time.Millisecond); !errors.Is(err, errNoRules) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without Run: %v", err)
	}
	testrun.Start(t, a.Run)
	testrun.Eventually(t, "the refusal is told", func() bool { return a.Stats().Failing && log.Has("NOPERM") })
	if err := wait(time.Millisecond); err == nil || !strings.Contains(err.Error(), "NOPERM") || a.Stats().LastError == nil {
		t.Errorf("without rights: %v", err)
	}
	r.rules(1, twoRules)
	allow("+@all")
	if err := wait(time.Minute); err != nil || !a.Stats().Ready {
		t.Fatal(err)
	}
	testrun.Eventually(t, "that it works again is told", func() bool { return log.Has("works again") && !a.Stats().Failing })
	if n := log.Count("is interrupted"); n != 1 {
		t.Errorf("the refusal is told %d times:\n%s", n, &log)
	}
}
