package script

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// TestTheRightsThatTheReferenceNames are enough: for publishers of strict limits, and for services that
// ask for permits.
func TestTheRightsThatTheReferenceNames(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/reference/kafka.md")
	if err != nil {
		t.Fatal(err)
	}
	users := regexp.MustCompile(`(?m)^ACL SETUSER (tallygate|tallygate-permits) .*$`).FindAllString(string(page), -1)
	if len(users) != 3 {
		t.Fatalf("%d users, want the publisher's, what strict rules add to it, and the services': %q", len(users), users)
	}
	addr := servers.StartRedis(t).Addr()
	admin := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() { admin.Close() })
	as := func(user string) *Shards {
		client := redis.NewClient(&redis.Options{Addr: addr, Username: user, Password: "PASSWORD",
			MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
		t.Cleanup(func() { client.Close() })
		return &Shards{Client: client, Prefix: "tallygate", Shards: 1, Partitions: 2}
	}
	publisher, service, ok := as("tallygate"), as("tallygate-permits"), func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, line := range users {
		if i == 1 { // with the rights that publishers have everywhere: it puts rules where none is strict
			ok(publisher.PutRules(t.Context(), 7, nil))
			_, err := publisher.HasRules(t.Context(), 7)
			ok(err)
		}
		words := strings.Fields(line)
		args := make([]any, len(words))
		for i, w := range words {
			args[i] = w
		}
		if err := admin.Do(t.Context(), args...).Err(); err != nil {
			t.Fatal(line, err)
		}
	}
	now := event.Micros(1) << 50
	a, err := publisher.Apply(t.Context(), &protocol.Batch{Next: 2, Beat: now, Records: []protocol.Record{{Version: 1}, {Level: &protocol.Level{Key: "uid=1", Seq: 1}}}})
	ok(err)
	_, err = publisher.Apply(t.Context(), &protocol.Batch{Start: 2, Next: 3, Beat: a.Clock, Begin: true, Records: []protocol.Record{
		{Grants: &protocol.Grants{Run: a.Run, Life: "another", Until: a.Clock}},
	}})
	ok(err)
	_, err = publisher.Report(t.Context(), 0, 1, protocol.Mark{})
	ok(err)
	ok(publisher.PutRules(t.Context(), 1, []byte("{}")))
	_, err = service.Rules(t.Context())
	ok(err)
	_, err = service.RulesOf(t.Context(), 1)
	ok(err)
	_, err = service.Beat(t.Context())
	ok(err)
	_, err = service.Cancel(t.Context(), 0, "uid=1", []string{"id"})
	ok(err)

	// A permit is granted, appended beside another one, and settled.
	a, err = publisher.Apply(t.Context(), &protocol.Batch{Start: 3, Next: 3, Beat: a.Clock})
	ok(err)
	_, err = publisher.Apply(t.Context(), &protocol.Batch{Start: 3, Next: 4, Beat: a.Clock, Records: []protocol.Record{
		{Grants: &protocol.Grants{Run: a.Run, Life: a.Life, Until: a.Clock + event.Hour}},
	}})
	ok(err)
	for _, id := range []string{"a", "b"} {
		w := limits[0]
		w.Amount = event.One
		got, err := service.Admit(t.Context(), &protocol.Ask{Key: "uid=1", IDs: []string{id}, Before: event.MaxTime, Version: 1, Wants: []protocol.Want{w}})
		if err != nil || got.Status != protocol.Granted {
			t.Fatal(got, err)
		}
	}
	_, err = publisher.Apply(t.Context(), &protocol.Batch{Start: 4, Next: 5, Beat: a.Clock, Records: []protocol.Record{
		{Level: &protocol.Level{Key: "uid=1", Seq: 2, Settles: []string{"a", "b"}}},
	}})
	ok(err)
	_, _, err = publisher.Inspect(t.Context(), 0, "uid=1")
	ok(err)
}
