package enforce

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// agoBlock is a block that an event triggered so long ago, for an hour.
func agoBlock(uid string, ago time.Duration, change func(*verdict.Verdict)) verdict.Verdict {
	return block("r", "uid="+uid, func(v *verdict.Verdict) {
		v.Since = now() - event.FromDuration(ago)
		v.Until = v.Since + event.Hour
		v.Cause = verdict.Cause{Partition: 1, Offset: 7}
		if change != nil {
			change(v)
		}
	})
}

// said lists the bounds of buckets that have any.
func (l Latency) said() string {
	var text []string
	below := uint64(0)
	for _, bound := range slices.Sorted(maps.Keys(l.Buckets)) {
		if n := l.Buckets[bound] - below; n > 0 {
			text = append(text, fmt.Sprintf("%d to %g s", n, bound))
		}
		below = l.Buckets[bound]
	}
	if n := l.Count - below; n > 0 {
		text = append(text, fmt.Sprintf("%d more", n))
	}
	return fmt.Sprintf("%s; in sum %v", strings.Join(text, ", "), l.Sum)
}

// A block from the stream is in the histogram once, with the time from its event until it denies.
func TestLatencyIsFromTheEventToTheDenial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := running(t, Config{})
		table.Replace(0, nil)
		one := agoBlock("1", 3*time.Millisecond, nil)
		table.Apply(0, []verdict.Verdict{one, agoBlock("2", 4*time.Millisecond+time.Microsecond, nil)})
		table.Apply(0, []verdict.Verdict{one}) // a publisher's repeat
		time.Sleep(20 * time.Minute)           // a block may be extended for long
		moved := one
		moved.Seq, moved.Until = 2, moved.Until+event.Hour
		table.Apply(0, []verdict.Verdict{moved})
		if got, want := table.Latency().said(), "1 to 0.003 s, 1 to 0.005 s; in sum 7.001ms"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		again := agoBlock("1", 400*time.Second, func(v *verdict.Verdict) { v.Seq = 3 })
		table.Apply(0, []verdict.Verdict{again, agoBlock("3", -time.Second, nil)}) // that one by a clock ahead of ours
		if got, want := table.Latency().said(), "1 to 0.001 s, 1 to 0.003 s, 1 to 0.005 s, 1 more; in sum 6m40.007001s"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
}

// A block whose event was traced is told of, and is the exemplar of its bucket until the next one.
func TestTracedBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var told []string
		table := running(t, Config{Traced: func(v *verdict.Verdict, at event.Micros) {
			told = append(told, fmt.Sprintf("%s after %v by %d", v.KeyText(), (at-v.Since).Duration(), v.Trace.Span[0]))
		}})
		table.Replace(0, nil)
		traced := func(uid string, ago time.Duration, span byte) verdict.Verdict {
			return agoBlock(uid, ago, func(v *verdict.Verdict) { v.Trace.ID[0], v.Trace.Span[0] = 1, span })
		}
		one, shadow := traced("1", 3*time.Millisecond, 1), traced("4", time.Millisecond, 4)
		shadow.Mode = verdict.Shadow
		table.Apply(0, []verdict.Verdict{one, agoBlock("2", 2*time.Millisecond, nil), traced("3", time.Minute, 3), shadow})
		table.Apply(0, []verdict.Verdict{one}) // a publisher's repeat
		if got, want := fmt.Sprint(told), "[uid=1 after 3ms by 1 uid=3 after 1m0s by 3]"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
		table.Apply(0, []verdict.Verdict{traced("5", 3*time.Millisecond, 5)})
		var got []string
		for _, e := range table.Latency().Exemplars {
			got = append(got, fmt.Sprint(e.Trace.Span[0], " ", e.Took, " ", time.Since(e.At)))
		}
		if want := "[5 3ms 0s 3 1m0s 0s]"; fmt.Sprint(got) != want {
			t.Errorf("%v, want %s", got, want)
		}
	})
}

// What says nothing about how fast an event is answered is left out.
func TestLatencyLeavesOutWhatNoEventTriggeredNow(t *testing.T) {
	for about, put := range map[string]func(*Table){
		"a snapshot":       func(table *Table) { table.Replace(0, []verdict.Verdict{agoBlock("1", time.Minute, nil)}) },
		"another snapshot": func(table *Table) { table.Replace(0, nil); table.Replace(0, []verdict.Verdict{agoBlock("1", 1, nil)}) },
		"ahead of the first snapshot, as while Redis is filled": func(table *Table) {
			table.Apply(1, []verdict.Verdict{agoBlock("1", time.Minute, nil)})
		},
		"what is over": func(table *Table) { table.Apply(0, []verdict.Verdict{agoBlock("1", time.Hour, nil)}) },
		"shadow mode": func(table *Table) {
			table.Apply(0, []verdict.Verdict{agoBlock("1", 1, func(v *verdict.Verdict) { v.Mode = verdict.Shadow })})
		},
		"a notice": func(table *Table) {
			table.Apply(0, []verdict.Verdict{agoBlock("1", 1, func(v *verdict.Verdict) { v.State = verdict.Warn })})
		},
		"a clear": func(table *Table) {
			table.Apply(0, []verdict.Verdict{agoBlock("1", 1, func(v *verdict.Verdict) { v.State = verdict.Clear })})
		},
		"a command's": func(table *Table) {
			table.Apply(0, []verdict.Verdict{agoBlock("1", 1, func(v *verdict.Verdict) { v.Rule = "manual" })})
		},
		"changed rules'": func(table *Table) {
			table.Apply(0, []verdict.Verdict{agoBlock("1", 1, func(v *verdict.Verdict) { v.Cause = verdict.Cause{} })})
		},
		"an older one": func(table *Table) {
			table.Replace(0, []verdict.Verdict{agoBlock("1", 1, func(v *verdict.Verdict) { v.Seq = 9 })})
			table.Apply(0, []verdict.Verdict{agoBlock("1", time.Second, nil)})
		},
	} {
		table, err := NewTable(Config{Shards: 2})
		if err != nil {
			t.Fatal(err)
		}
		table.Replace(0, nil)
		put(table)
		if l := table.Latency(); l.Count != 0 || l.Sum != 0 {
			t.Errorf("%s: %s", about, l.said())
		}
	}
}

// The histogram costs an application nothing but a few hundred bytes.
func TestLatencyDoesNotAllocate(t *testing.T) {
	table := newTable(t)
	table.Replace(0, nil)
	one, seq := agoBlock("1", time.Millisecond, nil), int64(1)
	change := []verdict.Verdict{one}
	table.Apply(0, change)
	before, first := table.Latency().Count, seq
	n := testrun.Allocs(100, func() {
		seq++
		change[0].Seq, change[0].Since = seq, one.Since-event.Micros(seq)
		table.Apply(0, change)
	})
	if got := table.Latency().Count - before; got != uint64(seq-first) || n > 0 {
		t.Errorf("%d measured, with %v allocations each", got, n)
	}
}
