package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

// load loads one record.
func load(s *Shard, offset int64, key string, value []byte) error {
	_, err := s.takeover.Load([]record.Record{{Offset: offset, Key: []byte(key), Value: value}})
	return err
}

// What a takeover cannot read is an error, and says what it is.
func TestATakeoverRefusesWhatItCannotRead(t *testing.T) {
	part := partKey(3, 0)
	for name, tt := range map[string]struct {
		key, value, want string
		newer, final     bool
	}{
		"a checkpoint":               {CheckpointKey, "{", "checkpoint record: ", false, true},
		"a newer checkpoint":         {CheckpointKey, `{"version":2}`, "checkpoint version 2", true, true},
		"hash of a pass":             {CheckpointKey, `{"version":1,"judged":{"pass":"00"}}`, "is no hash of 32 bytes", false, false},
		"a producer":                 {CheckpointKey, `{"version":1,"producers":{"x":{}}}`, `producer "x"`, false, false},
		"parts of producers":         {CheckpointKey, `{"version":1,"producer_parts":[1]}`, "1 parts of producers", true, false},
		"a part":                     {part, "", "part 3 of the producers: is not well-formed", false, false},
		"a newer part":               {part, "\x02\x00", "part 3 of the producers: " + ErrNewerFormat.Error(), true, false},
		"a state without a block":    {"uid=1", "\x01\x00", errBlock.Error(), false, false},
		"an empty state":             {"uid=1", "", errBlock.Error(), false, false},
		"a state with half a list":   {"uid=1", "\x01\x01\x01\x09{}", errBlock.Error(), false, false},
		"a state that is no rules'":  {"uid=1", "\x01\x00\x01\x00\x00\x00\xff", "state of a key: ", false, false},
		"a verdict that is no JSON":  {"uid=1", "\x01\x01\x01\x01{\x01\x00\x00\x00", "unpublished verdict in the changelog at 7", false, false},
		"a fence, which is no state": {"\x00fence", "{}", "", false, false},
	} {
		s := oneLimit(t)
		clock := Clock{Local: now(), Broker: event.NoTime}
		var err error
		if tt.key != CheckpointKey {
			err = load(s, 1, CheckpointKey, []byte(`{"version":1}`))
		}
		if err == nil {
			err = load(s, 7, tt.key, []byte(tt.value))
		}
		if err == nil {
			_, err = s.takeover.Resume(Found{Committed: -1}, clock)
		}
		if err == nil {
			err = s.takeover.Republish(clock)
		}
		if tt.want == "" && err == nil {
			continue
		}
		if err == nil || tt.want == "" || !strings.Contains(err.Error(), tt.want) || errors.Is(err, ErrNewerFormat) != tt.newer || errors.Is(err, ErrFinal) != tt.final {
			t.Errorf("%s: %v, want %q; of a newer program: %t, final: %t", name, err, tt.want, tt.newer, tt.final)
		}
	}
}

// What matters of a key is its last state: one that nobody can read is an error until another one follows it, or
// nothing does.
func TestTheLastStateOfAKeyMatters(t *testing.T) {
	const bad, good = "\x01\x00\x01\x00\x00\x00\xff", "\x01\x00\x01\x00\x00\x00"
	for name, tt := range map[string]struct {
		values []string // of uid=1; "" is a tombstone
		fine   bool
	}{
		"it is bad":        {[]string{good, bad}, false},
		"a good one":       {[]string{bad, good}, true},
		"it is deleted":    {[]string{bad, ""}, true},
		"and comes again":  {[]string{bad, "", bad}, false},
		"nothing is there": {nil, true},
	} {
		s := oneLimit(t)
		for i := range 100 {
			if err := load(s, int64(i), fmt.Sprintf("uid=other-%d", i), []byte(good)); err != nil {
				t.Fatal(err)
			}
		}
		for more := true; more; { // what was looked at is looked at again when more comes
			var err error
			if more, err = s.takeover.CheckLoaded(7); err != nil {
				t.Fatal(err)
			}
		}
		for i, value := range tt.values {
			if err := load(s, int64(100+i), "uid=1", bytesOrNil(value)); err != nil {
				t.Fatal(err)
			}
		}
		_, err := s.takeover.Resume(Found{Committed: -1}, Clock{Local: now(), Broker: event.NoTime})
		if (err == nil) != tt.fine {
			t.Errorf("%s: %v", name, err)
		}
		if bad, ok := errors.AsType[*StateError](err); !tt.fine && (!ok || string(bad.Key) != "uid=1" || strings.Contains(err.Error(), "uid")) {
			t.Errorf("%s: %v, which is not about uid=1, or shows it", name, err)
		}
	}
}

func bytesOrNil(value string) []byte {
	if value == "" {
		return nil
	}
	return []byte(value)
}

