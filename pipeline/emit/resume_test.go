package emit_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// A program that was killed sends again what it is not sure of, in other batches. A consumer that
// drops what is not above the highest position has each event once, also those without a uid.
func TestSendingAgainFromAPosition(t *testing.T) {
	everywhere(t, 4, func(t *testing.T, p place) {
		instance := bytes.Repeat([]byte{7}, 16)
		send := func(from, to int) {
			e := start(t, p, func(c *emit.Config) { small(c); c.Instance = instance })
			for n := from; n < to; n++ {
				uid := ""
				if n%3 > 0 {
					uid = fmt.Sprintf("user-%d", n%7)
				}
				if err := e.EmitAt(t.Context(), numbered(uid, n), uint64(100*n+1)); err != nil {
					t.Fatal(err)
				}
			}
			if err := e.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if s := e.Stats(); s.Emitted != uint64(to-from) || s.Queued != 0 {
				t.Errorf("after Flush: %+v", s)
			}
			closeNow(t, e)
		}
		send(0, 700)
		send(300, 900)
		send(899, 1000)
		var once []string
		repeats := 0
		for _, records := range readLog(t, p) {
			last := uint64(0)
			for _, r := range records {
				if r.instance != string(instance) {
					t.Fatalf("instance %x", r.instance)
				}
				if r.sequence <= last {
					repeats++
					continue
				}
				last = r.sequence
				once = append(once, r.value)
			}
		}
		wantNumbered(t, once, 1000)
		if repeats != 401 {
			t.Errorf("%d repeats, want 401", repeats)
		}
	})
}

func TestPositionsAndInstancesBelongTogether(t *testing.T) {
	_, p := fake(t, 1)
	var dropped []error
	with := start(t, p, func(c *emit.Config) {
		c.Instance = bytes.Repeat([]byte{7}, 16)
		c.OnDrop = func(d emit.Drop) { dropped = append(dropped, d.Err) }
	})
	if with.Emit(numbered("42", 1)) || len(dropped) != 1 || !strings.Contains(dropped[0].Error(), "EmitAt") {
		t.Errorf("Emit beside positions: %v", dropped)
	}
	if err := with.EmitAt(t.Context(), numbered("42", 1), 0); err == nil {
		t.Error("a position of 0")
	}
	if err := start(t, p, nil).EmitAt(t.Context(), numbered("42", 1), 1); err == nil {
		t.Error("a position without an instance")
	}
	for _, c := range []emit.Config{
		{Brokers: p.brokers, Instance: []byte("short")},
		{Brokers: p.brokers, Instance: make([]byte, 16), EventsPerRecord: 2},
	} {
		if _, err := emit.New(c); err == nil || !strings.Contains(err.Error(), "Instance") {
			t.Errorf("New: %v", err)
		}
	}
}

// Flush ends with its context while the broker is away, and at once when nothing waits.
func TestFlush(t *testing.T) {
	e := start(t, place{[]string{"127.0.0.1:1"}, topic}, nil)
	if err := e.Flush(t.Context()); err != nil {
		t.Error(err)
	}
	e.Emit(event.Event{API: "a.b"})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.Flush(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush: %v", err)
	}
}
