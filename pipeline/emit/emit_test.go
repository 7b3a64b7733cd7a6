package emit_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

func TestEveryEventArrivesOnceOnItsPartition(t *testing.T) {
	everywhere(t, 4, func(t *testing.T, p place) {
		e := start(t, p, nil)
		const count = 20_000
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for n := g; n < count; n += 4 {
					if !e.Emit(numbered(fmt.Sprintf("user-%d", n%97), n)) {
						t.Error("dropped")
					}
				}
			})
		}
		wg.Wait()
		closeNow(t, e)

		log := readLog(t, p)
		events, repeats := consume(t, log)
		wantNumbered(t, events, count)
		if repeats != 0 {
			t.Errorf("%d repeats with a broker that never failed", repeats)
		}
		for partition, records := range log {
			for _, r := range records {
				if want := event.Partition([]byte(r.key), 4); partition != want {
					t.Fatalf("uid %q is on partition %d, want %d", r.key, partition, want)
				}
			}
		}
		if s := e.Stats(); s.Emitted != count || s.Queued != 0 || s.QueuedBytes != 0 || s.Dropped.Total() != 0 || s.LastError != nil {
			t.Errorf("stats %+v", s)
		}
	})
}

func TestOneGoroutinesEventsOfOneUserKeepTheirOrder(t *testing.T) {
	everywhere(t, 3, func(t *testing.T, p place) {
		e := start(t, p, nil)
		for n := range 5000 {
			e.Emit(numbered("u1", n))
		}
		closeNow(t, e)
		for _, records := range readLog(t, p) {
			for n, r := range records {
				if !strings.Contains(r.value, fmt.Sprintf(`"id":"n%d"`, n)) {
					t.Fatalf("record %d is %s", n, r.value)
				}
			}
		}
	})
}

func TestAnonymousEventsTakeTurns(t *testing.T) {
	everywhere(t, 4, func(t *testing.T, p place) {
		e := start(t, p, nil)
		testrun.Eventually(t, "the first event is through", func() bool {
			e.Emit(event.Event{API: "warm.up"})
			return e.Stats().Emitted > 0
		})
		before := e.Stats().Emitted + uint64(e.Stats().Queued)
		for n := range 400 {
			e.Emit(numbered("", n))
		}
		closeNow(t, e)
		for partition, records := range readLog(t, p) {
			if got := len(records); got < 100 || got > 100+int(before) {
				t.Errorf("partition %d has %d records", partition, got)
			}
			if records[0].key != "" {
				t.Errorf("key %q", records[0].key)
			}
		}
	})
}

func TestSeveralEventsInOneRecord(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, p place) {
		e := start(t, p, func(c *emit.Config) { c.EventsPerRecord = 100 })
		const count = 5050
		for n := range count {
			e.Emit(numbered(fmt.Sprintf("user-%d", n%13), n))
		}
		closeNow(t, e)
		records, repeats := consume(t, readLog(t, p))
		if repeats != 0 || len(records) > count/10 {
			t.Errorf("%d records, %d repeats", len(records), repeats)
		}
		var events []string
		for _, r := range records {
			if !strings.HasPrefix(r, "[{") || !strings.HasSuffix(r, "}]") {
				t.Fatalf("no array: %s", r)
			}
			part := strings.SplitAfter(strings.Trim(r, "[]"), "},")
			if len(part) > 100 {
				t.Errorf("%d events in a record", len(part))
			}
			events = append(events, part...)
		}
		wantNumbered(t, events, count)
	})
}

func TestEventsQueueUpWhileThereIsNoBroker(t *testing.T) {
	port := servers.FreePorts(t, 1)[0]
	e := start(t, place{[]string{fmt.Sprintf("127.0.0.1:%d", port)}, topic}, nil)
	for n := range 3000 {
		if !e.Emit(numbered(fmt.Sprintf("user-%d", n%7), n)) {
			t.Fatal("dropped")
		}
	}
	testrun.Eventually(t, "the trouble shows", func() bool { return e.Stats().LastError != nil })
	if s := e.Stats(); s.Queued != 3000 || s.Emitted != 0 {
		t.Fatalf("stats %+v", s)
	}

	_, p := fake(t, 3, kfake.Ports(port))
	testrun.Eventually(t, "all is sent", func() bool { return e.Stats().Emitted == 3000 })
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 3000)
	testrun.Eventually(t, "the trouble is over", func() bool { return e.Stats().LastError == nil })
}

func TestATopicMayComeLater(t *testing.T) {
	c, p := fake(t, 1)
	p.topic = "later"
	e := start(t, p, nil)
	e.Emit(numbered("u1", 0))
	testrun.Eventually(t, "the trouble shows", func() bool { return e.Stats().LastError != nil })
	if err := c.CreateTopic("later", 2, nil); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "it is sent", func() bool { return e.Stats().Emitted == 1 })
}

