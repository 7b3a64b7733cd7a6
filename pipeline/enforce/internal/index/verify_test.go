package index

import (
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig"
	"github.com/tallygate/tallygate/verdict"
)

// t0 is the beginning of the verdicts of tests.
var t0 = event.FromTime(time.Now())

// newIndex returns an empty index.
func newIndex(causes bool) *Index {
	x := new(Index)
	x.Init(causes)
	return x
}

// block is a verdict on a key such as "uid=42", from t0 for a minute.
func block(rule, key string, change func(*verdict.Verdict)) verdict.Verdict {
	return rig.Block(rule, key, t0, t0+event.Minute, change)
}

// names returns the record keys of all that the index holds on someone's keys.
func names(x *Index, dims ...event.Dim) (all []string) {
	x.Each(apiOf(dims), dims, func(r Record) bool {
		for _, v := range r.Verdicts() {
			all = append(all, nameOf(*v))
		}
		return true
	})
	return all
}

func nameOf(v verdict.Verdict) string { return string(verdict.AppendRecordKey(nil, &v)) }

func uid(text string) event.Dim { return event.Dim{Name: dimUID, Value: text} }

// verify returns which invariant of the index is broken; nil is none.
func verify(x *Index) error {
	w := x.w
	v, entries, verdicts, flagged, live := w.view, 0, 0, 0, 0
	if x.View() != v {
		return fmt.Errorf("readers have another view than the writer")
	}
	for i := range v.buckets {
		if v.buckets[i].tags.Load()&overflowed != 0 {
			flagged++
		}
		for j := range v.buckets[i].refs {
			if v.buckets[i].tag(j) == 0 {
				continue
			}
			ref := v.buckets[i].refs[j].Load()
			rec := v.record(ref)
			if v.buckets[i].tag(j) != tagOf(v.hashOf(rec)) {
				return fmt.Errorf("bucket %d, slot %d: the tag is not that of its key", i, j)
			}
			if slot := w.slotOf(ref, rec); slot != &v.buckets[i].refs[j] {
				return fmt.Errorf("bucket %d, slot %d: its key is not found there", i, j)
			}
			r := splitRecord(rec)
			rest := r.walk(func(heading) { verdicts++ })
			live += roundUp(len(rec) - len(rest))
			entries++
		}
	}
	if flagged != w.flagged || flooded(flagged, len(v.buckets)) {
		return fmt.Errorf("%d of %d buckets are flagged, the writer counts %d: readers walk too far", flagged, len(v.buckets), w.flagged)
	}
	if entries != w.entries || verdicts != w.verdicts || live != w.arena.live {
		return fmt.Errorf("%d entries, %d verdicts, %d bytes; the writer counts %d, %d, %d", entries, verdicts, live, w.entries, w.verdicts, w.arena.live)
	}
	return nil
}
