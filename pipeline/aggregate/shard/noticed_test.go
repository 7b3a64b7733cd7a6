package shard

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/rules"
)

// noticing is a shard of four, and what takes a record of the input in.
func noticing(t *testing.T, set string) (s *Shard, take func(value string, headers ...string)) {
	s = New(Config{ID: 1, Of: 4, Topics: simTopics}, Rules{Set: compile(t, set)})
	at, offset := now(), int64(0)
	clock := Clock{Local: at, Broker: event.NoTime}
	return s, func(value string, headers ...string) {
		t.Helper()
		pairs := make([][]byte, len(headers))
		for i, h := range headers {
			pairs[i] = []byte(h)
		}
		rec := record.Record{Offset: offset, Timestamp: at.Time().UnixMilli(), Value: []byte(value), Headers: record.HeadersOf(pairs...)}
		if err := s.Record(Input, &rec, clock); err != nil {
			t.Fatal(err)
		}
		offset++
		if err := s.Step(Input, offset, clock); err != nil {
			t.Fatal(err)
		}
		s.log.out.Reset()
		clear(rec.Value) // whoever keeps something of it has a copy
	}
}

// uidIn is a uid of a partition of four.
func uidIn(partition int32) string {
	for i := 0; ; i++ {
		if uid := fmt.Sprint("u", i); int32(event.Murmur2(uid)&0x7fffffff)%4 == partition {
			return uid
		}
	}
}

// A producer with another partitioner is seen, by the name that its records have, if any. What no producer can
// place otherwise is not: keys without a uid, events of several uids in a record, and what no rule counts by uid.
func TestMisplacedEventsAreToldByProducer(t *testing.T) {
	s, take := noticing(t, `
  rules:
    - {name: users, match: {api: a}, limit: 2, per: 1h, then: {block: until-reset}}
    - {name: campaigns, match: {api: a}, key: [attrs.c, uid], limit: 2, per: 1h, then: {block: until-reset}}
    - {name: addresses, match: {api: [a, b]}, key: ip, limit: 2, per: 1h, then: {block: until-reset}}`)
	ours, other := uidIn(1), uidIn(2)
	take(`{"uid":"` + ours + `","api":"a","ip":"192.0.2.1","attrs":{"c":"x"}}`)
	take(`{"uid":"` + other + `","api":"b","ip":"192.0.2.1"}`)
	take(`{"api":"a","ip":"192.0.2.2"}`)
	take(`[{"uid":"` + ours + `","api":"a"},{"uid":"` + other + `","api":"a"}]`)
	if len(s.log.tally.Misplaced) > 0 {
		t.Fatalf("misplaced: %v", s.log.tally.Misplaced)
	}
	take(`{"uid":"` + other + `","api":"a","attrs":{"c":"x"}}`)
	take(`{"uid":"`+other+`","api":"a"}`, "x", "y", event.HeaderClient, "shop-php")
	take(`{}`, "ce_id", "1", "ce_Source", "/orders", "ce_type", "a", "ce_specversion", "1.0", "ce_subject", other)
	take(`{"uid":"` + other + `","api":"a"}`)
	want := map[string]Misplaced{"": {2, 7}, "shop-php": {1, 5}, "/orders": {1, 6}}
	if diff := cmp.Diff(want, s.log.tally.Misplaced); diff != "" {
		t.Errorf("misplaced (- want)\n%s", diff)
	}
	for i := range 3 * maxNoticed {
		take(`{"uid":"`+other+`","api":"a"}`, event.HeaderClient, fmt.Sprint("c", i))
	}
	if n := len(s.log.tally.Misplaced); n != maxNoticed+1 || s.log.tally.Misplaced[rules.OtherNames].Events != 2*maxNoticed+3 {
		t.Errorf("%d producers, %v others", n, s.log.tally.Misplaced[rules.OtherNames])
	}
}

// Events that no rule counts are told by what they say, up to some number of names.
func TestUnmatchedEventsAreToldByWhatTheySay(t *testing.T) {
	s, take := noticing(t, `
  rules: [{name: r, match: {api: login, outcome: failure}, limit: 2, per: 1h, then: {block: until-reset}}]`)
	uid := uidIn(1)
	for range 3 {
		take(`{"uid":"` + uid + `","api":"login","outcome":"denied"}`)
	}
	take(`{"uid":"` + uid + `","api":"login","outcome":"failure"}`)
	take(`{"uid":"` + uid + `","api":"login","outcome":"failure","time":"2001-01-01T00:00:00Z"}`)
	take(`{"api":"login","outcome":"failure"}`)
	three, one := uint64(3), uint64(1)
	want := map[Unmatched]*uint64{{"login", "denied", false}: &three, {"login", "failure", true}: &one}
	if diff := cmp.Diff(want, s.log.tally.UnmatchedBy); diff != "" || s.log.tally.Unmatched != 4 {
		t.Errorf("%d unmatched (- want)\n%s", s.log.tally.Unmatched, diff)
	}
	for i := range 3 * maxNoticed {
		take(fmt.Sprintf(`{"uid":"%s","api":"x%d"}`, uid, i))
	}
	if n := len(s.log.tally.UnmatchedBy); n != maxNoticed+1 || *s.log.tally.UnmatchedBy[OtherUnmatched] != 2*maxNoticed+2 {
		t.Errorf("%d names, %d others", n, *s.log.tally.UnmatchedBy[OtherUnmatched])
	}
}

// A header may be as long as a record: of a name only the begin is kept.
func TestAProducersNameIsCut(t *testing.T) {
	long := make([]byte, 1<<20)
	for _, header := range []string{event.HeaderClient, "ce_source"} {
		if n := len(ClientOf(record.HeadersOf([]byte(header), long))); n != maxClient {
			t.Errorf("%s: %d bytes", header, n)
		}
	}
}
