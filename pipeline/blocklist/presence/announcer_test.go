package presence

import (
	"context"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/internal/failure"
)

// announce starts an announcer that beats often.
func announce(t *testing.T, client redis.UniversalClient, log *testrun.Output, beat func() Beat) (*Announcer, func()) {
	t.Helper()
	a, err := New(Config{Redis: client, Beat: beat, Every: 5 * time.Millisecond, Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	return a, testrun.Start(t, a.Run)
}

// An enforcer is there from its start on, as it is at each beat, and is away as soon as it stops.
func TestAnnounce(t *testing.T) {
	onEach(t, func(t *testing.T, client redis.UniversalClient) {
		var log testrun.Output
		var beats atomic.Int64
		a, stop := announce(t, client, &log, func() Beat { return Beat{Name: "one", Entries: int(beats.Add(1)), ID: "ignored"} })
		b, stopB := announce(t, client, &log, func() Beat { return Beat{Name: "two"} })
		testrun.Eventually(t, "both are there, with a later beat", func() bool {
			all := list(t, client)
			return len(all) == 2 && all[0].ID == a.ID() && all[0].Entries > 3 && all[1].ID == b.ID() && !all[0].At.IsZero()
		})
		stop()
		if all := list(t, client); len(all) != 1 || all[0].Name != "two" {
			t.Errorf("after one has stopped, there are %+v", all)
		}
		stopB()
		if len(a.Errors()) > 0 || log.String() != "" {
			t.Errorf("errors %v, log: %s", a.Errors(), log.String())
		}
	})
}

// A Redis that was flushed, or restarted empty, has all of them back with their next beat.
func TestRedisEmptied(t *testing.T) {
	server := miniredis.RunT(t)
	client := dial(t, server.Addr())
	var log testrun.Output
	announce(t, client, &log, func() Beat { return Beat{} })
	for range 3 {
		testrun.Eventually(t, "it is there", func() bool { return len(list(t, client)) == 1 })
		server.FlushAll()
	}
}

// A user without the rights, as every enforcer's before there was this key, is told of it once.
func TestNoRight(t *testing.T) {
	server := servers.StartRedis(t)
	admin := dial(t, server.Addr())
	set := func(rules ...any) {
		t.Helper()
		if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "enforcer", "reset", "on", ">secret"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("%R~{tallygate:*", "+hmget", "+hscan", "+xread")
	limited := redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "enforcer", Password: "secret", MaintNotificationsConfig: noNotices})
	defer limited.Close()
	var log testrun.Output
	a, stop := announce(t, limited, &log, func() Beat { return Beat{} })
	refusals := func(n uint64) func() bool { return func() bool { return a.Errors()[failure.Auth] >= n } }
	testrun.Eventually(t, "Redis has refused four beats", refusals(4))
	set("%R~{tallygate:*", "~tallygate-enforcers", "+hmget", "+hscan", "+xread", "+hset", "+hdel", "+hgetall", "+time")
	testrun.Eventually(t, "it is there", func() bool { return len(list(t, admin)) == 1 })
	testrun.Eventually(t, "the log tells", func() bool { return log.Has("announced in Redis again") })
	if log.Count("not announced") != 1 || !log.Has("doctor --acls") {
		t.Errorf("the log: %s", log.String())
	}
	if err := limited.HSet(t.Context(), "{tallygate:0}:verdicts", "f", "1").Err(); err == nil {
		t.Error("with these rights an enforcer may write the blocklist")
	}
	set("%R~{tallygate:*")
	testrun.Eventually(t, "the log tells of the next outage, too", func() bool { return log.Count("not announced") == 2 })
	stop()
}

// What follows the blocklist tells of a Redis that is away: here it is only counted.
func TestRedisAway(t *testing.T) {
	server := miniredis.RunT(t)
	client := dial(t, server.Addr())
	server.Close()
	var log testrun.Output
	a, stop := announce(t, client, &log, func() Beat { return Beat{} })
	testrun.Eventually(t, "it has failed", func() bool { return a.Errors()[failure.Away] > 1 })
	stop()
	if log.String() != "" {
		t.Errorf("the log: %s", log.String())
	}
}

// A Redis that takes connections and says nothing holds no program up that stops.
func TestStopsBesideARedisThatHangs(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	taken := make(chan net.Conn, 100)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(taken)
				return
			}
			taken <- c
		}
	}()
	client := redis.NewClient(&redis.Options{Addr: l.Addr().String(), MaintNotificationsConfig: noNotices, MaxRetries: -1, ReadTimeout: 2 * time.Second})
	var log testrun.Output
	a, err := New(Config{Redis: client, Beat: func() Beat { return Beat{} }, Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- a.Run(ctx) }()
	first := <-taken // the beat is under way
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	if n := len(a.Errors()); n > 0 || log.String() != "" {
		t.Errorf("the attempt had ended: %v, %s", a.Errors(), log.String())
	}
	_ = client.Close()
	_ = l.Close()
	_ = first.Close()
	for c := range taken {
		_ = c.Close()
	}
}

func TestConfig(t *testing.T) {
	_, err := New(Config{Prefix: "{a}", Every: -1})
	for _, want := range []string{"Redis", "Beat", "Every", "braces"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
	if name := HostName(); name == "" {
		t.Error("this process has no name")
	}
}
