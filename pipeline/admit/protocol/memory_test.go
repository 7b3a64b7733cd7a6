package protocol

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
)

const at = 1_790_000_000 * event.Second

// open is a memory that may grant for partition 0.
func open(t *testing.T) (*Memory, Process) {
	t.Helper()
	m, p := &Memory{}, Process{Run: "r", Time: at, New: "e"}
	a := m.Apply(p, &Batch{Of: 1, Beat: at, Records: []Record{{Version: 1}}, Next: 1})
	g := &Grants{Run: "r", Life: a.Life, Until: a.Clock + Lease}
	if a := m.Apply(p, &Batch{Of: 1, Beat: at, Start: 1, Next: 2, Records: []Record{{Grants: g}}}); !a.OK {
		t.Fatalf("%+v", a)
	}
	return m, p
}

func askFor(limit Limit, threshold event.Decimal, ids ...string) *Ask {
	return &Ask{Key: "uid=1", IDs: ids, Before: at + event.Hour, Version: 1, Wants: []Want{{Limit: limit, Amount: event.One, Threshold: threshold, Lowest: event.One}}}
}

var daily = Limit{Name: "daily", Grain: event.Hour, Keeps: event.Hour, Hold: 10 * event.Second}

func TestAKeyHasSoManyPermitsAtMost(t *testing.T) {
	m, p := open(t)
	for i := range MaxPermits - 2 {
		if a := m.Admit(p, askFor(daily, event.Decimal(MaxPermits*2)*event.One, fmt.Sprint(i))); a.Status != Granted {
			t.Fatalf("permit %d: %+v", i, a)
		}
	}
	if a := m.Admit(p, askFor(daily, event.Decimal(MaxPermits*2)*event.One, "a", "b", "c", "d")); a.Status != Granted || len(a.IDs) != 2 {
		t.Errorf("several at once where two fit: %+v", a)
	}
	if a := m.Admit(p, askFor(daily, event.Decimal(MaxPermits*2)*event.One, "one more")); a.Status != TooMany {
		t.Errorf("%+v, want TooMany", a)
	}
}

func TestAClockFarAheadOfThePublishersIsInDoubt(t *testing.T) {
	m, p := open(t)
	p.Time += MaxAhead + event.Second
	m.partition(0).Until = p.Time + Lease
	if a := m.Admit(p, askFor(daily, event.One, "a")); a.Status != Ahead {
		t.Errorf("%+v, want Ahead", a)
	}
	p.Time += Lease // nobody renews what it may: the publisher is away, and no clock is wrong
	if a := m.Admit(p, askFor(daily, event.One, "a")); a.Status != Doubt {
		t.Errorf("%+v, want Doubt", a)
	}
	p.Time -= Lease + event.Second
	*m = Memory{}
	m, p = open(t)
	if a := m.Admit(p, askFor(daily, event.One, "a")); a.Status != Granted {
		t.Errorf("%+v, want Granted", a)
	}
}

// TestAClockThatWasWrongIsSetBack: steps of Redis' clock by seconds, one after the other, carry the shard's away.
// As soon as TIME is right again, so is the clock, and what was granted and counted is known all the same.
func TestAClockThatWasWrongIsSetBack(t *testing.T) {
	m, p := open(t)
	w := Warden{Last: &Grants{Run: "r", Life: "e"}}
	w.Use(Holds{Rules: 1, Of: []event.Micros{150 * event.Second}}, true, 0)
	reached := int64(2)
	apply := func(records ...Record) Applied {
		a := m.Apply(p, &Batch{Of: 1, Beat: at + event.Second, Start: reached, Next: reached + int64(len(records)), Records: records})
		reached = a.Reached
		return a
	}
	if a := m.Admit(p, askFor(daily, 3*event.One, "under way")); a.Status != Granted {
		t.Fatalf("%+v", a)
	}
	apply(Record{Level: &Level{Key: "uid=1", Seq: 1, Latest: at, Sections: []Section{{Name: "daily", Steps: []Step{{at + 50*event.Second, event.One}}}}}})
	for _, by := range []event.Micros{45, -65, 110, -90} {
		p.Time += by * event.Second
		a := apply()
		w.Answered(&a, event.Second)
	}
	if m.Clock > at+MaxAhead || m.Epoch != "e~1" {
		t.Fatalf("the clock is %v ahead in epoch %s", (m.Clock - at).Duration(), m.Epoch)
	}
	if a := m.Admit(p, askFor(daily, 3*event.One, "b")); a.Status != Doubt {
		t.Errorf("before the owner has said that it may grant: %+v", a)
	}
	g := w.Grants(event.Second)
	if g == nil || g.Life != "e~1" {
		t.Fatalf("the owner says %+v", g)
	}
	apply(Record{Grants: g})
	again := askFor(daily, 3*event.One, "again")
	again.Again = true
	if a := m.Admit(p, again); a.Status != Late {
		t.Errorf("a question that may be of before: %+v", a)
	}
	if a, b := m.Admit(p, askFor(daily, 3*event.One, "b")), m.Admit(p, askFor(daily, 3*event.One, "c")); a.Status != Granted || b.Status != Denied {
		t.Errorf("%+v, %+v, want one more permit: one is under way, and one is counted", a, b)
	}
}

