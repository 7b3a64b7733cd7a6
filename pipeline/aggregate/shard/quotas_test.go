package shard

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Whatever the flood: a key's numbers are published at most once a second, and what is published is
// never behind by more than a second and a look.
func TestWhatIsLeftIsPublishedAtMostOnceASecond(t *testing.T) {
	set := compile(t, `
  rules:
    - {name: a, public: some, quota: true, match: {api: x}, limit: 1k, per: 1h, window: tumbling, then: {block: until-reset}}
    - {name: b, public: some, quota: true, match: {api: x}, limit: 1k, per: 1d, window: tumbling, then: {block: until-reset}}`)
	const look = 100 * event.Millisecond
	rapid.Check(t, func(t *rapid.T) {
		var m Quotas
		now := event.FromTime(time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC))
		looked, is, published, told, changed := now, map[quotaPlace]event.Decimal{}, map[quotaPlace]event.Decimal{}, map[quotaPlace]event.Micros{}, map[quotaPlace]event.Micros{}
		publish := func(place quotaPlace, count event.Decimal) {
			if last, before := told[place]; before && now-last < quotaEvery {
				t.Fatalf("%v is published %v after the last time", place, (now - last).Duration())
			}
			published[place], told[place] = count, now
		}
		lookAt := func() {
			for _, place := range m.due(now, false) {
				q := m.byPlace[place]
				count := q.left.Count
				m.taken(q, now)
				publish(place, count)
			}
		}
		for range rapid.IntRange(1, 300).Draw(t, "events") {
			to := now + rapid.SampledFrom([]event.Micros{0, 1, 10 * event.Millisecond, 300 * event.Millisecond, 3 * event.Second}).Draw(t, "gap")
			for looked+look <= to { // an owner looks while something waits
				if looked += look; m.waiting > 0 {
					now = looked
					lookAt()
				}
				for place, count := range is {
					if published[place] != count && looked-changed[place] > quotaEvery+look {
						t.Fatalf("%v is %v since %v, and published is %v", place, count, (looked - changed[place]).Duration(), published[place])
					}
				}
			}
			now = to
			place := quotaPlace{rapid.SampledFrom([]string{"uid=1", "uid=2"}).Draw(t, "key"), rapid.SampledFrom([]string{"a", "b"}).Draw(t, "limit")}
			if published[place] == is[place] {
				changed[place] = now
			}
			is[place] += event.One
			left := rules.Left{Limit: set.Limits[0], Count: is[place], Of: 1000 * event.One, Since: now, Until: now + event.Hour}
			if place.limit == "b" {
				left.Limit = set.Limits[1]
			}
			if !m.keep([]byte(place.key), &left, now) {
				publish(place, is[place])
			}
			waiting := 0
			for _, q := range m.byPlace {
				if q.waits {
					waiting++
				}
			}
			if waiting != m.waiting {
				t.Fatalf("%d wait, and it says %d", waiting, m.waiting)
			}
		}
	})
}

// A set-back clock makes nothing wait for the hour that is repeated.
func TestWhatIsLeftAfterTheClockWasSetBack(t *testing.T) {
	set := compile(t, "  rules: [{name: a, public: some, quota: true, match: {api: x}, limit: 9, per: 1h, then: {block: until-reset}}]")
	var m Quotas
	left := rules.Left{Limit: set.Limits[0], Of: 9 * event.One, Count: event.One}
	now := event.Hour
	if m.keep([]byte("uid=1"), &left, now) {
		t.Fatal("the first one waits")
	}
	if !m.keep([]byte("uid=1"), &left, now+1) || len(m.due(now-event.Minute, false)) != 1 {
		t.Error("what waits is not due when the clock was set back")
	}
	if m.keep([]byte("uid=1"), &left, now-event.Minute) || m.waiting != 0 {
		t.Error("a newer one waits when the clock was set back")
	}
}

