package shard

import (
	"maps"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// An event is compared with the vocabulary where it was sent to, whether it counts or not, and not once
// more in the partitions that it is forwarded to.
func TestEventsAreComparedOnce(t *testing.T) {
	declared := compile(t, `
  apis: [a]
  attrs: {plan: [free, pro]}
  rules: [{name: r, match: {api: "*"}, limit: 2, per: 1h, then: {block: until-reset}}]`)
	s := New(Config{Of: 1, Topics: simTopics}, Rules{Set: declared})
	at := now()
	clock := Clock{Local: at, Broker: event.NoTime}
	tally := func(src Source, offset int64, value []byte) map[rules.Mismatch]uint64 {
		t.Helper()
		rec := record.Record{Offset: offset, Timestamp: at.Time().UnixMilli(), Value: value}
		if err := s.Record(src, &rec, clock); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(src, offset+1, clock); err != nil {
			t.Fatal(err)
		}
		s.log.out.Reset()
		defer clear(s.log.tally.Mismatches)
		return maps.Clone(s.log.tally.Mismatches)
	}
	value := []byte(`[{"uid":"u","api":"b","attrs":{"plan":"gold","x":1}},{"uid":"u","api":"a","attrs":{"plan":"pro"}},{"uid":"u","api":"b","time":"2001-01-01T00:00:00Z"}]`)
	want := map[rules.Mismatch]uint64{{What: "api", Name: "b"}: 2, {What: "value", Name: "plan"}: 1, {What: "attr", Name: "x"}: 1}
	if got := tally(Input, 0, value); !maps.Equal(got, want) {
		t.Errorf("a record: %v, want %v", got, want)
	}
	forward := appendForwardRaw(nil, origin{partition: 2, offset: 4}, at, []byte(`{"uid":"u","api":"b"}`))
	if got := tally(Loop, 0, forward); len(got) > 0 {
		t.Errorf("what another partition forwarded: %v", got)
	}
	if err := s.judge.Use(Rules{Set: compile(t, `
  rules: [{name: r, match: {api: "*"}, limit: 2, per: 1h, then: {block: until-reset}}]`)}); err != nil {
		t.Fatal(err)
	}
	if got := tally(Input, 1, value); len(got) > 0 {
		t.Errorf("rules without a vocabulary: %v", got)
	}
}
