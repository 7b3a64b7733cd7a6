package emit_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// traceOf is the context of the event with this number; one of seven has one.
func traceOf(n int) (t event.Trace) {
	if n%7 == 0 {
		binary.BigEndian.PutUint64(t.ID[:], uint64(n)+1)
		binary.BigEndian.PutUint64(t.Span[:], uint64(n)+1)
	}
	return t
}

// told collects the calls of Config.Traced.
type told struct {
	mu  sync.Mutex
	all map[event.Trace][]error
}

func (l *told) note(trace event.Trace, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[event.Trace][]error{}
	}
	l.all[trace] = append(l.all[trace], err)
}

// An event with a context has a record of its own, whose header has it. All else is as without: each event
// is in the log once but for repeats that have their numbers, and one user's events are in their order.
func TestTracedEvents(t *testing.T) {
	for _, perRecord := range []int{1, 100} {
		t.Run(fmt.Sprintf("per-record=%d", perRecord), func(t *testing.T) {
			c, p := fake(t, 3)
			var requests atomic.Int64
			c.Fault(kfake.Fault{ // after the records were appended
				Keys: []kmsg.Key{kmsg.Produce}, Err: kerr.RequestTimedOut, Count: 10,
				When: func(kmsg.Request) bool { return requests.Add(1)%3 == 2 },
			})
			var l told
			e := start(t, p, func(c *emit.Config) {
				small(c)
				c.EventsPerRecord, c.TracesPerSecond, c.Traced = perRecord, 1_000_000, l.note
			})
			const count = 5000
			for n := range count {
				ev := numbered(fmt.Sprintf("user-%d", n%53), n)
				ev.Trace = traceOf(n)
				if err := e.EmitWait(t.Context(), ev); err != nil {
					t.Fatal(err)
				}
			}
			closeNow(t, e)
			log := readLog(t, p)
			records, repeats := consume(t, log)
			if repeats == 0 {
				t.Error("nothing was repeated: the test did not test")
			}
			var events []string
			for _, r := range records {
				events = append(events, strings.SplitAfter(strings.Trim(r, "[]"), "},")...)
			}
			wantNumbered(t, events, count)
			wantOrder(t, log)
			for n := range count {
				trace := traceOf(n)
				if errs := l.all[trace]; !trace.IsZero() && (len(errs) != 1 || errs[0] != nil) {
					t.Fatalf("of event %d it was told %v", n, errs)
				}
			}
		})
	}
}

// wantOrder fails the test unless what has a context is one event that has it, and numbers of one user grow.
func wantOrder(t *testing.T, log map[int32][]logged) {
	t.Helper()
	for _, records := range log {
		last, seen := map[string]int{}, uint64(0)
		for _, r := range records {
			if r.sequence <= seen {
				continue
			}
			seen = r.sequence
			for _, part := range strings.SplitAfter(strings.Trim(r.value, "[]"), "},") {
				var n int
				_, rest, _ := strings.Cut(part, `"id":"n`)
				if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
					t.Fatalf("%s: %v", part, err)
				}
				if r.trace != traceOf(n).String() {
					t.Fatalf("event %d has the context %q", n, r.trace)
				}
				user := fmt.Sprint(n % 53)
				if before, known := last[user]; known && n < before {
					t.Fatalf("event %d comes after %d", n, before)
				}
				last[user] = n
			}
		}
	}
}

// Beyond the bound events are sent without their contexts, and none is dropped for it. By default none is sent.
func TestTracesPerSecond(t *testing.T) {
	for bound, most := range map[int]int{0: 0, 3: 6} { // a second may end in between
		_, p := fake(t, 1)
		var l told
		e := start(t, p, func(c *emit.Config) { c.TracesPerSecond, c.Traced = bound, l.note })
		for n := range 20 {
			ev := numbered("u", n)
			ev.Trace = traceOf(7 * n)
			if !e.Emit(ev) {
				t.Error("dropped")
			}
		}
		closeNow(t, e)
		traced, records := 0, 0
		for _, r := range readLog(t, p)[0] {
			records++
			if r.trace != "" {
				traced++
			}
		}
		if records != 20 || traced > most || traced < bound {
			t.Errorf("at most %d a second: %d records, %d with a context", bound, records, traced)
		}
		without := 0
		for _, errs := range l.all {
			if len(errs) == 1 && errors.Is(errs[0], emit.ErrNotTraced) {
				without++
			}
		}
		if len(l.all) != 20 || without != 20-traced {
			t.Errorf("told of %d events, %d without a context", len(l.all), without)
		}
	}
}

// Who waits for what became of a traced event is told also if it is dropped.
func TestTracedEventsThatAreDropped(t *testing.T) {
	var l told
	e := start(t, place{[]string{"127.0.0.1:1"}, topic}, func(c *emit.Config) {
		c.MaxEvents, c.TracesPerSecond, c.Traced = 1, 100, l.note
	})
	for n := range 3 { // one is queued, one is too much, one is invalid
		ev := numbered("u", n)
		ev.Trace = traceOf(7 * n)
		if n == 2 {
			ev.API = ""
		}
		e.Emit(ev)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Close(ctx); err == nil {
		t.Error("what is queued was delivered")
	}
	for n := range 3 {
		if errs := l.all[traceOf(7*n)]; len(errs) != 1 || errs[0] == nil {
			t.Errorf("of event %d it was told %v", n, errs)
		}
	}
}
