package windows_test

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// counter is one key's counter in a test that reads as a story.
type counter struct {
	testing.TB
	spec  windows.Spec
	state []byte
}

func newCounter(t testing.TB, spec windows.Spec) *counter {
	t.Helper()
	if err := spec.Validate(); err != nil {
		t.Fatal(err)
	}
	return &counter{TB: t, spec: spec}
}

// add counts n events at once.
func (c *counter) add(at event.Micros, n int64) windows.Added {
	c.Helper()
	var added windows.Added
	c.state, added = c.spec.Add(c.state, at, event.Decimal(n)*event.One)
	if err := c.spec.Check(c.state); err != nil {
		c.Fatalf("after %v: %v", at.Time(), err)
	}
	return added
}

// counts adds n events at once, which have to go into the current window and make it count.
func (c *counter) counts(at event.Micros, n, count int64) {
	c.Helper()
	want := windows.Added{Count: event.Decimal(count) * event.One}
	if got := c.add(at, n); got != want {
		c.Errorf("%d at %v: %+v, want %+v", n, at.Time(), got, want)
	}
}

// countsEnded adds n events at once, which have to go into the window before the current one.
func (c *counter) countsEnded(at event.Micros, n, count int64) {
	c.Helper()
	want := windows.Added{Ended: true, Count: event.Decimal(count) * event.One}
	if got := c.add(at, n); got != want {
		c.Errorf("%d at %v: %+v, want %+v", n, at.Time(), got, want)
	}
}

// tooLate adds an event that has to change nothing.
func (c *counter) tooLate(at event.Micros) {
	c.Helper()
	before := string(c.state)
	if got := c.add(at, 1); !got.Late || got.Count != c.spec.Count(c.state) || string(c.state) != before {
		c.Errorf("at %v: %+v, want it late, and nothing changed", at.Time(), got)
	}
}

// isBelow asks from when on the count is below limit.
func (c *counter) isBelow(limit int64, want event.Micros) {
	c.Helper()
	if got := c.spec.Below(c.state, event.Decimal(limit)*event.One); got != want {
		c.Errorf("below %d from %v, want %v", limit, got.Time(), want.Time())
	}
}

func (c *counter) isSpent(want event.Micros) {
	c.Helper()
	if got := c.spec.Spent(c.state); got != want {
		c.Errorf("spent from %v, want %v", got.Time(), want.Time())
	}
}

// at is a moment such as 2026-11-21T10:00:00.5+08:00.
func at(rfc3339 string) event.Micros {
	t, err := time.Parse(time.RFC3339Nano, rfc3339)
	if err != nil {
		panic(err)
	}
	return event.FromTime(t)
}

// tick is the shortest time there is.
const tick event.Micros = 1