func TestATopicMayGrow(t *testing.T) {
	c, p := fake(t, 1)
	e := start(t, p, nil)
	e.Emit(numbered("u", 0))
	testrun.Eventually(t, "it is sent", func() bool { return e.Stats().Emitted == 1 })
	grow(t, c, 4)
	testrun.Eventually(t, "all partitions get events", func() bool {
		for n := range 8 {
			e.Emit(event.Event{API: "a.b", ID: fmt.Sprint(n)})
		}
		for partition := range int32(4) {
			if info := c.PartitionInfo(topic, partition); info == nil || info.HighWatermark == 0 {
				return false
			}
		}
		return true
	})
	closeNow(t, e)
	consume(t, readLog(t, p))
}

func grow(t *testing.T, c *kfake.Cluster, partitions int32) {
	t.Helper()
	cl := newKgo(t, c)
	defer cl.Close()
	req := kmsg.NewCreatePartitionsRequest()
	req.Topics = append(req.Topics, kmsg.CreatePartitionsRequestTopic{Topic: topic, Count: partitions})
	if _, err := req.RequestWith(t.Context(), cl); err != nil {
		t.Fatal(err)
	}
}

// Values that are too long, or no UTF-8, discard no event, and the record is where the aggregator
// looks for its uid.
func TestOversizedAndInvalidValuesAreSentInTheirCanonicalForm(t *testing.T) {
	everywhere(t, 4, func(t *testing.T, p place) {
		e := start(t, p, nil)
		device := strings.Repeat("d", 70<<10)
		attrs := []event.Attr{{Name: "device", Value: event.StringValue(device)}, {Name: "agent", Value: event.StringValue(device + "\xff")}}
		uids := []string{"a\xffb", strings.Repeat("u", event.MaxUID+1), strings.Repeat("\xff", 200), "42"}
		for _, uid := range uids {
			if !e.Emit(event.Event{API: "a.b", UID: uid, ID: device, Outcome: device, Attrs: attrs}) {
				t.Errorf("%.20q: dropped", uid)
			}
		}
		if attrs[0].Value.Text != device {
			t.Error("the caller's attributes were changed")
		}
		closeNow(t, e)
		found := map[string]bool{}
		for partition, records := range readLog(t, p) {
			for _, r := range records {
				events, err := event.NewDecoder().Decode([]byte(r.value), nil, nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				got := events[0]
				if v, _ := got.Attr("device"); v.Text != event.CanonicalText(device) {
					t.Errorf("device is %.80q", v.Text)
				}
				if r.key != got.UID || event.Partition([]byte(r.key), 4) != partition {
					t.Errorf("uid %.40q has the key %.40q on partition %d", got.UID, r.key, partition)
				}
				found[got.UID] = true
			}
		}
		for _, uid := range uids {
			if !found[event.CanonicalUID(uid)] {
				t.Errorf("%.20q did not arrive", uid)
			}
		}
	})
}

func TestInvalidEventsAreDroppedWithAReason(t *testing.T) {
	_, p := fake(t, 1)
	var drops []emit.Drop
	e := start(t, p, func(c *emit.Config) { c.OnDrop = func(d emit.Drop) { drops = append(drops, d) } })
	if e.Emit(event.Event{UID: "u1"}) {
		t.Error("an event without an api was taken")
	}
	if err := e.EmitWait(t.Context(), event.Event{UID: "u1"}); err == nil {
		t.Error("EmitWait took an event without an api")
	}
	if len(drops) != 2 || drops[0].Reason != emit.Invalid || drops[0].Err == nil || drops[0].Events != 1 {
		t.Errorf("drops %+v", drops)
	}
	if got := e.Stats().Dropped[emit.Invalid]; got != 2 {
		t.Errorf("%d counted", got)
	}
}

func TestAFullQueueDropsTheNewest(t *testing.T) {
	for name, change := range map[string]func(*emit.Config){
		"by count": func(c *emit.Config) { c.MaxEvents = 1000 },
		"by bytes": func(c *emit.Config) { c.MaxBytes = 128 << 10 },
	} {
		t.Run(name, func(t *testing.T) {
			var full int
			e := start(t, place{[]string{"127.0.0.1:1"}, topic}, func(c *emit.Config) {
				change(c)
				c.OnDrop = func(d emit.Drop) {
					if d.Reason == emit.QueueFull {
						full++
					}
				}
			})
			taken := 0
			for n := range 3000 {
				if e.Emit(numbered("u1", n)) {
					taken++
				}
			}
			s := e.Stats()
			if taken == 0 || taken > 1500 || s.Queued != taken || full != 3000-taken || s.Dropped[emit.QueueFull] != uint64(full) {
				t.Errorf("took %d, told of %d, stats %+v", taken, full, s)
			}
			if s.QueuedBytes > 128<<10 {
				t.Errorf("%d bytes", s.QueuedBytes)
			}
		})
	}
}

func TestEmitWaitWaitsForRoom(t *testing.T) {
	everywhere(t, 2, func(t *testing.T, p place) {
		e := start(t, p, func(c *emit.Config) { c.MaxEvents = 50 })
		var wg sync.WaitGroup
		for g := range 4 {
			wg.Go(func() {
				for n := g; n < 5000; n += 4 {
					if err := e.EmitWait(t.Context(), numbered(fmt.Sprint("u", n%5), n)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		closeNow(t, e)
		events, _ := consume(t, readLog(t, p))
		wantNumbered(t, events, 5000)
	})
}

func TestEmitWaitEndsWithItsContextOrTheEmitter(t *testing.T) {
	e := start(t, place{[]string{"127.0.0.1:1"}, topic}, func(c *emit.Config) { c.MaxEvents = 1 })
	e.Emit(numbered("u1", 0))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := e.EmitWait(ctx, numbered("u1", 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	waiter, closer := make(chan error), make(chan error)
	go func() { waiter <- e.EmitWait(context.Background(), numbered("u1", 1)) }()
	closing, end := context.WithCancel(t.Context())
	go func() { closer <- e.Close(closing) }()
	if err := <-waiter; !errors.Is(err, emit.ErrClosed) { // though the queue is still full
		t.Errorf("got %v", err)
	}
	end()
	if err := <-closer; !errors.Is(err, context.Canceled) {
		t.Errorf("Close: %v", err)
	}
}

// Callers that find no room must not keep each other from the room that there is.
func TestNobodyWaitsForeverAtATinyQueue(t *testing.T) {
	_, p := fake(t, 2)
	e := start(t, p, func(c *emit.Config) {
		c.MaxEvents = 1
		c.Linger = -1
	})
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for n := range 100 {
				if err := e.EmitWait(t.Context(), numbered(fmt.Sprint("u", g), g*100+n)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	closeNow(t, e)
	events, _ := consume(t, readLog(t, p))
	wantNumbered(t, events, 800)
}

func TestCloseReportsWhatItCouldNotDeliver(t *testing.T) {
	var lost int
	e := start(t, place{[]string{"127.0.0.1:1"}, topic}, func(c *emit.Config) {
		c.OnDrop = func(d emit.Drop) {
			if d.Reason == emit.Undelivered {
				lost += d.Events
			}
		}
	})
	for n := range 1234 {
		e.Emit(numbered("u1", n))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := e.Close(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "1234 events") {
		t.Errorf("got %v", err)
	}
	if s := e.Stats(); lost != 1234 || s.Dropped[emit.Undelivered] != 1234 || s.Queued != 0 || s.QueuedBytes != 0 {
		t.Errorf("told of %d, stats %+v", lost, s)
	}
	if e.Emit(numbered("u1", 0)) || e.Stats().Dropped[emit.Closed] != 1 {
		t.Error("took an event after Close")
	}
}

func TestCloseWhileOthersEmitLosesNothingThatWasTaken(t *testing.T) {
	everywhere(t, 4, func(t *testing.T, p place) {
		e := start(t, p, nil)
		var wg sync.WaitGroup
		taken := make([]int, 4)
		for g := range taken {
			wg.Go(func() {
				for n := 0; e.Emit(numbered(fmt.Sprint("u", n%31), n)) || e.Stats().Dropped[emit.Closed] == 0; n++ {
					taken[g] = n + 1
				}
			})
		}
		testrun.Eventually(t, "events flow", func() bool { return e.Stats().Emitted > 100 })
		closeNow(t, e)
		wg.Wait()
		events, _ := consume(t, readLog(t, p))
		if s := e.Stats(); uint64(len(events)) != s.Emitted || s.Queued != 0 {
			t.Errorf("%d events in the log, stats %+v", len(events), s)
		}
	})
}

func TestConfigTellsAllThatIsWrong(t *testing.T) {
	_, err := emit.New(emit.Config{Brokers: []string{"nowhere"}, MaxEvents: -1, MaxBytes: 1, EventsPerRecord: 1001, RequestTimeout: -1})
	for _, want := range []string{"nowhere", "MaxEvents", "MaxBytes", "EventsPerRecord", "RequestTimeout"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
	if _, err := emit.New(emit.Config{}); err == nil {
		t.Error("no brokers, no error")
	}
}