// An owner asks Kafka where the epochs end that the checkpoint has of the topics of today.
func TestWhatAnOwnerAsksKafkaFor(t *testing.T) {
	topics := map[string]string{"events": "e", "loop": "l"}
	for name, tt := range map[string]struct {
		is    [Sources]int32
		ids   map[string]string
		nil   bool
		epoch [Sources]bool
	}{
		"both":               {is: [Sources]int32{4, 5}, ids: topics, epoch: [Sources]bool{true, true}},
		"one is unknown":     {is: [Sources]int32{NoEpoch, 0}, ids: topics, epoch: [Sources]bool{false, true}},
		"another topic":      {is: [Sources]int32{4, 5}, ids: map[string]string{"events": "x", "loop": "l"}, epoch: [Sources]bool{false, true}},
		"an older program's": {nil: true, ids: topics},
	} {
		s := New(Config{Of: 1, Topics: simTopics}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")})
		c := &checkpoint{Version: checkpointVersion, Topics: tt.ids, RulesAt: 9, Epochs: &Epochs{Is: tt.is}}
		if tt.nil {
			c.Epochs = nil
		}
		body, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.takeover.Restored(); got != (Restored{}) {
			t.Errorf("%s: nothing is loaded, and restored is %+v", name, got)
		}
		if err := load(s, 0, CheckpointKey, body); err != nil {
			t.Fatal(err)
		}
		got := s.takeover.Restored()
		if !got.Checkpoint || got.Rules != 9 || got.Epoch != tt.epoch {
			t.Errorf("%s: %+v, want epochs of %v", name, got, tt.epoch)
		}
		for src, asked := range tt.epoch {
			if asked && got.Of[src] != tt.is[src] {
				t.Errorf("%s: epoch %d, want %d", name, got.Of[src], tt.is[src])
			}
		}
	}
}

// A record that is cut anywhere is an error, and reads as nothing else.
func TestRecordsThatAreCutShort(t *testing.T) {
	block := appendBlockHeader(nil, &block{applied: [Sources]applied{{300, 200}, {1, 70000}}, spent: 1 << 40})
	for i := range block {
		if _, err := decodeBlock(block[:i]); !errors.Is(err, errBlock) {
			t.Errorf("%d of %d bytes of a block: %v", i, len(block), err)
		}
	}
	state := appendWire(nil, []unpublished{{seq: 300, body: []byte("{}")}}, block)
	for i := range state {
		if _, _, err := ParseState(state[:i]); !errors.Is(err, errBlock) {
			t.Errorf("%d of %d bytes of a state: %v", i, len(state), err)
		}
	}
	if n, rest, err := ParseState(append(state, "abc"...)); n != 1 || string(rest) != "abc" || err != nil {
		t.Errorf("a state: %d unpublished, %q, %v", n, rest, err)
	}
	for _, n := range []int{0, 1, 20} {
		pending := slices.Repeat([]unpublished{{seq: 1 << 62, body: []byte("{}")}}, n)
		if most, need := wireBytes(pending, block), len(appendWire(nil, pending, block)); most < need || most > need+10*(n+1) {
			t.Errorf("%d verdicts: room for %d bytes, and %d are needed", n, most, need)
		}
	}
	s := &producers{}
	s.repeated(instanceOf(1), 300, 1<<40, 1<<50)
	for i := range s.parts {
		p := &s.parts[i]
		if len(p.rows) == 0 {
			continue
		}
		p.version = 300
		value := p.append(nil, 0)
		for cut := range value {
			if _, rows, err := readPart(value[:cut]); err == nil && (cut != 3 || len(rows) > 0) {
				t.Errorf("%d of %d bytes of a part are %d rows", cut, len(value), len(rows))
			}
		}
		version, rows, err := readPart(value)
		if err != nil || version != 300 || len(rows) != 1 || rows[0].name != p.rows[0].name || rows[0].producerRow != p.rows[0].producerRow {
			t.Errorf("a part: version %d, %+v, %v", version, rows, err)
		}
		if p.append(nil, 1<<50); len(p.append(nil, 1<<50)) != len(value) || len(p.append(nil, 1<<50+1)) != 3 {
			t.Error("a row that was seen at the time from which on they are kept is kept, and none before that")
		}
	}
}

// Those who read the log otherwise find the same repeats.
func TestRepeats(t *testing.T) {
	r := NewRepeats(2)
	rec := func(to int32, seq uint64) *record.Record {
		return &record.Record{Headers: record.HeadersOf([]byte("x"), []byte("y"), []byte(event.HeaderInstance), instanceOf(1),
			[]byte(event.HeaderSequence), event.AppendSequence(nil, seq), []byte(event.HeaderPartition), event.AppendPartition(nil, to))}
	}
	for i, tt := range []struct {
		rec  *record.Record
		want bool
	}{{rec(2, 1), false}, {rec(2, 1), true}, {rec(1, 1), false}, {rec(2, 3), false}, {rec(2, 2), true}, {rec(2, 0), false}, {rec(2, 0), false}, {&record.Record{}, false}} {
		if got := r.Has(tt.rec); got != tt.want {
			t.Errorf("record %d: %t, want %t", i, got, tt.want)
		}
	}
	own := &record.Record{Headers: record.HeadersOf([]byte(event.HeaderInstance), instanceOf(1), []byte(event.HeaderSequence), event.AppendSequence(nil, 3))}
	if !r.Has(own) {
		t.Error("a record that names no partition was sent to its own")
	}
}

// A state that cannot be read is an error for whoever needs it: nothing goes on as if there were none.
func TestAStateThatCannotBeReadIsAnError(t *testing.T) {
	r, key := newLevelRig(t), "uid=u"
	r.s.table.Set([]byte(key), []byte{blockVersion + 1})
	r.s.levels.add([]byte(key), "")
	_, state := r.s.State([]byte(key))
	_, judge := r.s.judge.Key([]byte(key), r.clock)
	_, level := r.s.levels.Publish(1)
	command := r.s.Command(&CommandRecord{Command: "block", Key: key}, key, r.clock.Broker)
	for what, err := range map[string]error{"State": state, "Judge.Key": judge, "Levels.Publish": level, "Command": command} {
		if !errors.Is(err, ErrNewerFormat) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
