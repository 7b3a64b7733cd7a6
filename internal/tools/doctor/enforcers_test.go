package doctor

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// What is wrong with some enforcers is said of these, by name, in one result for each kind of trouble.
func TestEnforcers(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	cfg := Config{Kafka: brokers("127.0.0.1:1"), Redis: client(t, server.Addr())}
	began := time.Now()
	write := func(b presence.Beat) {
		t.Helper()
		if b.At.IsZero() {
			b.At = began
		}
		if err := presence.Write(t.Context(), cfg.Redis, "", b); err != nil {
			t.Fatal(err)
		}
	}
	server.SetTime(began)
	wants(t, examine(t, cfg), "enforcers", Skipped, "none has announced itself")
	write(presence.Beat{ID: "1", Name: "edge-1", Version: "v1", Enabled: true, Entries: 1})
	write(presence.Beat{ID: "2", Name: "shop", Version: "v1", Enabled: true, Entries: 7})
	wants(t, examine(t, cfg), "enforcers", OK, "2 enforcers in step, all of version v1: edge-1 (1 verdict), shop (7 verdicts)")

	server.SetTime(began.Add(-time.Minute))
	write(presence.Beat{ID: "3", Name: "killed", Version: "v0", Enabled: true, At: began.Add(-time.Minute)})
	server.SetTime(began)
	write(presence.Beat{ID: "4", Name: "alone", Version: "v2", Enabled: true, Stale: true, Staleness: -1, Error: "NOPERM no right"})
	write(presence.Beat{ID: "5", Name: "behind", Version: "v2", Enabled: true, Stale: true, Staleness: 61.04})
	write(presence.Beat{ID: "6", Name: "open", Version: "v1", OffCause: "file", OffSince: time.Date(2026, 11, 25, 18, 0, 0, 0, time.UTC)})
	write(presence.Beat{ID: "7", Name: "early", Version: "v1", Enabled: true, At: began.Add(time.Hour)})
	write(presence.Beat{ID: "8", Name: "late", Version: "v1", Enabled: true, Staleness: 7})
	r := examine(t, cfg)
	wants(t, r, "enforcers", Fail, "1 enforcer stale: behind (its blocklist is 1 min 1 s old)", "is the blocklist written")
	wants(t, r, "enforcers", Fail, "1 enforcer without a blocklist: alone (it has no blocklist yet)")
	wants(t, r, "enforcers", Fail, "1 enforcer unable to follow the blocklist: alone (NOPERM no right)")
	wants(t, r, "enforcers", Fail, "a kill switch is on: open (file) allow everything, since 2026-11-25T18:00:00Z", "--off-file")
	wants(t, r, "enforcers", Warn, "clocks differ: early (its clock is 1 h 0 min fast)", "NTP")
	wants(t, r, "enforcers", Fail, "1 enforcer gone without a word: killed (not heard of for 1 min 0 s)")
	wants(t, r, "enforcers", Warn, "1 enforcer behind: late (its blocklist is 7 s behind)")
	wants(t, r, "enforcers", Warn, "the enforcers have 2 versions: v1: early, edge-1, late, open, shop; v2: alone, behind", "finish the upgrade")
	if n := failed(r, "enforcers"); n != 5 {
		t.Errorf("%d failures", n)
	}
}

// An installation whose users have the rights of a former version works, and is told what to add.
func TestEnforcersWithoutRights(t *testing.T) {
	addr := servers.StartRedis(t).Addr()
	root := client(t, addr)
	set := func(rules ...any) *Report {
		t.Helper()
		if err := root.Do(t.Context(), append([]any{"acl", "setuser", "tg", "reset", "on", ">secret", "+ping", "+time"}, rules...)...).Err(); err != nil {
			t.Fatal(err)
		}
		_, r, _ := runJSON(t, map[string]string{"TALLYGATE_REDIS_PASSWORD": "secret"}, "--kafka", "127.0.0.1:1", "--redis", addr, "--redis-user", "tg")
		return r
	}
	r := set("~{tallygate:*", "+hmget", "+acl|whoami", "+acl|dryrun")
	wants(t, r, "enforcers", Warn, `user "tg" may not use hset, hdel, hgetall on tallygate-enforcers`, "ACL SETUSER tg ~tallygate-enforcers +hset +hdel +hgetall +time")
	if n := failed(r, "enforcers"); n != 0 {
		t.Errorf("%d failures", n)
	}
	wants(t, set("~{tallygate:*", "+hmget"), "enforcers", Skipped, "no right to list them")
	wants(t, set("~tallygate-enforcers", "+hgetall"), "enforcers", Skipped, "none has announced itself")
	wants(t, set("~tallygate-enforcers", "+hset", "+hdel", "+hgetall", "+acl|whoami", "+acl|dryrun"), "enforcers", Skipped, "none has announced itself")
	if keys := root.Keys(t.Context(), "*").Val(); len(keys) > 0 {
		t.Errorf("keys left: %q", keys)
	}
}
