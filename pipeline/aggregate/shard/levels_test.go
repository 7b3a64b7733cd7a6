package shard

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog/record"
)

const strictRule = `
  max_lateness: 1h
  rules:
    - {name: daily, match: {api: a, outcome: ok}, limit: 9, per: day, window: calendar, strict: true}
    - {name: loose, match: {api: a}, limit: 99, per: day, window: calendar, then: {block: 1h}}`

// levelRig feeds one shard, and carries out what it asks for.
type levelRig struct {
	t      *testing.T
	s      *Shard
	clock  Clock
	next   int64
	offset int64 // of the changelog
	said   []string
	saying []byte // the changelog's record of it
}

func newLevelRig(t *testing.T) *levelRig {
	t.Helper()
	at := now()
	at -= at % event.Day
	at += 12 * event.Hour
	return &levelRig{t: t, s: New(Config{Of: 1, Topics: simTopics}, Rules{Set: compile(t, strictRule)}), clock: Clock{Local: at, Broker: at}}
}

// count counts an event, as JSON with the fields given.
func (r *levelRig) count(format string, args ...any) {
	r.t.Helper()
	value := fmt.Appendf(nil, `{"api":"a","uid":"u",%s}`, fmt.Sprintf(format, args...))
	rec := &record.Record{Offset: r.next, Timestamp: r.clock.Local.Time().UnixMilli(), Value: value}
	if err := r.s.Record(Input, rec, r.clock); err != nil {
		r.t.Fatal(err)
	}
	r.next++
	if err := r.s.Step(Input, r.next, r.clock); err != nil {
		r.t.Fatal(err)
	}
}

// levels publishes what waits, and returns what is in the verdict topic since the last call.
func (r *levelRig) levels() string {
	r.t.Helper()
	if _, err := r.s.levels.Publish(10); err != nil {
		r.t.Fatal(err)
	}
	for len(r.s.log.out.States)+len(r.s.log.out.Verdicts) > 0 {
		states, verdicts := r.s.log.out.States, r.s.log.out.Verdicts
		r.s.log.out.States, r.s.log.out.Verdicts = nil, nil
		for _, a := range append(states, verdicts...) {
			if string(a.Key) == sayingKey {
				r.saying = a.Value
			}
			if r.offset++; a.Ack != nil {
				r.s.Acked(a.Ack, r.offset, r.clock)
			}
		}
	}
	for _, is := range r.s.log.out.Strict {
		switch l := is.Record.Level; {
		case l == nil && is.Record.Gone == "":
			r.said = append(r.said, fmt.Sprint("version ", is.Record.Version))
		case l == nil:
			r.said = append(r.said, "gone "+is.Record.Gone)
		case len(l.Sections) == 0:
			r.said = append(r.said, fmt.Sprintf("%s nothing, settles %v", l.Key, l.Settles))
		default:
			var sum event.Decimal
			for _, step := range l.Sections[0].Steps {
				sum += step.Amount
			}
			r.said = append(r.said, fmt.Sprintf("%s %v, settles %v, exempt %v", l.Key, sum, l.Settles, l.Exempt > r.clock.Local))
		}
	}
	out := strings.Join(r.said, "; ")
	r.said, r.s.log.out.Strict = nil, nil
	return out
}

