package aggregate

import (
	"fmt"
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/pipeline/aggregate/budget"
	"github.com/tallygate/tallygate/pipeline/event"
)

// A backlog that takes a hundred times the buffer when it is decompressed is counted within it, whatever its
// batches are like: many in a bundle, and such as are larger than the buffer. What came is given back.
func TestABacklogIsCountedWithinTheBuffer(t *testing.T) {
	t.Parallel()
	r := newRig(t, startKfake(t))
	set := compile(t, yearly)
	r.begin(set).end(t) // it makes the topics
	const buffer, batches = 2 << 20, 12
	events := 0
	for n := range batches {
		for p := range int32(rigPartitions) {
			size := []int{1 << 10, 1 << 20, 3 << 20}[n%3]
			value := event.AppendJSON(nil, hit(fmt.Sprintf("u%d", p), "a.b"))
			r.appendRaw(r.names.Events, p, compressed(t, kmsg.Record{Value: value, Headers: []kmsg.Header{{Key: "pad", Value: make([]byte, size)}}}, kmsg.Record{Value: value}))
			events += 2
		}
	}
	m := r.start(set, func(c *Config) { c.BufferBytes = buffer })
	eventually(t, "all is counted", func() bool {
		sum := int64(0)
		for kind := range budget.Kinds {
			sum += m.budget.Held(kind)
		}
		// Batches that are larger go alone: before it is known how large, each counts as what it may have.
		if most := int64(m.cfg.MaxBatchBytes + buffer); sum > most {
			t.Errorf("%d bytes are held, of %d", sum, most)
		}
		n, _ := m.sample(t, "tallygate_events_total", "result=counted")
		return int(n) == events
	})
	eventually(t, "nothing is held", func() bool {
		sum := 0.0
		for kind := range budget.Kinds {
			n, ok := m.sample(t, "tallygate_buffer_bytes", "kind="+kind.String())
			if !ok {
				t.Fatalf("no metric of %s", kind)
			}
			sum += n
		}
		return sum == 0
	})
	if n, _ := m.sample(t, "tallygate_buffer_limit_bytes"); n != buffer {
		t.Errorf("the metric says that %v bytes may be held", n)
	}
	m.end(t)
}

func TestTheBufferFollowsTheMemoryLimit(t *testing.T) {
	for _, tt := range []struct{ limit, want int64 }{
		{math.MaxInt64, 256 << 20}, {1 << 30, 256 << 20}, {460 << 20, 115 << 20}, {100 << 20, 64 << 20}, {64 << 30, 1 << 30},
	} {
		if got := bufferOf(tt.limit); got != tt.want {
			t.Errorf("of %d it is %d, want %d", tt.limit, got, tt.want)
		}
	}
}
