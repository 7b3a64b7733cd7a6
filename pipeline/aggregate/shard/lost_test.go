package shard

import (
	"testing"

	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// A lost permit counts once, under those of its limits that are still strict, and its own event is a
// repeat then. The key keeps its tier.
func TestLostPermitsCountOnce(t *testing.T) {
	r := newLevelRig(t)
	at := r.clock.Local
	limit := r.s.rules.Set.Limits[0]
	lost := &protocol.Lost{Key: "uid=u", ID: "p1", At: at, Parts: []protocol.Part{
		{Name: hashName(limit.Hash), Amount: 2 * event.One},
		{Name: hashName(r.s.rules.Set.Limits[1].Hash), Amount: event.One}, // not strict
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

	lost.ID, lost.Parts = "p2", []protocol.Part{{Name: hashName(limit.Hash), Amount: event.One, Returns: true}, {Name: hashName(limit.Hash), Amount: event.One, Kind: protocol.InFlight}}
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
	for _, a := range r.s.out.Aux {
		if a.Topic == DeadLetters {
			letters++
		}
	}
	if letters != 2 {
		t.Errorf("%d dead letters, want those of the two malformed ones", letters)
	}
}
