package shard

import (
	"encoding/hex"
	"testing"

	"github.com/tallygate/tallygate/event"
)

// Records as the first version wrote them. They must be read for ever.
func TestTheFirstFormatsAreRead(t *testing.T) {
	c, err := decodeCheckpoint([]byte(`{"version":1,"topics":{"e":"x"},"next":[7,8],"origins":{"2":[5,1]},"broker_time_us":"1970-01-01T00:00:00.000009Z","rules":"00"}`))
	if err != nil || c.Next != [Sources]int64{7, 8} || c.Origins[2] != [3]int64{5, 1, 0} || c.Broker != 9 || c.Start != 0 || c.Generation != 0 {
		t.Errorf("checkpoint: %+v, %v", c, err)
	}
	record, err := hex.DecodeString("01" + "01" + "01" + "02" + "7b7d" + // an unpublished verdict {} of seq -1
		"01" + "08" + "02" + "00" + "0a" + "abcd") // a block: applied of the input: 8, index 2; of the loop: nothing; spent at 5; the state
	if err != nil {
		t.Fatal(err)
	}
	pending, raw, err := decodeWire(record)
	if err != nil || len(pending) != 1 || pending[0].seq != -1 || string(pending[0].body) != "{}" {
		t.Errorf("record: %+v, %v", pending, err)
	}
	b, err := decodeBlock(raw)
	if err != nil || b.applied != [Sources]applied{{8, 2}, {}} || b.spent != 5 || string(b.state) != "\xab\xcd" {
		t.Errorf("block: %+v, %v", b, err)
	}
	forward := append([]byte{1, 1, 3, 4, 5, 12}, "{}"...)
	from, broker, body, err := decodeForward(forward)
	if err != nil || from != (origin{partition: 3, offset: 4, index: 5}) || broker != 6 || string(body) != "{}" {
		t.Errorf("forward: %+v, %v, %s, %v", from, broker, body, err)
	}
}

// A generation is what a forward's receiver tells two event topics apart by.
func TestForwardsKeepTheirGeneration(t *testing.T) {
	for _, want := range []origin{{3, 4, 5, 0}, {3, 4, 5, 1}, {0, 0, 0, 300}} {
		got, broker, body, err := decodeForward(appendForward(nil, want, 6, &event.Event{UID: "u1", API: "a.b"}))
		if err != nil || got != want || broker != 6 || len(body) == 0 {
			t.Errorf("%+v came as %+v, %v, %q, %v", want, got, broker, body, err)
		}
	}
	old, same, other := seen{applied{10, 0}, 1}, origin{1, 9, 0, 1}, origin{1, 3, 0, 2}
	if !old.covers(same) || old.covers(other) {
		t.Error("origins of two generations are compared")
	}
}

// Forwards are in the form that programs of before read.
func TestForwardsAreRawEventsInTheFirstForm(t *testing.T) {
	raw := []byte("{\"api\":\"a.b\", \"uid\":\"\xff\"}")
	from, broker, body, err := decodeForward(appendForwardRaw(nil, origin{partition: 3, offset: 4, index: 5}, 6, raw))
	if err != nil || from != (origin{partition: 3, offset: 4, index: 5}) || broker != 6 || string(body) != string(raw) {
		t.Errorf("%+v, %v, %q, %v", from, broker, body, err)
	}
	if value := appendForwardRaw(nil, origin{}, 0, raw); value[0] != loopVersion || value[1] != loopKindEvent {
		t.Errorf("version %d, kind %d", value[0], value[1])
	}
}
