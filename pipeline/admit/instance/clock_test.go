package instance

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// A machine that came up an hour ahead denied all requests of a full window for an hour, once its clock
// was set right.
func TestAClockThatIsSetRight(t *testing.T) {
	set, err := rules.Compile("test.yaml", []byte(`
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  rules:
    - {name: r, key: [], match: {api: x}, window: tumbling, per: 1s, limit: 1, scope: instance}
`))
	if err != nil {
		t.Fatal(err)
	}
	const second = int64(event.Second)
	noon := 1_795_262_400 * second
	var c clock
	var wall, passed int64
	limits := New(set, Options{Now: func() event.Micros { return c.at(wall, passed) }})
	for _, at := range []struct {
		wall, passed int64 // seconds since noon by the wall, and since the process began
		allowed      bool
	}{
		{3600, 0, true}, {3600, 0, false}, {1, 1, true}, {1, 1, false}, {2, 2, true}, // set right after one second
		{-3600, 3, true}, {-3600, 3, false}, {-3599, 4, true},
		{3602, 5, true}, {3602, 5, false}, {3700, 6, true}, {3700, 6, false},
	} {
		wall, passed = noon+at.wall*second, at.passed*second
		if r, _ := limits.Admit(&event.Event{API: "x", Cost: event.One}); r.Allowed != at.allowed {
			t.Errorf("%d s after noon, after %d s: %v", at.wall, at.passed, r.Allowed)
		}
	}
}

func TestTheClockIsTheSystems(t *testing.T) {
	c := newClock()
	for last := event.Micros(0); last < event.FromTime(c.began)+1000; {
		from := time.Now().UnixMicro()
		at := c.now()
		if to := time.Now().UnixMicro(); at < last || int64(at) < from || int64(at) > to+1 { // two roundings to a µs
			t.Fatalf("%d, after %d, between %d and %d", at, last, from, to)
		}
		last = at
	}
}
