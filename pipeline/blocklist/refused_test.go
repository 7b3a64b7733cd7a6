package blocklist

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/pipeline/blocklist/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// service is a service's table with its feed, which logs.
type service struct {
	table *enforce.Table
	feed  *Feed
	log   testrun.Output
}

func follow(t *testing.T, client redis.UniversalClient, shards int) *service {
	t.Helper()
	var f service
	table, err := enforce.NewTable(enforce.Config{Logger: rig.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	f.table = table
	f.feed, err = NewFeed(FeedConfig{Redis: client, Shards: shards, Jitter: -1, Block: 50 * time.Millisecond, Logger: f.log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, func(ctx context.Context) error { return f.feed.Run(ctx, table) })
	return &f
}

// ready returns the reason for which the table waits; nil: none.
func (f *service) ready() error {
	now, cancel := context.WithCancel(context.Background())
	cancel()
	return f.table.WaitReady(now)
}

func (f *service) refused() error { return f.feed.Stats().Refused }

// TestARefusalDoesNotEndTheFeed: a service whose password Redis refused when it started ended, by the
// log.Fatal around Run; an outage of the blocklist became one of the service. It retries each refusal,
// and says so once.
func TestARefusalDoesNotEndTheFeed(t *testing.T) {
	for _, shards := range []int{1, AnyShards} {
		t.Run(fmt.Sprint(shards), func(t *testing.T) {
			server := servers.StartRedis(t)
			admin := rig.Dial(t, server.Addr())
			kafka := rig.NewBroker(t, 1)
			p, _ := startPublisher(t, kafka, admin, nil)
			p.Own(0)
			rig.Offer(p, kafka, rig.Record(rig.Block("42", 1, time.Hour)))
			allow := func(args ...any) {
				t.Helper()
				if err := admin.Do(t.Context(), append([]any{"ACL", "SETUSER", "service"}, args...)...).Err(); err != nil {
					t.Fatal(err)
				}
				_ = admin.Do(t.Context(), "CLIENT", "KILL", "USER", "service").Err()
			}
			client := closed(t, redis.NewClient(&redis.Options{Addr: server.Addr(), Username: "service", Password: "right", MaintNotificationsConfig: rig.NoNotices}))
			f := follow(t, client, shards)
			eventually := func(what string, ok func() bool) {
				t.Helper()
				testrun.Eventually(t, what, ok)
			}
			refusedBy := func(code string) func() bool {
				return func() bool {
					err := f.refused()
					return err != nil && strings.Contains(err.Error(), code) && f.log.Count(code) == 1
				}
			}
			eventually("an unknown user is refused", refusedBy("WRONGPASS"))
			if err := f.ready(); err == nil || !strings.Contains(err.Error(), "WRONGPASS") || !strings.Contains(err.Error(), "shard 0 of 1") {
				t.Errorf("waiting for the table: %v", err)
			}
			allow("on", ">right", "~{tallygate:*", "+ping")
			eventually("a missing right is refused, and said", refusedBy("NOPERM"))
			allow("+hmget", "+hscan", "+xread")
			eventually("it follows", func() bool { return f.table.Ready() && !f.table.Check("any", "42").Allowed })
			eventually("and says so", func() bool { return f.log.Has("works again") && f.refused() == nil })
			if err := f.ready(); err != nil {
				t.Error(err)
			}
			allow("-xread")
			eventually("a right that is taken away is refused", func() bool { return f.refused() != nil })
			allow("+xread")
			eventually("and it follows again", func() bool { return f.refused() == nil && f.log.Count("works again") >= 2 })
			if n := f.log.Count("is interrupted"); n < 3 || n > 5 {
				t.Errorf("%d lines about three refusals:\n%s", n, &f.log)
			}
			if f.log.Has("right\"") || f.log.Has(">right") {
				t.Error("the log has the password")
			}
			if stats := f.feed.Stats(); stats.Errors[ErrorAuth] < 3 {
				t.Errorf("%+v", stats.Errors)
			}
		})
	}
}

// A password that is asked for, and not given.
func TestAPasswordThatIsMissing(t *testing.T) {
	addr := rig.RealRedis(t)
	if err := rig.Dial(t, addr).ConfigSet(t.Context(), "requirepass", "secret").Err(); err != nil {
		t.Fatal(err)
	}
	f := follow(t, rig.Dial(t, addr), AnyShards)
	testrun.Eventually(t, "it is refused", func() bool {
		err := f.refused()
		return err != nil && strings.Contains(err.Error(), "NOAUTH")
	})
}

// A feed that was not told how many shards there are follows all of them: a service that assumed one
// missed the others.
func TestAFeedLearnsTheNumberOfShards(t *testing.T) {
	rig.OnEachRedis(t, func(t *testing.T, client redis.UniversalClient) {
		f := follow(t, client, AnyShards)
		testrun.Eventually(t, "it waits for a publisher", func() bool { return f.log.Has("is waiting") })
		if err := f.ready(); err == nil || !strings.Contains(err.Error(), "waits for an aggregator") {
			t.Errorf("waiting for the table: %v", err)
		}
		kafka := rig.NewBroker(t, 3)
		p, _ := startPublisher(t, kafka, client, func(c *publish.Config) { c.Partitions, c.Shards = 3, 3 })
		for partition := range int32(3) {
			p.Own(partition)
			first, next, offered := kafka.Write(partition, rig.Record(rig.Block(fmt.Sprint("u", partition), 1, time.Hour)))
			p.Offer(partition, first, next, offered)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := f.table.WaitReady(ctx); err != nil {
			t.Fatal(err)
		}
		testrun.Eventually(t, "it has the verdicts of all shards", func() bool { return f.table.Len() == 3 })
		if f.table.Shards() != 3 || f.feed.Refused() != nil {
			t.Errorf("%d shards, %v", f.table.Shards(), f.feed.Refused())
		}
	})
}

// bareSink cannot be told a number of shards.
type bareSink struct{ Sink }

func TestASinkThatCannotLearn(t *testing.T) {
	feed, err := NewFeed(FeedConfig{Redis: rig.Dial(t, "127.0.0.1:1"), Shards: AnyShards, Logger: rig.Quiet()})
	if err != nil {
		t.Fatal(err)
	}
	if err := feed.Run(t.Context(), bareSink{rig.NewMemory()}); !errors.Is(err, errNoSetShards) {
		t.Error(err)
	}
}
