package publish

import (
	"fmt"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
)

// TestOnRedis: the scripts take what is published, and grant permits that it settles.
func TestOnRedis(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servers.StartRedis(t).Addr(), MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
	t.Cleanup(func() { client.Close() })
	r := newRig(t, 3, 2)
	shards := OnRedis(client, "", 2, 3).(*script.Shards)
	p, _ := r.start(func(c *Config) { c.Redis, c.Partitions = shards, 3 })
	strict(p, 4)
	for partition := range int32(3) {
		o := r.own(p, partition, nil)
		key, now := fmt.Sprint("uid=", partition), event.Micros(0)
		ask := func(id string) protocol.Answer {
			a, err := shards.Admit(t.Context(), &protocol.Ask{
				Partition: partition, Key: key, IDs: []string{id}, Before: event.MaxTime, Version: 4,
				Wants: []protocol.Want{{Limit: protocol.Limit{Name: "day", Grain: event.Day, Keeps: event.Day, Hold: hold}, Amount: event.One, Threshold: 2 * event.One}},
			})
			if err != nil {
				t.Fatal(err)
			}
			now = a.Now
			return a
		}
		o.put(version(4))
		testrun.Eventually(t, "a permit is granted", func() bool { return ask("a").Status == protocol.Granted })
		if a := ask("b"); a.Status != protocol.Granted {
			t.Errorf("the second one: %+v", a)
		}
		if c := ask("c"); c.Status != protocol.Denied {
			t.Errorf("the third one: %+v", c)
		}
		o.put(level(key, 1, now, 1, "a", "b")) // b's action failed
		testrun.Eventually(t, "both are settled, and there is room for one", func() bool { return ask("c").Status == protocol.Granted })
		if d := ask("d"); d.Status != protocol.Denied {
			t.Errorf("the fourth one: %+v", d)
		}
	}
	testrun.Eventually(t, "all is settled", func() bool {
		for _, s := range p.Stats().Partitions {
			if !s.Grants || s.Lag > 0 || s.Unsettled > 10*1e9 {
				return false
			}
		}
		return true
	})
	if has, err := shards.Rules(t.Context()); err != nil || has.Latest != 4 {
		t.Errorf("the rules: %+v, %v", has, err)
	}
}
