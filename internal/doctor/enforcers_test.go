package doctor

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/internal/servers"
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
	r := examine(t, cfg)
	wants(t, r, "enforcers", Fail, "2 enforcers stale: alone (has never read the blocklist), behind (1m1s behind)", "is it written")
	wants(t, r, "enforcers", Fail, "1 enforcer unable to follow the blocklist: alone (NOPERM no right)")
	wants(t, r, "enforcers", Warn, "1 enforcer switched off, which allows everything: open (by file, since 2026-11-25T18:00:00Z)", "--off-file")
	wants(t, r, "enforcers", Warn, "1 enforcer with a clock that is not Redis': early (+3600.0 s)", "NTP")
	wants(t, r, "enforcers", Warn, "1 enforcer gone without a word: killed (heard of 1m0s ago)")
	wants(t, r, "enforcers", Warn, "they have 2 versions: v1 (early, edge-1, open, shop); v2 (alone, behind)", "finish the upgrade")
	if n := failed(r, "enforcers"); n != 2 {
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
