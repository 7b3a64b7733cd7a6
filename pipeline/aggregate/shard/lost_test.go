package shard

import (
	"fmt"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// A permit that was granted before the rule's limit crossed 64, or the rule had refunds, counts when it is lost:
// the limit is the same.
func TestLostPermitsCountUnderFormerNames(t *testing.T) {
	const spec = `
  max_lateness: 1h
  rules:
    - {name: hourly, match: {api: a}, limit: %d, per: 1h, strict: true%s}`
	r := newLevelRig(t)
	r.s = New(Config{Of: 1, Topics: simTopics}, Rules{Number: 1, Published: 1, Set: compile(t, fmt.Sprintf(spec, 64, ""))})
	offset := int64(0)
	lose := func(id, name string) {
		value, err := AppendLost(nil, &protocol.Lost{Key: "uid=u", ID: id, At: r.clock.Local, Parts: []protocol.Part{{Name: name, Amount: event.One}}})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.s.Record(Loop, &record.Record{Offset: offset, Timestamp: r.clock.Local.Time().UnixMilli(), Value: value}, r.clock); err != nil {
			t.Fatal(err)
		}
		if offset++; r.s.Step(Loop, offset, r.clock) != nil {
			t.Fatal(err)
		}
	}
	exact := r.s.rules.Set.Limits[0].Hash.String()
	r.use(2, fmt.Sprintf(spec, 65, ""))
	panes := r.s.rules.Set.Limits[0].Hash.String()
	r.levels()
	lose("p1", exact)
	r.want("by panes", "uid=u 1, settles [p1], exempt false")
	lose("p2", panes)
	r.want("by its own name", "uid=u 2, settles [p2], exempt false")
	r.use(3, fmt.Sprintf(spec, 64, ", refunds: true"))
	r.levels()
	lose("p3", panes)
	r.want("by times, with refunds", "uid=u 3, settles [p3], exempt false")
	lose("p4", exact)
	r.want("by times", "uid=u 4, settles [p4], exempt false")
}

// A lost permit counts once, under those of its limits that are still strict, and its own event is a
// repeat then. The key keeps its tier.
func TestLostPermitsCountOnce(t *testing.T) {
	r := newLevelRig(t)
	at := r.clock.Local
	limit := r.s.rules.Set.Limits[0]
	lost := &protocol.Lost{Key: "uid=u", ID: "p1", At: at, Parts: []protocol.Part{
		{Name: limit.Hash.String(), Amount: 2 * event.One},
		{Name: r.s.rules.Set.Limits[1].Hash.String(), Amount: event.One}, // not strict
		{Name: "no hash", Amount: event.One},
	}}
	value, err := AppendLost(nil, lost)
	if err != nil {
		t.Fatal(err)
	}
	for offset := range int64(2) {
		if err := r.s.Record(Loop, &record.Record{Offset: offset, Timestamp: at.Time().UnixMilli(), Value: value}, r.clock); err != nil {
			t.Fatal(err)
		}
		if err := r.s.Step(Loop, offset+1, r.clock); err != nil {
			t.Fatal(err)
		}
		r.want("lost", "uid=u 2, settles [p1], exempt false")
	}
	r.count(`"id":"e1","outcome":"ok","permit":"p1","permit_at":%q`, at)
	r.want("its own event", "uid=u 2, settles [p1], exempt false")

	lost.ID, lost.Parts = "p2", []protocol.Part{{Name: limit.Hash.String(), Amount: event.One, Returns: true}, {Name: limit.Hash.String(), Amount: event.One, Kind: protocol.InFlight}}
	if value, err = AppendLost(nil, lost); err != nil {
		t.Fatal(err)
	}
	for offset, value := range [][]byte{value, {loopVersion, loopKindLost, '{'}, {loopVersion, loopKindLost, '{', '}'}} {
		if err := r.s.Record(Loop, &record.Record{Offset: 2 + int64(offset), Timestamp: at.Time().UnixMilli(), Value: value}, r.clock); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.s.Step(Loop, 5, r.clock); err != nil {
		t.Fatal(err)
	}
	r.want("one that is given back", "uid=u 2, settles [p2], exempt false")
	letters := 0
	for _, a := range r.s.log.out.Aux {
		if a.Topic == DeadLetters {
			letters++
		}
	}
	if letters != 2 {
		t.Errorf("%d dead letters, want those of the two malformed ones", letters)
	}
}