// However many keys are told of: the memory is bounded, and what finds no room is published at once.
func TestMemoryForWhatIsLeftIsBounded(t *testing.T) {
	set := compile(t, "  rules: [{name: a, public: some, quota: true, match: {api: x}, limit: 9, per: 1h, then: {block: until-reset}}]")
	var m Quotas
	left := rules.Left{Limit: set.Limits[0], Of: 9 * event.One, Count: event.One}
	for i := range 3 * mostQuotas {
		key := fmt.Appendf(nil, "uid=%d", i)
		m.keep(key, &left, event.Hour)
		m.keep(key, &left, event.Hour+1)
	}
	if len(m.byPlace) > mostQuotas || m.waiting > mostQuotas {
		t.Errorf("%d keys are remembered, and %d wait; want at most %d", len(m.byPlace), m.waiting, mostQuotas)
	}
	if m.keep([]byte("uid=another"), &left, event.Hour+2) {
		t.Error("what finds no room waits")
	}
	places := m.due(event.Hour+quotaEvery, false)
	if len(places) != m.waiting {
		t.Errorf("%d of %d are due", len(places), m.waiting)
	}
	for _, place := range places {
		m.taken(m.byPlace[place], event.Hour+quotaEvery)
	}
	if m.due(event.Hour+2*quotaEvery, false); len(m.byPlace) != 0 || m.waiting != 0 {
		t.Errorf("%d keys are still remembered, and %d wait", len(m.byPlace), m.waiting)
	}
}

// A command ends at once what was said, and what waits gives way; forgetting a key removes the record.
func TestCommandsEndWhatIsLeft(t *testing.T) {
	w := newSimGroup(t, 1, []Rules{{Set: compile(t, "  rules: [{name: a, public: some, quota: true, match: {api: a.x}, limit: 9, per: year, window: calendar, then: {block: until-reset}}]")}})
	uid := "u1"
	o := w.owners[partitionOfUID(uid)]
	last := func() *verdict.Verdict {
		for o.apply(Input, 10) || o.send(0) || o.send(1) || o.acknowledge(0) || o.acknowledge(1) {
		}
		entries := w.verdicts[o.id].entries
		for i := len(entries) - 1; i >= 0; i-- {
			if string(entries[i].key) != "uid=u1|a|left" {
				continue
			}
			if entries[i].value == nil {
				return nil
			}
			v, err := verdict.Parse(entries[i].value)
			if err != nil {
				t.Fatal(err)
			}
			return &v
		}
		t.Fatal("nothing is published")
		return nil
	}
	count := func() {
		w.input[o.id].append(-1, 0, simEntry{value: []byte(`{"uid":"u1","api":"a.x"}`), at: w.now, key: []byte(uid)})
	}
	command := func(name string) {
		w.now += event.Millisecond
		o.must(o.s.Command(&CommandRecord{ID: name, Command: name, Key: "uid=u1", For: event.Hour, Reason: "a test", By: "tester"}, "uid=u1", w.now))
		o.collect()
	}
	count()
	count()
	if v := last(); v.State != verdict.Left || v.Count != event.One || o.s.quotas.Waiting() != 1 {
		t.Errorf("the first one is published, and the second one waits: %+v, %d", v, o.s.quotas.Waiting())
	}
	if command("reset"); o.s.quotas.Waiting() != 0 {
		t.Error("what waits is of before the reset")
	}
	if v := last(); v.Until != v.Since || v.Limit != 0 {
		t.Errorf("after a reset: %+v", v)
	}
	w.now += 2 * event.Second
	count()
	count()
	if v := last(); v.Count != event.One || v.Limit != 9*event.One {
		t.Errorf("counted anew: %+v", v)
	}
	if command("forget"); o.s.quotas.Waiting() != 0 {
		t.Error("what waits is of a key that is forgotten")
	}
	if v := last(); v != nil {
		t.Errorf("of a forgotten key: %+v, want a tombstone", v)
	}
}
