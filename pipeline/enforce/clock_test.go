package enforce

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// sweep does the work of one Config.Sweep, at this time by the wall clock.
func sweep(table *Table, at event.Micros) {
	table.index.Sweep(table.steps.over(at, table.cfg.Grace))
}

// An hour's block was lost for good when one sweep came while the clock was ahead.
func TestAClockThatWasAheadLosesNoBlock(t *testing.T) {
	for name, look := range map[string]func(*Table){
		"within the grace": func(table *Table) { table.index.Sweep(now() + event.Hour - event.Minute) },
		"two hours ahead, for one sweep": func(table *Table) {
			table.steps.observe(now()+2*event.Hour, time.Since(table.mode.started))
			sweep(table, now()+2*event.Hour)
		},
		"two hours ahead, and nobody looked before": func(table *Table) { sweep(table, now()+2*event.Hour) },
		"a day ahead, before it is believed": func(table *Table) {
			for mono := time.Second; mono < believedAfter; mono += 30 * time.Second {
				table.steps.observe(now()+event.Day+event.FromDuration(mono), mono)
				sweep(table, now()+event.Day+event.FromDuration(mono))
			}
		},
	} {
		table := newTable(t)
		table.Replace(0, blockedNow())
		table.Heartbeat(0, now())
		look(table)
		if table.Check("order.create", "42").Allowed || table.Len() != 2 {
			t.Errorf("%s: let through, with %d of 2 verdicts", name, table.Len())
		}
	}
}

// A snapshot that came before NTP had set the clock left out what seemed to be over.
func TestASnapshotKeepsWhatIsOverByTheClock(t *testing.T) {
	for name, put := range map[string]func(*Table){
		"a snapshot": func(table *Table) { table.Replace(0, blockedNow()) },
		"changes":    func(table *Table) { table.Apply(0, blockedNow()) },
	} {
		table := newTable(t)
		table.clock.coarse.Store(int64(now() + event.Day))
		put(table)
		table.clock.coarse.Store(int64(now()))
		if table.Check("order.create", "42").Allowed {
			t.Errorf("%s: let through when the clock is right", name)
		}
	}
}

// Two clocks are looked at every second; the wall's is moved by step in one of them.
func TestStepsOfTheClock(t *testing.T) {
	for _, c := range []struct {
		name  string
		step  time.Duration
		count uint64        // snapshots that are wanted
		after time.Duration // how much of the time is not believed right after
	}{
		{"slewed", 400 * time.Millisecond, 0, 0},
		{"a leap second", time.Second, 0, 0},
		{"ahead", time.Hour, 1, time.Hour},
		{"back", -time.Hour, 1, 0},
	} {
		start := now()
		s := steps{wall: start}
		wall, mono := start, time.Duration(0)
		look := func(step time.Duration) time.Duration {
			mono += time.Second
			wall += event.Second + event.FromDuration(step)
			s.observe(wall, mono)
			return (wall - s.believed()).Duration()
		}
		look(0)
		if got := look(c.step); got != c.after || s.count.Load() != c.count {
			t.Errorf("%s: %v not believed, %d steps, want %v, %d", c.name, got, s.count.Load(), c.after, c.count)
		}
		for range int(believedAfter/time.Second) - 1 {
			if got := look(0); got != c.after {
				t.Fatalf("%s: %v not believed after %v, want %v", c.name, got, mono, c.after)
			}
		}
		if got := look(0); got != 0 || s.count.Load() != c.count {
			t.Errorf("%s: %v not believed after %v, %d steps, want 0, %d", c.name, got, mono, s.count.Load(), c.count)
		}
	}
	s := steps{wall: now()}
	s.observe(s.wall+event.Hour, time.Second)
	s.observe(s.wall-event.Hour, 2*time.Second)
	if s.ahead > event.Minute || s.count.Load() != 2 {
		t.Errorf("there and back: %v not believed, %d steps, want about 0, and 2", s.ahead.Duration(), s.count.Load())
	}
}

// Without Run a table neither swept nor noticed that it was behind, and did not say so.
func TestATableWithoutRunBecomesStale(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		table, err := NewTable(Config{OnStale: Closed, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		table.Replace(0, nil)
		table.Heartbeat(0, now())
		if d := table.Check("a", "7"); table.Stale() || !d.Allowed || log.Len() > 0 {
			t.Errorf("at once: stale %v, %+v, log %s", table.Stale(), d, &log)
		}
		time.Sleep(runWithin + time.Second)
		for range 3 {
			table.Check("a", "7")
		}
		if d := table.Check("a", "7"); !table.Stale() || d.Allowed || !d.Unavailable() {
			t.Errorf("stale: %v, %+v, want it stale and closed", table.Stale(), d)
		}
		if strings.Count(log.String(), "Table.Run") != 1 {
			t.Errorf("the log is %q, want Table.Run in it once", &log)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		table := running(t, Config{OnStale: Closed, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		table.Replace(0, []verdict.Verdict{})
		synctest.Wait()
		for range 20 {
			table.Heartbeat(0, now())
			time.Sleep(time.Second)
			if !table.Check("a", "7").Allowed || table.Stale() {
				t.Error("stale while it runs")
			}
		}
		if log.Len() > 0 {
			t.Errorf("the log is %q, want none", &log)
		}
	})
}
