package admit

import (
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// TestARequestThatWasMet takes permits that were granted ahead by its text alone: each once, those that
// the rules would have given it, and only as long as both are the same.
func TestARequestThatWasMet(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	a := stocked(t, r)
	q := uid("x", "42")
	k := a.spares.part([]byte("uid=42")).keys["uid=42"]
	ids := k.stock.Load().ids
	for i := range ids {
		ids[i] = a.newID()
	}
	took := func(q Request) *Permit { return a.quickly(a.book.current.Load(), &q) }
	first := r.admit(a, q) // by the rules
	seen := map[string]bool{first.ID: true}
	for range 3 * permitsAtOnce {
		p := took(q)
		if p == nil || !p.Admitted || seen[p.ID] || p.Event.ID != p.ID || p.Event.At != first.Event.At || p.By != first.By || p.Key != first.Key ||
			p.Numbers.Remaining != first.Numbers.Remaining-event.Decimal(len(seen))*event.One {
			t.Fatalf("%+v after %+v", p, first)
		}
		seen[p.ID] = true
		p.Cancel()
	}
	testrun.Eventually(t, "those are given back", func() bool { return a.Stats().Cancelled >= 3*permitsAtOnce })
	for what, other := range map[string]Request{
		"another user": uid("x", "43"), "another API": uid("y", "42"), "another dimension": {API: "x", Dims: []event.Dim{{Name: "ip", Value: "42"}}},
		"another cost": {API: "x", Dims: q.Dims, Cost: 2 * event.One},
	} {
		if p := took(other); p != nil {
			t.Errorf("%s: %+v", what, p)
		}
	}
	r.admit(a, Request{API: "x", Dims: q.Dims, Cost: 2 * event.One}) // the key's permits are for another amount from now on
	if p := took(q); p != nil {
		t.Errorf("of another amount: %+v", p)
	}
}

// TestARequestThatWasMetUnderOtherRules: what was met under the rules of before is not met any more.
func TestARequestThatWasMetUnderOtherRules(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	a := stocked(t, r)
	q := uid("x", "42")
	r.admit(a, q)
	old := a.book.current.Load()
	if a.quickly(old, &q) == nil {
		t.Fatal("it was not met")
	}
	r.put(2, "    - {name: a, match: {api: x}, limit: 1, per: 1h, strict: {hold: 1h, ahead: 1h}}\n")
	testrun.Eventually(t, "the rules are others", func() bool { return a.Stats().Version == 2 })
	if p := a.quickly(a.book.current.Load(), &q); p != nil {
		t.Errorf("%+v", p)
	}
}

// TestAnAnswerForWhatRequestsWantedBefore: permits that were asked for ahead for one amount are given back
// when the answer comes after requests want another one.
func TestAnAnswerForWhatRequestsWantedBefore(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	r.rules(1, "    - {name: a, match: {api: x}, limit: 1000, per: 1h, strict: {hold: 1h, ahead: 1h}}\n")
	a := r.admitter()
	q := uid("x", "42")
	other := Request{API: "x", Dims: q.Dims, Cost: 2 * event.One}
	part := a.spares.part([]byte("uid=42"))
	r.admit(a, q)
	before := part.keys["uid=42"].turn
	for range several {
		r.admit(a, other)
	}
	k := part.keys["uid=42"]
	late := func(turn uint64) *ask {
		ids := []string{a.newID(), a.newID(), a.newID()}
		l := k.wants[0].Limit
		want := protocol.Want{Limit: k.v.limits[l].Shape, Amount: event.One}
		return &ask{turn: turn, by: []*rules.Limit{l}, Ask: protocol.Ask{Key: k.key, IDs: ids, Wants: []protocol.Want{want}}}
	}
	for what, turn := range map[string]uint64{"of the amount before": before, "of requests that take none ahead": 0} {
		was, left, room := a.Stats(), k.stock.Load().left(), k.room
		one := late(turn)
		a.spares.answered(one, &protocol.Answer{IDs: one.IDs, Limit: 1000 * event.One})
		testrun.Eventually(t, "they are given back: "+what, func() bool { return a.Stats().Cancelled == was.Cancelled+2 })
		if a.spares.failed(one); k.stock.Load().left() != left || k.room != room {
			t.Errorf("%s: %d are at hand, and there is room for %d, instead of %d and %d", what, k.stock.Load().left(), k.room, left, room)
		}
	}
	one := late(k.turn)
	if a.spares.answered(one, &protocol.Answer{IDs: one.IDs, Limit: 1000 * event.One}); k.stock.Load().left() != 2 || k.room == 0 {
		t.Errorf("%d of two are at hand, and there is room for %d", k.stock.Load().left(), k.room)
	}
}
