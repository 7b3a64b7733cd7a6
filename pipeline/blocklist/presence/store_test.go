package presence

import (
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

var noNotices = &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}

func dial(t testing.TB, addr string) redis.UniversalClient {
	client := redis.NewClient(&redis.Options{Addr: addr, MaintNotificationsConfig: noNotices})
	t.Cleanup(func() { _ = client.Close() })
	return client
}

// onEach runs a test on each kind of Redis.
func onEach(t *testing.T, test func(t *testing.T, client redis.UniversalClient)) {
	t.Run("miniredis", func(t *testing.T) {
		servers.Embedded(t)
		test(t, dial(t, miniredis.RunT(t).Addr()))
	})
	t.Run("redis", func(t *testing.T) { test(t, dial(t, servers.StartRedis(t).Addr())) })
	t.Run("cluster", func(t *testing.T) {
		client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: servers.StartRedisCluster(t, 3).Addrs(), MaintNotificationsConfig: noNotices})
		t.Cleanup(func() { _ = client.Close() })
		test(t, client)
	})
}

func list(t *testing.T, client redis.UniversalClient) []Beat {
	t.Helper()
	all, err := List(t.Context(), client, "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func write(t *testing.T, client redis.UniversalClient, b Beat) {
	t.Helper()
	if err := Write(t.Context(), client, "", b); err != nil {
		t.Fatal(err)
	}
}

// What enforcers say about themselves arrives as they said it, in the order of their names.
func TestList(t *testing.T) {
	onEach(t, func(t *testing.T, client redis.UniversalClient) {
		if all := list(t, client); len(all) != 0 {
			t.Fatalf("of nobody there are %+v", all)
		}
		at := time.Now().UTC().Truncate(time.Millisecond)
		second := Beat{ID: "2", Kind: DecisionServer, Name: "b", Version: "v1", URL: "http://b:8080", Started: at.Add(-time.Hour), At: at,
			Staleness: 0.5, Stale: true, Entries: 7, OffCause: "file", OffSince: at, Checks: 9, Denied: 4, Error: "no right"}
		first := Beat{ID: "3", Kind: Go, Name: "a", Started: at, At: at, Enabled: true, Staleness: -1}
		write(t, client, second)
		write(t, client, first)
		write(t, client, Beat{ID: "1", Name: "b", Started: at, At: at, Entries: 1})
		write(t, client, Beat{ID: "1", Name: "b", Started: at, At: at, Entries: 2}) // replaces it
		all := list(t, client)
		if len(all) != 3 || all[1].ID != "1" || all[1].Entries != 2 {
			t.Fatalf("there are %+v", all)
		}
		for i, want := range map[int]Beat{0: first, 2: second} {
			got := all[i]
			if got.Gone() || got.Age > time.Minute || got.Skew().Abs() > time.Minute {
				t.Errorf("%s was seen %v ago, its clock is ahead by %v", got.Name, got.Age, got.Skew())
			}
			if got.Seen, got.Age = (time.Time{}), 0; got != want {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		}
		if err := Remove(t.Context(), client, "", "1"); err != nil {
			t.Fatal(err)
		}
		if all := list(t, client); len(all) != 2 {
			t.Errorf("after it stopped, there are %+v", all)
		}
	})
}

// A clock of an enforcer that is an hour ahead makes it neither younger nor gone: it shows.
func TestClockAhead(t *testing.T) {
	client := dial(t, servers.StartRedis(t).Addr())
	write(t, client, Beat{ID: "1", At: time.Now().Add(time.Hour)})
	b := list(t, client)[0]
	if b.Gone() || b.Age > time.Minute {
		t.Errorf("it was seen %v ago", b.Age)
	}
	if skew := b.Skew(); skew < 59*time.Minute || skew > 61*time.Minute {
		t.Errorf("its clock is ahead by %v", skew)
	}
}

// Ages are those of Redis' clock: who is silent is gone, and then forgotten.
func TestAges(t *testing.T) {
	server := miniredis.RunT(t)
	client := dial(t, server.Addr())
	began := time.Now()
	server.SetTime(began)
	write(t, client, Beat{ID: "1"})
	for _, is := range []struct {
		after time.Duration
		there int
		gone  bool
	}{
		{GoneAfter - time.Second, 1, false}, {GoneAfter, 1, true}, {ForgottenAfter - time.Second, 1, true}, {ForgottenAfter, 0, false},
		// Redis' clock was set back: only who beats again is there.
		{-GoneAfter + time.Second, 1, false}, {-GoneAfter, 1, true}, {-ForgottenAfter, 0, false},
	} {
		server.SetTime(began.Add(is.after))
		all := list(t, client)
		if len(all) != is.there || is.there == 1 && (all[0].Gone() != is.gone || all[0].Age != is.after.Abs()) {
			t.Errorf("after %v there are %+v", is.after, all)
		}
		if left, err := clean(t.Context(), dial(t, server.Addr()), "another"); left != 0 || err != nil {
			t.Errorf("of another installation there are %d, %v", left, err)
		}
	}
	write(t, client, Beat{ID: "2"})
	if left, err := clean(t.Context(), client, ""); left != 1 || err != nil {
		t.Errorf("cleaning leaves %d, %v", left, err)
	}
	if fields, err := client.HKeys(t.Context(), Key("")).Result(); err != nil || len(fields) != 1 || fields[0] != "2" {
		t.Errorf("left are %v, %v", fields, err)
	}
}

// Whoever may write the key can write anything: no reader stumbles over it, and no line is long.
func TestWhatIsNoBeat(t *testing.T) {
	client := dial(t, miniredis.RunT(t).Addr())
	if err := client.HSet(t.Context(), Key(""), "x", "not JSON", "y", `[1]`, "z", `{"seen":"never"}`).Err(); err != nil {
		t.Fatal(err)
	}
	write(t, client, Beat{ID: "1", Name: "a\nb\tc", Error: strings.Repeat("é", 500) + "\xff"})
	all := list(t, client)
	if len(all) != 1 || all[0].Name != "a b c" || len(all[0].Error) > longest+len("…") || !strings.HasSuffix(all[0].Error, "é…") {
		t.Errorf("there are %+v", all)
	}
	if left, err := clean(t.Context(), client, ""); left != 1 || err != nil {
		t.Errorf("cleaning leaves %d, %v", left, err)
	}
	if n := client.HLen(t.Context(), Key("")).Val(); n != 4 {
		t.Errorf("what a newer program wrote was removed: %d fields are left", n)
	}
}
