package auditlog

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// The audit was not in the order of its times, and a clear came ahead of its unblock.
func TestTheAuditIsInOrder(t *testing.T) {
	var got []string
	l := newInOrder(func(o *ordered) error {
		got = append(got, fmt.Sprint(o.Type, o.ID, o.Rule))
		return nil
	})
	const noon = event.Micros(1_700_000_000_000_000)
	add := func(late event.Micros, record string, e Entry) {
		if err := l.add(&ordered{Record: Record{Entry: &e, Key: record}}, e.At+late); err != nil {
			t.Fatal(err)
		}
	}
	cleared := func(rule string, at event.Micros, by string) Entry {
		return Entry{Type: "verdict", At: at, Rule: rule, Verdict: &verdict.Verdict{Rule: rule, Cause: verdict.Cause{ID: by}}}
	}
	add(5, "other", Entry{Type: "fuse", At: noon + 3})
	add(9, "uid=1|a", cleared("a", noon-1, "c1")) // its instance's clock is behind, and so is its broker's
	add(9, "uid=1|b", cleared("b", noon-1, "c1"))
	add(9, "uid=1", Entry{Type: "command", At: noon, ID: "c1"})
	add(9, "uid=1|a", cleared("a", noon+2, "e7"))
	add(9, "uid=1|a", cleared("a", noon+1, "e8")) // by another owner, later
	if len(got) > 0 {
		t.Errorf("%v are written at once", got)
	}
	add(0, "late", Entry{Type: "fuse", At: noon + 3*orderWithin})
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	if want := []string{"commandc1", "verdicta", "verdictb", "verdicta", "verdicta", "fuse", "fuse"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(l.latest)+len(l.causes)+len(l.given) > 0 {
		t.Errorf("it keeps %d, %d and %d of what is written", len(l.latest), len(l.causes), len(l.given))
	}
}

// Whatever changes places within the time that entries take, what is written is sorted, and complete.
func TestTheAuditOfChanceIsInOrder(t *testing.T) {
	rnd := rand.New(rand.NewPCG(testrun.Seed(t), 0))
	type arrival struct {
		o   *ordered
		got event.Micros
	}
	var all []arrival
	at := event.Micros(1_700_000_000_000_000)
	for i := range 5000 {
		at += event.Micros(rnd.Int64N(int64(event.Second)))
		e := &Entry{Type: "verdict", At: at, ID: fmt.Sprint(i), Verdict: &verdict.Verdict{Cause: verdict.Cause{ID: fmt.Sprint("e", rnd.IntN(100))}}}
		if rnd.IntN(3) == 0 {
			e.Type, e.Verdict = "command", nil
		}
		all = append(all, arrival{&ordered{Record: Record{Entry: e, Partition: int32(rnd.IntN(3))}}, at + event.Micros(rnd.Int64N(int64(orderWithin)))})
	}
	slices.SortStableFunc(all, func(x, y arrival) int { return int(x.got - y.got) })
	var times []event.Micros
	l := newInOrder(func(o *ordered) error {
		times = append(times, o.At)
		return nil
	})
	for _, a := range all {
		if err := l.add(a.o, a.got); err != nil {
			t.Fatal(err)
		}
	}
	waited := len(l.waiting)
	if err := l.flush(); err != nil {
		t.Fatal(err)
	}
	if len(times) != len(all) || !slices.IsSorted(times) || waited == len(all) {
		t.Errorf("%d of %d are written, sorted: %v; %d waited to the end", len(times), len(all), slices.IsSorted(times), waited)
	}
}
