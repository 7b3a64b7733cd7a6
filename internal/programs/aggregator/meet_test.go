package aggregator

import (
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
)

// Members meet in the Redis that they have in common, for a while, and after it has lost its memory again.
func TestMembersMeetInTheirRedis(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)
	server, elsewhere := miniredis.RunT(t), miniredis.RunT(t)
	in := func(m *miniredis.Miniredis) *meeting {
		client := redis.NewClient(&redis.Options{Addr: m.Addr()})
		t.Cleanup(func() { _ = client.Close() })
		return &meeting{redis: client, prefix: "shop"}
	}
	here, another := in(server), in(elsewhere)
	wants := func(m *meeting, own string, want ...string) {
		t.Helper()
		got, err := m.Meet(t.Context(), own)
		slices.Sort(got)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s meets %q, %v; want %q", own, got, err, want)
		}
	}
	server.SetTime(noon)
	wants(here, "a", "a")
	wants(here, "b", "a", "b")
	wants(another, "c", "c")
	server.SetTime(noon.Add(metWithin - time.Second))
	wants(here, "b", "a", "b")
	server.SetTime(noon.Add(metWithin))
	wants(here, "b", "b")
	wants(here, "a", "a", "b")
	server.FlushAll()
	wants(here, "b", "b")
	wants(here, "a", "a", "b")
	server.SetTime(noon.Add(2 * meetingKeeps)) // who ended is forgotten
	wants(here, "d", "d")
	if names, err := server.HKeys("{shop:0}:aggregators"); err != nil || !slices.Equal(names, []string{"d"}) {
		t.Errorf("%q, %v are kept", names, err)
	}
	server.Close()
	if _, err := here.Meet(t.Context(), "a"); err == nil {
		t.Error("nobody is met in a Redis that is away")
	}
}
