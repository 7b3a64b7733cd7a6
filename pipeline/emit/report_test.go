package emit

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// reported runs a reporter on counters that a test changes.
func reported(t *testing.T, do func(e *Emitter, log *testrun.Output)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log testrun.Output
		e := &Emitter{cfg: Config{OnDrop: func(Drop) {}}}
		e.report = newReporter(log.Logger(), &e.counts)
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { e.report.run(done); close(ended) }()
		do(e, &log)
		close(done)
		<-ended
	})
}

// Applications that looked at no Stats lost their events in silence: an outage, its other reason and its
// end are told, each once.
func TestAnOutageIsTold(t *testing.T) {
	reported(t, func(e *Emitter, log *testrun.Output) {
		pass := func(d time.Duration) { time.Sleep(d); synctest.Wait() }
		lines := func(want ...string) {
			t.Helper()
			got := strings.Split(strings.TrimSpace(log.String()), "\n")
			if len(got) != len(want) {
				t.Fatalf("%d lines, want %d:\n%s", len(got), len(want), log)
			}
			for i := range want {
				if !strings.Contains(got[i], want[i]) {
					t.Errorf("line %d is %s, want %q in it", i, got[i], want[i])
				}
			}
		}
		e.failed(kafka.NotLeaderForPartition)
		pass(outageAfter / 2)
		e.failed(nil)
		pass(time.Hour)
		lines("") // a leader moved: nothing was lost
		for range 100 {
			e.failed(errors.New("dial tcp: connection refused"))
			pass(10 * time.Second)
		}
		lines("reason=unreachable")
		e.failed(kafka.SASLAuthenticationFailed)
		pass(time.Second)
		lines("reason=unreachable", "reason=auth")
		e.failed(nil)
		pass(time.Second)
		lines("reason=unreachable", "reason=auth", "events reach Kafka again")
		e.failed(kafka.MessageSizeTooLarge)
		pass(time.Minute)
		if log.Count("\n") != 3 {
			t.Errorf("what is dropped is told as that:\n%s", log)
		}
	})
}

// Of dropped events the first are told at once, then at most once a minute how many there were.
func TestDroppedEventsAreTold(t *testing.T) {
	reported(t, func(e *Emitter, log *testrun.Output) {
		for range 100 {
			e.drop(Drop{Reason: QueueFull, Events: 1})
			time.Sleep(time.Second)
			synctest.Wait()
		}
		if n := log.Count("reason=queue_full"); n != 2 || !log.Has("events=1 ") || !log.Has("events=59 ") {
			t.Errorf("a hundred in as many seconds:\n%s", log)
		}
		e.drop(Drop{Reason: Invalid, Events: 1, Err: errors.New("no api")})
		synctest.Wait()
		if !log.Has("no api") || !log.Has("reason=invalid") {
			t.Errorf("an invalid event: %s", log)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		told := log.String()
		if n := strings.Count(told, "reason=queue_full"); n != 3 || !strings.Contains(told, "events=40 ") {
			t.Errorf("the rest is told a minute later:\n%s", told)
		}
		e.drop(Drop{Reason: Undelivered, Events: 7})
	})
}

// At the end all is told, also what came within the minute.
func TestDroppedEventsAreToldAtTheEnd(t *testing.T) {
	var told *testrun.Output
	reported(t, func(e *Emitter, log *testrun.Output) {
		e.drop(Drop{Reason: Undelivered, Events: 7})
		synctest.Wait()
		e.drop(Drop{Reason: Undelivered, Events: 8})
		told = log
	})
	if !told.Has("events=8 ") {
		t.Error(told)
	}
}

// event.Micros(time.Now().UnixMilli()) is a time in 1970, and such an event is too old to count.
func TestATimeOfAnotherUnitIsTold(t *testing.T) {
	for _, c := range []struct {
		at      event.Micros
		suspect bool
	}{
		{event.Micros(time.Now().Unix()), true}, {event.Micros(time.Now().UnixMilli()), true},
		{event.FromTime(time.Now()), false}, {0, false}, {event.NoTime, false},
	} {
		var log testrun.Output
		e, err := New(Config{Brokers: []string{"127.0.0.1:1"}, Logger: log.Logger()})
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			e.Emit(event.Event{API: "a", UID: "42", Time: c.at})
		}
		if n := e.Stats().Suspects[event.SuspectTime1970]; n != 3 && c.suspect || n != 0 && !c.suspect {
			t.Errorf("%v: %d suspects", c.at, n)
		}
		if c.suspect {
			testrun.Eventually(t, "it is told", func() bool { return log.Count("look like a mistake") == 1 })
		}
		e.abandon()
		<-e.done
		if log.Has("look like a mistake") != c.suspect {
			t.Errorf("%v: %s", c.at, &log)
		}
	}
}
