package e2e

import (
	"encoding/binary"
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/tracing/collectortest"
)

// oneTraced is of how many events one has a sampled trace context: its record is its own, also among arrays,
// and the context goes through forwards and into verdicts. Counts are what they are without.
const oneTraced = 20

// traced is the next event.
func traced(g *traffic) event.Event {
	e := g.next()
	if g.n%oneTraced == 0 {
		binary.BigEndian.PutUint64(e.Trace.ID[:], uint64(g.n)+1)
		binary.BigEndian.PutUint64(e.Trace.Span[:], uint64(g.n)+1)
	}
	return e
}

// startCollector starts where all programs send spans to: a collector that answers every other request only.
func (s *stage) startCollector(t *testing.T) {
	t.Helper()
	collector := collectortest.Start(t)
	var n, taken atomic.Int64
	collector.Answer(func(w http.ResponseWriter) bool {
		if n.Add(1)%2 == 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		} else {
			taken.Add(1)
		}
		return true
	})
	s.collector = collector.URL
	t.Cleanup(func() {
		t.Logf("the collector of traces took %d requests, and refused as many", taken.Load())
		if taken.Load() == 0 && s.load != nil {
			t.Error("no span has reached the collector of traces")
		}
	})
}
