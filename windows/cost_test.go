package windows_test

import (
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/windows"
)

// Promised: once a state's memory is as large as it gets, nothing allocates.
func TestNothingAllocates(t *testing.T) {
	for name, spec := range specs() {
		state, now := make([]byte, 0, spec.MaxBytes()), at("2026-11-21T10:00:00Z")
		allocs := testrun.Allocs(5000, func() {
			now += 700 * event.Millisecond
			state, _, _ = spec.AddSpent(state, now, event.One)
			state, _ = spec.Add(state, now-event.Second, event.One)
			spec.Latest(state)
			spec.Count(state)
			spec.CountAt(state, now+event.Second)
			spec.Bounds(state, now)
			spec.Below(state, 3*event.One)
			spec.Spent(state)
			if err := spec.Check(state); err != nil {
				t.Fatal(err)
			}
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations", name, allocs)
		}
	}
}

func BenchmarkAdd(b *testing.B) {
	hourly, hops := inPanes(event.Hour, 0), hoppingBy(event.Hour, event.Minute)
	for _, bb := range []struct {
		name string
		spec windows.Spec
		step event.Micros
	}{
		{"tumbling", perMinute(), event.Millisecond},
		{"calendar", specs()["calendar"], event.Millisecond},
		{"calendar next hour", civil(windows.Hour, "Europe/Berlin"), event.Hour},
		{"exact 5", exactly(event.Minute), 12 * event.Second},
		{"exact 65", exactly(event.Hour), event.Minute},
		{"exact and a tail", exactly(event.Hour), event.Second},
		{"panes same", hourly, event.Millisecond},
		{"panes next", hourly, event.Minute},
		{"panes late", hourly, event.Minute},
		{"hopping same", hops, event.Millisecond},
		{"hopping next", hops, event.Minute},
		{"hopping late", hops, event.Minute},
	} {
		b.Run(bb.name, func(b *testing.B) {
			if err := bb.spec.Validate(); err != nil {
				b.Fatal(err)
			}
			state, now := make([]byte, 0, bb.spec.MaxBytes()), at("2026-11-21T10:00:00Z")
			for range 200 {
				now += max(bb.step, bb.spec.Resolution, bb.spec.Every)
				state, _ = bb.spec.Add(state, now, 3*event.One)
			}
			behind := event.Micros(0)
			if strings.HasSuffix(bb.name, " late") {
				bb.step, behind = 0, event.Hour/2
			}
			b.ReportAllocs()
			for b.Loop() {
				now += bb.step
				state, _, _ = bb.spec.AddSpent(state, now-behind, event.One)
			}
			b.ReportMetric(float64(len(state)), "bytes")
		})
	}
}

func BenchmarkBelow(b *testing.B) {
	for name, spec := range specs() {
		b.Run(name, func(b *testing.B) {
			var state []byte
			now := at("2026-11-21T10:00:00Z")
			for range 60 {
				now += event.Second
				state, _, _ = spec.AddSpent(state, now, event.One)
			}
			b.ReportAllocs()
			for b.Loop() {
				spec.Below(state, 30*event.One)
			}
		})
	}
}
