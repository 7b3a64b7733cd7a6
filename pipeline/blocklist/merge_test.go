package blocklist

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// changesOf are deliveries of random changes of a few keys, as a stream has them: the seqs of a key
// grow, except behind a removal.
func changesOf(r *rand.Rand, deliveries int) (out []*delivery) {
	seqs := map[string]int64{}
	for n := range deliveries {
		d := &delivery{}
		for range r.IntN(200) {
			uid := fmt.Sprint(r.IntN(40))
			seqs[uid] += r.Int64N(3)
			v := rig.Block(uid, seqs[uid], time.Hour)
			c := change{key: string(verdict.AppendRecordKey(nil, &v)), blocks: true, verdict: v}
			switch r.IntN(6) {
			case 0:
				c.verdict = rig.Clearing(uid, seqs[uid])
			case 1:
				c.blocks, seqs[uid] = false, r.Int64N(3)
			}
			d.add(c)
		}
		if r.IntN(2) == 0 {
			d.applied = event.Micros(n + 1)
		}
		out = append(out, d)
	}
	return out
}

// However far behind a sink is, it holds afterwards what it would hold had it been told each
// change.
func TestMergedChangesSayTheSame(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 1))
	for range 300 {
		one, each := rig.NewMemory(), rig.NewMemory()
		before := changesOf(r, 1)[0]
		before.to(one, 0)
		before.to(each, 0)
		all := changesOf(r, 1+r.IntN(5))
		for _, d := range all {
			d.to(each, 0)
		}
		d := merge(all)
		d.to(one, 0)
		if !slices.Equal(one.Text(), each.Text()) || one.AppliedUpTo(0) != each.AppliedUpTo(0) {
			t.Fatalf("merged: %v\nup to %v, want %v\nup to %v", one.Text(), one.AppliedUpTo(0), each.Text(), each.AppliedUpTo(0))
		}
		if len(d.all) > 40 {
			t.Fatalf("%d verdicts of 40 keys", len(d.all))
		}
	}
}

// told is a sink that counts what it is told.
type told struct {
	*rig.Memory
	verdicts, replaced int
}

func (s *told) Apply(shard int, changes []verdict.Verdict) {
	s.verdicts += len(changes)
	s.Memory.Apply(shard, changes)
}

func (s *told) Replace(shard int, all []verdict.Verdict) {
	s.replaced++
	s.Memory.Replace(shard, all)
}

// A table that a flood has left behind is told the last of each key, up to the next snapshot, which
// has its place among the changes.
func TestAMailboxMergesWhatIsMuch(t *testing.T) {
	defer func(n int) { mergeAt = n }(mergeAt)
	mergeAt = 100
	sink := &told{Memory: rig.NewMemory()}
	box := newMailbox(&Feed{}, sink, 0)
	box.follows = true
	flood := func(deliveries, each int, from int64) {
		for n := range int64(deliveries) {
			d := &delivery{applied: event.Micros(from + n)}
			for i := range int64(each) {
				v := rig.Block(fmt.Sprint(i), from+n, time.Hour)
				d.add(change{key: string(verdict.AppendRecordKey(nil, &v)), blocks: true, verdict: v})
			}
			box.put(d)
		}
	}
	flood(50, 10, 1)
	snapshot := &delivery{steps: []step{{verdicts: []verdict.Verdict{rig.Block("5", 60, time.Hour)}}}, applied: 60, shared: &scan{}, replace: true}
	snapshot.shared.users.Store(2)
	box.follows = false
	box.begin(snapshot)
	flood(50, 10, 61)
	for box.next() {
	}
	if sink.verdicts != 20 || sink.replaced != 1 || len(sink.Text()) != 10 || sink.AppliedUpTo(0) != 110 {
		t.Errorf("it is told %d verdicts and %d snapshots, and holds %q up to %v", sink.verdicts, sink.replaced, sink.Text(), sink.AppliedUpTo(0))
	}
	if s := box.feed.Stats(); s.Changes != 1000 || s.Snapshots != 1 || box.changes != 0 {
		t.Errorf("%+v, and %d changes are left", s, box.changes)
	}
	flood(3, 2, 200) // not much
	for box.next() {
	}
	if sink.verdicts != 26 {
		t.Errorf("it is told %d verdicts, want each of the last six", sink.verdicts-20)
	}
}
