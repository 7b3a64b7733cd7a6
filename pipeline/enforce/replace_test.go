package enforce

import (
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// snapshots returns what each of so many shards holds, total verdicts in all. version is in their ends.
func snapshots(shards, total, version int) [][]verdict.Verdict {
	all := make([][]verdict.Verdict, shards)
	for i := range total {
		v := block("r", "uid=u"+strconv.Itoa(i), func(v *verdict.Verdict) { v.Until += second; v.Seq = int64(version) })
		all[i%shards] = append(all[i%shards], v)
	}
	return all
}

// BenchmarkReplaceOfShards is the first snapshot of all shards, and a later one of each that lacks a tenth.
func BenchmarkReplaceOfShards(b *testing.B) {
	for _, shards := range []int{1, 16} {
		b.Run(fmt.Sprint(shards), func(b *testing.B) {
			first, later := snapshots(shards, 320_000, 1), snapshots(shards, 320_000, 2)
			for b.Loop() {
				table, err := NewTable(Config{Shards: shards})
				if err != nil {
					b.Fatal(err)
				}
				for shard := range shards {
					table.Replace(shard, first[shard])
				}
				for shard := range shards {
					table.Replace(shard, later[shard][len(later[shard])/10:])
				}
			}
		})
	}
}

// TestASnapshotOfOneShardOfManyCostsNoMoreThanItsSize: each one copied the verdicts of all other shards, so that those of
// sixteen shards took sixteen times as long as one of all.
func TestASnapshotOfOneShardOfManyCostsNoMoreThanItsSize(t *testing.T) {
	const total = 40_000
	took := func(shards int) (least time.Duration) {
		for range 3 {
			all := snapshots(shards, total, 1)
			table, err := NewTable(Config{Shards: shards})
			if err != nil {
				t.Fatal(err)
			}
			began := time.Now()
			for range 2 {
				for shard := range shards {
					table.Replace(shard, all[shard])
				}
			}
			if d := time.Since(began); least == 0 || d < least {
				least = d
			}
			if table.Len() != total || !table.Ready() {
				t.Fatalf("%d shards: %d verdicts, ready %v, want %d", shards, table.Len(), table.Ready(), total)
			}
		}
		return least
	}
	if one, many := took(1), took(64); many > 30*one {
		t.Errorf("snapshots of 64 shards take %v, and one of all %v", many, one)
	}
}

// TestWhatASnapshotLacksIsDropped: of one shard, wherever its verdicts lie by now, and no more than that.
func TestWhatASnapshotLacksIsDropped(t *testing.T) {
	const shards, total = 3, 3000
	all := snapshots(shards, total, 1)
	table, err := NewTable(Config{Shards: shards})
	if err != nil {
		t.Fatal(err)
	}
	for shard := range shards {
		table.Replace(shard, all[shard])
	}
	for i := range all[1] { // they move among those of other shards
		all[1][i].Seq++
		table.Apply(1, all[1][i:i+1])
		table.Apply(2, all[2][i:i+1])
	}
	both := block("r", all[1][1].KeyText(), func(v *verdict.Verdict) { v.Rule = "other" })
	table.Apply(2, []verdict.Verdict{both})
	table.Replace(1, all[1][:1])
	for i := range total {
		want := i%shards == 1 && i != 1 && "uid=u"+strconv.Itoa(i) != both.KeyText()
		if got := table.CheckAt(t0, "a", "u"+strconv.Itoa(i)).Allowed; got != want {
			t.Fatalf("u%d: allowed %v, want %v", i, got, want)
		}
	}
	if want := total - total/shards + 2; table.Len() != want {
		t.Errorf("%d verdicts, want %d", table.Len(), want)
	}
}

// TestAHeartbeatFromTheFutureHidesNothing: a publisher whose clock was an hour ahead made the table seem in step for an hour after the
// last thing that it heard.
func TestAHeartbeatFromTheFutureHidesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		table := newTable(t)
		table.Replace(0, nil)
		table.Heartbeat(0, now()+event.Hour)
		time.Sleep(5 * time.Minute)
		if got := table.Staleness(); got != 5*time.Minute {
			t.Errorf("staleness %v five minutes after the last heartbeat", got)
		}
		table.mode.update()
		if !table.Stale() {
			t.Error("not stale five minutes after the last heartbeat")
		}
	})
}

// TestInForceCountsWhatHasNotEnded: Len has what ran out until a sweep frees it.
func TestInForceCountsWhatHasNotEnded(t *testing.T) {
	table := newTable(t)
	at := now()
	for i := range 20_000 {
		table.Apply(0, []verdict.Verdict{block("r", "uid=u"+strconv.Itoa(i), func(v *verdict.Verdict) {
			v.Since, v.Until = at-second, at+event.Micros(1+i%2)*event.Hour
		})})
	}
	table.Apply(0, []verdict.Verdict{block("s", "uid=u0", func(v *verdict.Verdict) { v.Since, v.Until = at-second, at+3*event.Hour })})
	for hours, want := range []int{20_001, 10_001, 1, 0} {
		if got := inForce(&table.index, at+event.Micros(hours)*event.Hour); got != want {
			t.Errorf("after %d h: %d in force, want %d", hours, got, want)
		}
	}
	if table.InForce() != 20_001 || table.Len() != 20_001 {
		t.Errorf("%d and %d, want all", table.InForce(), table.Len())
	}
}
