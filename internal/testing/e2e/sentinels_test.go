package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// The Sentinels' password is changed, then another Redis becomes the primary, then the file is
// changed: publisher and feed, which cannot ask where the primary is meanwhile and say so, follow
// by themselves. They had read that password only at their start.
func TestTheSentinelsPasswordIsRotated(t *testing.T) {
	servers.Nightly(t, "secrets")
	watched := servers.StartRedisSentinel(t, 1)
	admin := redis.NewClient(&redis.Options{Addr: watched.Addrs()[0]})
	t.Cleanup(func() { _ = admin.Close() })
	password := func(text string) {
		t.Helper()
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "watcher", "on", "resetpass", ">"+text, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		_ = admin.Do(t.Context(), "CLIENT", "KILL", "USER", "watcher").Err()
	}
	file := filepath.Join(t.TempDir(), "password")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	password("hunter-1")
	put("hunter-1")
	// The one that is there in the end.
	r := newRigOn(t, servers.Kafka(t), watched.Replica.Addr(), searches)
	by := []string{"--redis", strings.Join(watched.Addrs(), ","), "--redis-master", servers.Master, "--redis-sentinel-user", "watcher", "--redis-sentinel-password-file", file}
	a := r.aggregator("a", by...).Start().Ready()
	guard := newProcess(t, "enforcer", program(t, "enforcer"), append(by, "--prefix", r.prefix)...).Start().Ready()
	emitter, err := emit.New(emit.Config{Brokers: r.brokers, Prefix: r.prefix})
	if err != nil {
		t.Fatal(err)
	}
	denied := func(uid string) {
		t.Helper()
		for range 10 {
			emitter.Emit(event.Event{UID: uid, API: "search.query"})
		}
		eventually(t, uid+", who searched too much, is denied", func() bool { return !check(t, guard, "search.query", []string{uid})[0].Allowed })
	}
	denied("1")

	password("hunter-2")
	watched.FailOver()
	for _, p := range []*Process{a, guard} {
		eventually(t, p.name+" says that it is refused", func() bool { return strings.Contains(p.Logs(), "Redis refuses us") })
	}
	put("hunter-2")
	denied("2")
	for _, p := range []*Process{a, guard} {
		eventually(t, p.name+" says that it is let in", func() bool { return strings.Contains(p.Logs(), "Redis accepts us again") })
		p.Ready()
		if strings.Contains(p.Logs(), "hunter-") {
			t.Errorf("the log of %s tells the password", p.name)
		}
	}
	closeEmitter(t, emitter)
}
