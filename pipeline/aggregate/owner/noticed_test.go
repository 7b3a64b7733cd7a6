package owner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// However many names producers make up, the metric and the list have a hundred; a producer is logged once an
// hour, with how many events there were since.
func TestNamesOfProducersAreFew(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	now := time.Unix(0, 0)
	for i := range 3 * maxNoticed {
		name := fmt.Sprint("n", i)
		m.misplaced.add(name, 1, now)
		m.unmatched.add(shard.Unmatched{API: name, Outcome: strings.Repeat("ö", 100)}, 2)
	}
	if n := len(m.misplaced.events); n != maxNoticed+1 || m.misplaced.events[rules.OtherNames] != 2*maxNoticed {
		t.Errorf("%d producers, %d others", n, m.misplaced.events[rules.OtherNames])
	}
	list := m.Unmatched()
	if len(list) != maxNoticed+1 || list[0] != (api.UnmatchedEvents{API: rules.OtherNames, Events: 4 * maxNoticed}) || list[1] != (api.UnmatchedEvents{API: "n0", Outcome: strings.Repeat("ö", 32), Events: 2}) {
		t.Errorf("%d of them: %v", len(list), list[:2])
	}
}

func TestAProducerIsLoggedOnceAnHour(t *testing.T) {
	m := newMisplaced()
	start := time.Unix(1000, 0)
	for _, tc := range []struct {
		after  time.Duration
		events uint64
		due    bool
	}{{0, 5, true}, {time.Minute, 0, false}, {59 * time.Minute, 0, false}, {time.Hour, 15, true}, {time.Hour + time.Minute, 0, false}} {
		name, events, due := m.add("", 5, start.Add(tc.after))
		if name != unnamedClient || due != tc.due || due && events != tc.events {
			t.Errorf("after %v: %s, %d, %v", tc.after, name, events, due)
		}
	}
}
