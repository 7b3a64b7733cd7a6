package emit_test

import (
	"fmt"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

func typical() event.Event {
	return event.Event{
		ID: "01J8Z3K4M5", UID: "42", API: "search.query", Outcome: "success",
		IP:   netip.MustParseAddr("203.0.113.9"),
		Time: 1_795_255_200_123_000,
		Attrs: []event.Attr{
			{Name: "device", Value: event.StringValue("d1")},
			{Name: "bytes", Value: event.NumberValue(2048 * event.One)},
			{Name: "discounted", Value: event.BoolValue(true)},
		},
	}
}

// Emit is called on the request path: beyond the queue's own memory, which is used again and
// again, it allocates nothing, neither while there is room nor when the queue is full.
func TestEmitAllocatesNothing(t *testing.T) {
	if emit.UnderRace() {
		t.Skip("with the race detector sync.Pool forgets at random")
	}
	ev := typical()
	t.Run("queue full", func(t *testing.T) {
		e := start(t, place{[]string{"127.0.0.1:1"}, topic}, func(c *emit.Config) { c.MaxEvents = 1 })
		if got := testrun.Allocs(1000, func() { e.Emit(ev) }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	})
	t.Run("queueing", func(t *testing.T) {
		e := start(t, place{[]string{"127.0.0.1:1"}, topic}, nil)
		for range 50_000 { // the queue's memory, which grows a few times
			e.Emit(ev)
		}
		if got := testrun.Allocs(20_000, func() { e.Emit(ev) }); got != 0 {
			t.Errorf("%v allocations", got)
		}
	})
}

// What an application links by importing this package is a promise.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Skipf("no go command: %v", err)
	}
	for dep := range strings.Lines(string(out)) {
		for _, banned := range []string{"goka", "yaml", "grpc", "redis", "prometheus", "sarama", "expr-lang", "franz-go"} {
			if strings.Contains(dep, banned) {
				t.Errorf("links %s", dep)
			}
		}
		// The last is a page of the standard library's.
		own := []string{"pipeline/emit", "event", "internal/base/retry", "internal/base/logonce"}
		if _, path, ok := strings.Cut(strings.TrimSpace(dep), "tallygate/tallygate/"); ok && !slices.Contains(own, path) {
			t.Errorf("links %s", dep)
		}
	}
}

func BenchmarkEmit(b *testing.B) {
	for _, broker := range []string{"flowing", "away"} {
		b.Run(broker, func(b *testing.B) {
			p := place{[]string{"127.0.0.1:1"}, topic}
			if broker == "flowing" {
				_, p = fake(b, 8)
			}
			e := start(b, p, nil)
			var user atomic.Int64
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				ev := typical()
				ev.UID = fmt.Sprintf("user-%d", user.Add(1))
				for pb.Next() {
					e.Emit(ev)
				}
			})
			b.ReportMetric(float64(e.Stats().Dropped.Total())/float64(b.N), "dropped/op")
		})
	}
}