func TestAnUnknownTierIsTheKeysLastOneOrTheLowest(t *testing.T) {
	m, p := open(t)
	ask := func(id string) Status {
		q := askFor(daily, -1, id)
		q.Wants[0].Tiers = []Tier{{0, 9 * event.One}, {7, 2 * event.One}}
		return m.Admit(p, q).Status
	}
	if a, b := ask("a"), ask("b"); a != Granted || b != Denied {
		t.Errorf("%v, %v, want the lowest limit, 1", a, b)
	}
	m.Apply(p, &Batch{Of: 1, Beat: at, Start: 2, Next: 3, Records: []Record{{Level: &Level{
		Key: "uid=1", Seq: 1, Settles: []string{"a"}, Sections: []Section{{Name: "daily", Tier: 7, Steps: []Step{{at + event.Hour, event.One}}}},
	}}}})
	if c, d := ask("c"), ask("d"); c != Granted || d != Denied {
		t.Errorf("%v, %v, want the last tier's limit, 2", c, d)
	}
}

func TestACalendarsEndsThatAreBehindAreAskedForAnew(t *testing.T) {
	m, p := open(t)
	month := Limit{Name: "month", Ends: []event.Micros{at - event.Hour, at}, Hold: event.Second}
	if a := m.Admit(p, askFor(month, event.One, "a")); a.Status != OutOfRange || a.Now < at {
		t.Errorf("%+v, want OutOfRange", a)
	}
	month.Ends = append(month.Ends, at+1)
	if a := m.Admit(p, askFor(month, event.One, "a")); a.Status != Granted {
		t.Errorf("%+v, want Granted", a)
	}
}

func TestStepsAreCoalescedToTheLaterMoment(t *testing.T) {
	var steps []Step
	sum := event.Decimal(0)
	for i := range 1000 {
		steps = append(steps, Step{event.Micros(i), event.Decimal(i)})
		sum += event.Decimal(i)
	}
	s := Section{Steps: Coalesce(steps)}
	if len(s.Steps) > MaxSteps || s.at(-1) != float64(sum) || s.Steps[len(s.Steps)-1].Until != 999 {
		t.Errorf("%d steps of %v, the last one %v", len(s.Steps), s.at(-1), s.Steps[len(s.Steps)-1])
	}
	if len(Coalesce(make([]Step, MaxSteps))) != MaxSteps {
		t.Error("so many are coalesced")
	}
}

func TestAskingAgainRenewsWhatIsInFlight(t *testing.T) {
	m, p := open(t)
	ask := askFor(Limit{Name: "exports", Kind: InFlight, Hold: 10 * event.Second, Returns: true}, event.One, "a")
	other := askFor(ask.Wants[0].Limit, event.One, "b")
	if a, b := m.Admit(p, ask), m.Admit(p, other); a.Status != Granted || b.Status != Denied {
		t.Fatalf("%v, %v", a.Status, b.Status)
	}
	p.Time += 9 * event.Second
	if a := m.Admit(p, ask); a.Status != Granted || a.At != at {
		t.Errorf("%+v, want the same permit", a)
	}
	p.Time += 5 * event.Second
	if b := m.Admit(p, other); b.Status != Denied {
		t.Errorf("%+v: the first one was renewed", b)
	}
	p.Time += 5 * event.Second
	m.partition(0).Until = p.Time + Lease
	if b := m.Admit(p, other); b.Status != Granted {
		t.Errorf("%+v: the first one is over", b)
	}
}