func (r *levelRig) want(what, want string) {
	r.t.Helper()
	if got := r.levels(); got != want {
		r.t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// Whatever becomes of an event, its permit is settled, unless it came too late to count. Only what changes
// a level publishes one.
func TestEachPermitIsSettled(t *testing.T) {
	r := newLevelRig(t)
	at := r.clock.Local
	ago := func(d event.Micros) event.Micros { return at - d }
	r.count(`"id":"e1","outcome":"ok","permit":"p1","permit_at":%q`, at)
	r.count(`"id":"e2","outcome":"ok","permit":"p2","permit_at":%q`, at)
	r.want("two events", "uid=u 2, settles [p1 p2], exempt false")
	r.count(`"id":"e3","outcome":"failed","permit":"p3","permit_at":%q`, at)
	r.want("one that does not match", "uid=u 2, settles [p3], exempt false")
	r.count(`"id":"e1","outcome":"ok","permit":"p4","permit_at":%q`, at)
	r.want("a repeat", "uid=u 2, settles [p4], exempt false")
	r.count(`"id":"e5","outcome":"ok","time":%q,"permit":"p5","permit_at":%q`, ago(2*event.Hour), at)
	r.want("one whose own time is too old", "uid=u 3, settles [p5], exempt false")
	r.count(`"id":"e6","outcome":"ok","permit":"p6","permit_at":%q`, ago(2*event.Hour))
	r.want("one whose permit is too old: it counts as lost", "")
	r.count(`"id":"e7","outcome":"ok","permit":"p7","permit_at":%q`, at+2*event.Hour)
	r.want("one whose permit is ahead", "uid=u 4, settles [], exempt false")
	r.count(`"id":"e8","outcome":"failed"`)
	r.want("one without a permit that does not match", "")
	r.count(`"id":"e9","uid":"v","outcome":"failed","permit":"p9","permit_at":{"uid=w":%q}`, at)
	r.want("one of another key", "uid=w nothing, settles [p9]")
	ty := r.s.Tally()
	if ty.Unpermitted[0] != 1 || ty.PermitsAhead != 1 || ty.PermitsTooOld != 1 || ty.TooOld != 1 {
		t.Errorf("unpermitted %v, ahead %d, too old %d, events too old %d, want one each", ty.Unpermitted, ty.PermitsAhead, ty.PermitsTooOld, ty.TooOld)
	}
	for _, e := range r.s.rules.Set.Explain(mustState(t, r.s, "uid=u"), []byte("uid=u"), at, "") {
		if e.Rule == "loose" && e.Count != 6*event.One {
			t.Errorf("other limits count %v, want the 6 events that are neither repeated nor too old", e.Count)
		}
	}
}

func mustState(t *testing.T, s *Shard, key string) []byte {
	t.Helper()
	state, err := s.State([]byte(key))
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A command is done when the level that it made is published, and takes what waits with it.
func TestCommandsPublishLevels(t *testing.T) {
	r := newLevelRig(t)
	command := func(name string) {
		t.Helper()
		c := &CommandRecord{ID: "c", Command: name, Key: "uid=u", For: event.Hour, Reason: "a test", By: "me"}
		if err := r.s.Command(c, c.Key, r.clock.Local); err != nil {
			t.Fatal(err)
		}
	}
	for i, tt := range []struct{ command, want string }{
		{"exempt", "uid=u 1, settles [p0], exempt true"},
		{"unblock", "uid=u 2, settles [p1], exempt true"},
		{"reset", "uid=u nothing, settles [p2]"},
		{"forget", "uid=u nothing, settles [p3]; gone uid=u"},
	} {
		r.count(`"id":"e%d","outcome":"ok","permit":"p%d","permit_at":%q`, i, i, r.clock.Local)
		command(tt.command)
		r.want(tt.command, tt.want)
		if len(r.s.log.out.Done) != i+1 {
			t.Errorf("%s: %d commands are done, want %d", tt.command, len(r.s.log.out.Done), i+1)
		}
	}
}

// A key that has left gets a tombstone, and none does whose level is still to be published.
func TestKeysThatLeaveGetATombstone(t *testing.T) {
	r := newLevelRig(t)
	r.count(`"id":"e1","outcome":"ok","permit":"p1","permit_at":%q`, r.clock.Local)
	r.s.log.broker += 3 * event.Day
	r.clock.Local += 3 * event.Day
	r.s.log.covered = [Sources]int64{1 << 40, 1 << 40}
	sweep := func(want int) {
		t.Helper()
		if n, err := r.s.judge.Sweep(r.clock); err != nil || n != want {
			t.Fatalf("%d keys left, want %d: %v", n, want, err)
		}
	}
	sweep(0)
	r.want("the level", "uid=u 1, settles [p1], exempt false")
	sweep(1)
	r.want("the tombstone", "gone uid=u")
}

// TestManyLevelsThatWait are published in slices, also before a checkpoint: events must not wait for all
// of them.
func TestManyLevelsThatWait(t *testing.T) {
	r := newLevelRig(t)
	const keys = 3 * LevelsAtOnce
	for i := range keys {
		value := fmt.Appendf(nil, `{"api":"a","outcome":"ok","uid":"u%d"}`, i)
		rec := &record.Record{Offset: r.next, Timestamp: r.clock.Local.Time().UnixMilli(), Value: value}
		r.next++
		if err := errors.Join(r.s.Record(Input, rec, r.clock), r.s.Step(Input, r.next, r.clock)); err != nil {
			t.Fatal(err)
		}
	}
	asked := 0
	for slices := 1; ; slices++ {
		cut, err := r.s.BeginCheckpoint()
		n := len(r.s.log.out.States)
		if asked += n; n > LevelsAtOnce {
			t.Fatalf("events wait for %d levels", n)
		}
		r.s.log.out.States = nil
		if errors.Is(err, ErrLevelsWait) && slices < 3 {
			continue
		}
		if cut == nil || err != nil || slices != 3 || asked != keys || r.s.levels.Waiting() {
			t.Fatalf("%v, %v after %d slices with %d levels", cut, err, slices, asked)
		}
		return
	}
}

// A key that waits for long settles many permits: no record of its level becomes too large for the topic.
func TestALevelThatSettlesManyPermits(t *testing.T) {
	for name, key := range map[string]string{"of a key that counts": "uid=u", "of another one": "uid=w"} {
		t.Run(name, func(t *testing.T) {
			r := newLevelRig(t)
			const permits = 2*settlesAtOnce + 200
			for i := range permits {
				r.count(`"permit":"%0120d","permit_at":{%q:%q}`, i, key, r.clock.Local)
			}
			records := strings.Split(r.levels(), "; ")
			settled := map[string]bool{}
			for _, said := range records {
				if !strings.HasPrefix(said, key+" ") || len(said) > settlesAtOnce*121+100 {
					t.Errorf("%d bytes: %.60s", len(said), said)
				}
				list := said[strings.Index(said, "[")+1 : strings.Index(said, "]")]
				for id := range strings.FieldsSeq(list) {
					settled[id] = true
				}
			}
			if len(records) != 3 || len(settled) != permits {
				t.Errorf("%d records settle %d permits of %d", len(records), len(settled), permits)
			}
		})
	}
}
