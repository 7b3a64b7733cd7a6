package ops

import (
	"context"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestPercentOf(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	for _, c := range []struct {
		name        string
		live, state int64
		want        int
	}{
		{"no collection yet", 0, 0, 100},
		{"a small heap", 40 * mb, 10 * mb, 100},
		{"a heap without state", 2000 * mb, 0, 100},
		{"a million keys", 300 * mb, 250 * mb, 32},             // 96 MB
		{"much beside the state", 400 * mb, 200 * mb, 50},      // 200 MB
		{"ten million keys", 2600 * mb, 2500 * mb, 12},         // 312 MB
		{"more state than was in use", 200 * mb, 900 * mb, 56}, // 112 MB
		{"a hundred million keys", 26000 * mb, 25900 * mb, 12}, // 3.2 GB
		{"far more state than was in use", 1 * mb, 900 * mb, 100},
	} {
		if got := percentOf(c.live, c.state); got != c.want {
			t.Errorf("%s: %d%%, want %d%%", c.name, got, c.want)
		}
	}
}

func TestPacerSetsWhatHasChanged(t *testing.T) {
	t.Parallel()
	const mb = 1 << 20
	var set []int
	p := pacer{percent: defaultPercent, set: func(percent int) { set = append(set, percent) }}
	for _, live := range []int64{50, 300, 305, 310, 600, 90, 50} {
		p.follow(live*mb, (live-50)*mb)
	}
	if want := []int{32, 16, 100}; !slices.Equal(set, want) {
		t.Errorf("set: %v, want %v", set, want)
	}
}

// The percentage is of the whole process, so this test is not parallel.
func TestPaceCollector(t *testing.T) {
	before := debug.SetGCPercent(defaultPercent)
	t.Cleanup(func() { debug.SetGCPercent(before) })
	now := func() int {
		percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(percent)
		return int(percent[0].Value.Uint64())
	}
	ballast := make([]byte, 400<<20)
	defer func() { ballast[0] = 1 }()

	t.Setenv("GOGC", "300")
	PaceCollector(t.Context(), func() int64 { return 400 << 20 }) // returns at once
	if got := now(); got != defaultPercent {
		t.Errorf("with GOGC it set %d%%", got)
	}

	t.Setenv("GOGC", "")
	ctx, end := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		PaceCollector(ctx, func() int64 { return 400 << 20 })
	}()
	testrun.Eventually(t, "the percentage follows the state", func() bool { return now() < 40 })
	end()
	<-done
	if got := now(); got != defaultPercent {
		t.Errorf("it left %d%%", got)
	}
}
