package shard

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
	"github.com/tallygate/tallygate/verdict"
)

// What records are decoded into is used again once their events are counted: however many there
// are, they take no more memory.
func TestDecodedRecordsTakeNoMoreMemory(t *testing.T) { // alone: it counts bytes
	s := New(Config{Of: 1, Topics: simTopics}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")})
	value, clock := []byte(`{"uid":"u","api":"a\u0062","attrs":{"a":1,"b":"\u0062","c":"x"}}`), Clock{Local: now(), Broker: event.NoTime}
	next := int64(0)
	read := func(records int) (bytes uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for range records {
			if err := s.Record(Input, &record.Record{Offset: next, Timestamp: clock.Local.Time().UnixMilli(), Value: value}, clock); err != nil {
				t.Fatal(err)
			}
			next++
			if err := s.Step(Input, next, clock); err != nil {
				t.Fatal(err)
			}
			s.log.out.Reset()
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	read(1000)
	const records = 10_000
	if n := read(records); n > 10*records {
		t.Errorf("%d records took %d bytes", records, n)
	}
}

// An event of an access log is in no record: its number takes the place of an offset.
func TestEventsWithoutRecords(t *testing.T) {
	set := compile(t, `
  rules:
    - {name: r, match: {api: "*"}, limit: 2, per: 1h, window: tumbling, then: {block: until-reset}}`)
	var traced []string
	s := New(Config{ID: 3, Of: 1, Topics: simTopics, Trace: func(x *Stepped) {
		traced = append(traced, fmt.Sprint(len(x.Hits), x.Hits[0].Limit.Name, len(x.Result.Changes)))
	}}, Rules{Set: set})
	s.log.cfg.ID = 0
	at := now()
	clock := Clock{Local: at, Broker: event.NoTime}
	for _, number := range []int64{0, 1, 1, 2} { // the second of 1 is a repeat
		s.Event(&event.Event{UID: "u", API: "a", Time: event.NoTime, Cost: event.One}, number, at, verdict.Cause{Offset: 70 + number})
		if err := s.Step(Input, number+1, clock); err != nil {
			t.Fatal(err)
		}
	}
	if s.log.tally.Counted != 3 || s.log.tally.Replayed != 1 || s.log.tally.Matches[0] != 3 {
		t.Errorf("%+v, want 3 that count, and one that was there before", s.log.tally)
	}
	if got := fmt.Sprint(traced); got != "[1r0 1r1 1r0]" {
		t.Errorf("told of %s", got)
	}
	if len(s.log.out.States) != 1 || len(s.log.out.States[0].Ack.verdicts) != 1 || s.log.out.States[0].Ack.verdicts[0].v.Cause.Offset != 71 {
		t.Errorf("the verdict is %+v, want one that event 71 has caused", s.log.out.States)
	}
	ref, _ := s.table.Get([]byte("uid=u"))
	if b, err := decodeBlock(s.table.Block(ref)); err != nil || b.applied != [Sources]applied{{3, 0}, {}} {
		t.Errorf("applied is %v, %v", b.applied, err)
	}
	if got := s.log.Time(clock); got != at || s.Keys() != 1 || s.Bytes() <= 0 {
		t.Errorf("the time is %v, want %v; %d keys of %d bytes", got, at, s.Keys(), s.Bytes())
	}
	s.Hot().Tick(at)
	if hot := s.Hot().Hot(at, 0); len(hot) != 1 {
		t.Errorf("hot keys: %+v", hot)
	}
}

// One from the future moves no time beyond this machine's clock.
func TestTimeIsBoundedByTheClock(t *testing.T) {
	s := oneLimit(t)
	at := now()
	clock := Clock{Local: at, Broker: event.NoTime}
	s.Event(&event.Event{UID: "u", API: "a", Time: event.NoTime, Cost: event.One}, 0, at+event.Hour, verdict.Cause{})
	if err := s.Step(Input, 1, clock); err != nil {
		t.Fatal(err)
	}
	if got := s.log.Time(Clock{Local: at + event.Day}); got != at {
		t.Errorf("the time is %v, want %v", got, at)
	}
}

// A step is due when as many events are gathered as are worth it.
func TestWhenAStepIsDue(t *testing.T) {
	s := oneLimit(t)
	for n := range gatherAtOnce + 1 {
		if got := s.Gathered(); got != (n == gatherAtOnce) {
			t.Errorf("%d events are gathered, a step is due: %t", n, got)
		}
		s.Event(&event.Event{UID: "u", API: "a", Time: event.NoTime, Cost: event.One}, int64(n), now(), verdict.Cause{})
	}
}

// A dead letter's key and value are cut beyond their bounds, and not at them.
func TestDeadLettersAreCutAtTheirBounds(t *testing.T) {
	for _, tt := range []struct {
		value, key int
		cut        bool
	}{{100, maxDeadLetterKey, false}, {101, 1, true}, {1, maxDeadLetterKey + 1, true}} {
		s := New(Config{Of: 1, MaxDeadLetter: 100}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")})
		s.log.deadLetter(Input, &record.Record{Key: make([]byte, tt.key), Value: make([]byte, tt.value)}, nil, errBlock)
		a := s.log.out.Aux[0]
		cut := slices.ContainsFunc(a.Headers, func(h Header) bool { return string(h.Key) == "cut-from" && string(h.Value) == fmt.Sprint(tt.value) })
		if cut != tt.cut || len(a.Value) != min(tt.value, 100) || len(a.Key) != min(tt.key, maxDeadLetterKey) {
			t.Errorf("%d bytes of key and %d of value: it has %d and %d, cut: %t", tt.key, tt.value, len(a.Key), len(a.Value), cut)
		}
	}
}

// A dead letter has memory of its own: while its topic takes nothing, it must not keep the batch of its record.
func TestADeadLetterKeepsNoBatch(t *testing.T) {
	batch := []byte("the key, the value and a header of one record")
	s := New(Config{Of: 1, MaxDeadLetter: 100}, Rules{Set: compile(t, "  rules: ["+movingEnds["bucket"]+"]")})
	headers := record.HeadersOf(batch[:3], batch[4:7])
	s.log.deadLetter(Input, &record.Record{Key: batch[:8], Value: batch[8:20], Headers: headers}, nil, errBlock)
	a := s.log.out.Aux[0]
	before := fmt.Sprintf("%s %s %s", a.Key, a.Value, a.Headers)
	if !strings.Contains(before, string(batch[:8])) || !strings.Contains(before, ownHeader) {
		t.Fatalf("it lacks something: %s", before)
	}
	clear(batch)
	for left := headers; left.Len() > 0; {
		key, value, _ := left.Next()
		clear(key)
		clear(value)
	}
	if after := fmt.Sprintf("%s %s %s", a.Key, a.Value, a.Headers); after != before {
		t.Errorf("it changes with the batch: %s", after)
	}
}

// Once records are counted, nothing keeps their memory: it is given to others.
func TestCountedRecordsAreForgotten(t *testing.T) {
	s := New(Config{Of: 1, Topics: simTopics, MaxDeadLetter: 10}, Rules{Set: compile(t, packRules)})
	clock := Clock{Local: now(), Broker: event.NoTime}
	const records = 20
	var gone atomic.Int32
	for n := range int64(records) { // each in a batch of its own
		value := fmt.Appendf(nil, `[{"id":"e%d","uid":"u","api":"a.x","ip":"10.0.0.1","attrs":{"office":"o","bytes":1}}, "no event", {"api":"a.y","uid":"u"}]`, n)
		runtime.AddCleanup(&value[0], func(int) { gone.Add(1) }, 0)
		if err := s.Record(Input, &record.Record{Offset: n, Timestamp: clock.Local.Time().UnixMilli(), Value: value}, clock); err != nil {
			t.Fatal(err)
		}
		if err := s.Step(Input, n+1, clock); err != nil {
			t.Fatal(err)
		}
	}
	s.Forget() // dead letters still wait
	for range 10 {
		runtime.GC()
		if gone.Load() >= records-1 { // what a step before keeps is one batch at most
			break
		}
		runtime.Gosched()
	}
	if n := gone.Load(); n < records-1 {
		t.Errorf("%d of %d batches are kept", records-n, records)
	}
	runtime.KeepAlive(s)
}

// What a forward has counted is applied at its place in the loop topic: states have it in that
// form.
func TestAForwardIsAppliedAtItsPlace(t *testing.T) {
	s := oneLimit(t)
	at := now()
	clock := Clock{Local: at, Broker: event.NoTime}
	rec := record.Record{Offset: 8, Value: appendForwardRaw(nil, origin{partition: 2, offset: 4, index: 3}, at, []byte(`{"uid":"u","api":"a"}`))}
	if err := s.Record(Loop, &rec, clock); err != nil {
		t.Fatal(err)
	}
	if err := s.Step(Loop, 9, clock); err != nil {
		t.Fatal(err)
	}
	ref, _ := s.table.Get([]byte("uid=u"))
	if b, err := decodeBlock(s.table.Block(ref)); err != nil || b.applied != [Sources]applied{{}, {9, 0}} || s.log.Last(Loop) != at {
		t.Errorf("applied is %v, %v; the last one is of %v", b.applied, err, s.log.Last(Loop))
	}
}
