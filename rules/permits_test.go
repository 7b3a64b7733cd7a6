package rules

import (
	"fmt"
	"slices"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

const permitRules = header + `  rules:
    - {name: daily, match: {api: sms.send, outcome: success}, limit: 100, per: day, window: calendar, strict: true}
    - {name: loose, match: {api: sms.send}, limit: 100, per: day, window: calendar, then: {block: 1h}}
    - {name: bucket, match: {api: sms.send}, window: bucket, limit: 10, per: 1s, burst: 20, strict: true}
    - {name: at-once, key: [ip], match: {api: sms.send}, window: in-flight, limit: 3, strict: true}
    - {name: tried, key: attrs.item, match: {api: sms.send}, limit: 3, per: 1h, strict: true, mode: shadow}
`

// An action that straddles midnight belongs to the day that admitted it, under strict limits only.
func TestStrictLimitsCountAtThePermitsTime(t *testing.T) {
	set := compiled(t, permitRules)
	p := set.NewStepper()
	midnight := noon - noon%event.Day + event.Day
	hits := []Hit{{Limit: set.Limits[0], Amount: event.One}, {Limit: set.Limits[1], Amount: event.One}}
	in := Input{Key: []byte("uid=42"), Hits: hits, At: midnight + event.Second, ID: "e1", Permit: "p1", PermitAt: midnight - event.Second}
	state, res := p.Step(nil, nil, in)
	if res.Repeat || res.Late > 0 {
		t.Fatalf("the first event: %+v", res)
	}
	counts := func(at event.Micros) string {
		text := ""
		for _, l := range []*Limit{set.Limits[0], set.Limits[1]} {
			text += fmt.Sprint(l.Window.CountAt(slices.Clone(windowOf(t, p, state, l)), at), " ")
		}
		return text
	}
	if got := counts(midnight - event.Second); got != "1 1 " {
		t.Errorf("before midnight %s", got)
	}
	if got := counts(midnight + event.Second); got != "0 1 " {
		t.Errorf("behind midnight the strict limit and the other one count %s, want 0 1", got)
	}
	for name, again := range map[string]Input{
		"its id":             {At: in.At, ID: "e1"},
		"its permit":         {At: in.At, ID: "e2", Permit: "p1", PermitAt: in.PermitAt},
		"its permit as id":   {At: in.At, ID: "p1"},
		"its id as a permit": {At: in.At, Permit: "e1", PermitAt: in.PermitAt},
	} {
		again.Key, again.Hits = in.Key, hits
		if _, res := p.Step(nil, state, again); !res.Repeat {
			t.Errorf("an event with %s is no repeat", name)
		}
	}
	if _, res := p.Step(nil, state, Input{Key: in.Key, Hits: hits, At: in.At, ID: "e3", Permit: "p3", PermitAt: in.PermitAt}); res.Repeat {
		t.Error("another event with another permit is a repeat")
	}
}

func windowOf(t *testing.T, p *Stepper, state []byte, l *Limit) []byte {
	t.Helper()
	key := p.read(state)
	_, window, ok := p.find(&key, l).Parts()
	if !ok {
		t.Fatalf("%s has no section", l.Name)
	}
	return window
}

// The event of a permit that was counted as lost counts once more nowhere, and everywhere else once.
func TestAnEventBehindItsLostPermitCountsUnderOtherLimits(t *testing.T) {
	set := compiled(t, permitRules)
	p := set.NewStepper()
	strict, loose := Hit{Limit: set.Limits[0], Amount: event.One}, Hit{Limit: set.Limits[1], Amount: event.One}
	lost := Input{Key: []byte("uid=42"), At: noon, Permit: "p1", PermitAt: noon, Lost: true, Hits: []Hit{strict}}
	own := Input{Key: lost.Key, At: noon + event.Minute, ID: "e1", Permit: "p1", PermitAt: noon, Hits: []Hit{strict, loose}}
	nameless := own
	nameless.ID = ""
	for name, order := range map[string][]Input{
		"lost, then its event":                   {lost, own},
		"lost twice, then its event twice":       {lost, lost, own, own},
		"its event, then lost":                   {own, lost},
		"lost, then its event without an id":     {lost, nameless, nameless, lost},
		"lost, then its event, then lost":        {lost, own, lost},
		"lost, then its event, which is refused": {lost, {Key: lost.Key, At: own.At, Permit: "p1"}, lost, {Key: lost.Key, At: own.At, Hits: []Hit{loose}}},
	} {
		var state []byte
		for _, in := range order {
			state, _ = p.Step(nil, state, in)
		}
		for _, l := range []*Limit{set.Limits[0], set.Limits[1]} {
			if got := l.Window.CountAt(windowOf(t, p, state, l), own.At); got != event.One {
				t.Errorf("%s: %s has %v, want 1", name, l.Name, got)
			}
		}
	}
	if len(own.Hits) != 2 || !own.Hits[0].Limit.Strict {
		t.Error("the caller's hits are changed")
	}
}

// A permit of an event that counts nothing is remembered, so that it is not counted as lost later.
func TestAPermitIsRememberedWithoutACount(t *testing.T) {
	set := compiled(t, permitRules)
	p := set.NewStepper()
	state, _ := p.Step(nil, nil, Input{Key: []byte("uid=42"), At: noon, Permit: "p1"})
	if err := CheckState(state); err != nil {
		t.Fatal(err)
	}
	lost := Input{Key: []byte("uid=42"), At: noon, Permit: "p1", PermitAt: noon, Lost: true, Hits: []Hit{{Limit: set.Limits[0], Amount: event.One}}}
	if _, res := p.Step(nil, state, lost); !res.Repeat {
		t.Error("the permit counts once more")
	}
}

func TestLevel(t *testing.T) {
	set := compiled(t, permitRules)
	p := set.NewStepper()
	if level := p.Level(nil); level.Latest != event.NoTime || len(level.Limits) > 0 {
		t.Errorf("of an empty state: %+v", level)
	}
	hits := unitHits(set.Limits[:3]...)
	hits[2].Amount = 3 * event.One
	state, _ := p.Step(nil, nil, Input{Key: []byte("uid=42"), Hits: hits, At: noon, Permit: "p1", PermitAt: noon + event.Minute})
	level := p.Level(state)
	if level.Latest != noon+event.Minute || len(level.Limits) != 2 {
		t.Fatalf("level %+v", level)
	}
	daily, bucket := level.Limits[0], level.Limits[1]
	end := noon - noon%event.Day + event.Day
	if daily.Limit != set.Limits[0] || len(daily.Steps) != 1 || daily.Steps[0].Until != end || daily.Steps[0].Amount != event.One {
		t.Errorf("of the day: %+v", daily)
	}
	if bucket.Limit != set.Limits[2] || bucket.Level != 3*event.One || bucket.Steps != nil {
		t.Errorf("of the bucket: %+v", bucket)
	}
	// Later, what has drained by then is not in it.
	state, _ = p.Step(nil, state, Input{Key: []byte("uid=42"), Hits: hits[1:2], At: noon + event.Minute + 100*event.Millisecond})
	if level = p.Level(state); level.Limits[1].Level != 2*event.One {
		t.Errorf("100 ms later the bucket has %v", level.Limits[1].Level)
	}
}

func TestPermitKeys(t *testing.T) {
	set := compiled(t, permitRules)
	p := set.NewPermits()
	describe := func(e event.Event, broker event.Micros) string {
		keys, ahead := p.Keys(&e, broker)
		text := ""
		for _, k := range keys {
			text += fmt.Sprintf("%s at %d", k.Key, (k.At-noon)/event.Second)
			if k.TooLate {
				text += " too late"
			}
			text += ", "
		}
		return text + fmt.Sprint(ahead)
	}
	plain := event.Event{API: "sms.send", UID: "42", Outcome: "failed", Attrs: []event.Attr{{Name: "item", Value: event.StringValue("x")}}}
	with := func(p event.Permit) event.Event {
		e := plain
		e.Permit = p
		return e
	}
	uid := event.Murmur2("42")
	named := event.Permit{ID: "p", At: event.NoTime, Keys: []event.PermitKey{{Key: "attrs.item=x&uid=42", At: noon}, {Key: "ip=10.0.0.1", At: noon + event.Second}, {Key: "uid=%34", At: noon}, {Key: "=", At: noon}}}
	for name, tt := range map[string]struct {
		e      event.Event
		broker event.Micros
		want   string
	}{
		"no permit":    {plain, noon, "false"},
		"failed":       {with(event.Permit{ID: "p", At: noon}), noon, "uid=42 at 0, false"},
		"no time":      {with(event.Permit{ID: "p", At: event.NoTime}), noon, "true"},
		"ahead":        {with(event.Permit{ID: "p", At: noon + event.Hour + 1}), noon, "true"},
		"an hour":      {with(event.Permit{ID: "p", At: noon + event.Hour}), noon, "uid=42 at 3600, false"},
		"late":         {with(event.Permit{ID: "p", At: noon - set.MaxLateness - 1}), noon, fmt.Sprintf("uid=42 at %d too late, false", (-set.MaxLateness-1)/event.Second)},
		"no broker":    {with(event.Permit{ID: "p", At: noon + event.Day}), event.NoTime, "uid=42 at 86400, false"},
		"named keys":   {with(named), noon, "attrs.item=x&uid=42 at 0, ip=10.0.0.1 at 1, false"},
		"no such api":  {event.Event{API: "b", UID: "42", Permit: event.Permit{ID: "p", At: noon}}, noon, "false"},
		"no dimension": {event.Event{API: "sms.send", Permit: event.Permit{ID: "p", At: noon}}, noon, "false"},
	} {
		if got := describe(tt.e, tt.broker); got != tt.want {
			t.Errorf("%s: %s, want %s", name, got, tt.want)
		}
	}
	e := with(named)
	if keys, _ := p.Keys(&e, noon); keys[0].Hash != uid || keys[1].Hash != event.Murmur2("ip=10.0.0.1") {
		t.Error("the keys belong to other partitions")
	}
	if fiveLimits(t).NewPermits() != nil {
		t.Error("rules without strict ones have a Permits")
	}
}

func TestExemptFromAllStrictLimits(t *testing.T) {
	set := compiled(t, permitRules)
	key := []event.Dim{{Name: "uid", Value: "42"}}
	state := []byte(nil)
	p := set.NewStepper()
	exempt := func(rule string, until event.Micros) {
		state, _ = p.Command(nil, state, []byte("uid=42"), Command{Kind: CommandExempt, Rule: rule, At: noon, Until: until})
	}
	exempt("daily", noon+event.Hour)
	if until := set.ExemptFrom(key, ExemptionsOf(state)); until != event.NoTime {
		t.Errorf("from one of two: until %v", until)
	}
	exempt("bucket", noon+event.Minute)
	if until := set.ExemptFrom(key, ExemptionsOf(state)); until != noon+event.Minute {
		t.Errorf("from both: until %v", until)
	}
	if !set.StrictFor(key) || set.StrictFor([]event.Dim{{Name: "attrs.item", Value: "x"}}) {
		t.Error("a key of no strict limit has some, or the other way round")
	}
}

// TestAStrictBucketsLateEventsAreNoExcess: two bursts were granted, each from an empty bucket, and the
// first one's events come behind the second's. The bucket counts them in full, so that its level is above
// the burst, but nothing was let in that should not have been.
func TestAStrictBucketsLateEventsAreNoExcess(t *testing.T) {
	for _, at := range []string{"exceeded", "reached"} {
		set := compiled(t, header+"  rules: [{name: r, match: {api: x}, window: bucket, limit: 60, per: 1m, burst: 10, strict: true, then: {block: 1h, at: "+at+"}}]")
		p, now := set.NewStepper(), event.Micros(1_790_000_000)*event.Second
		var state []byte
		issued, events := 0, 0
		count := func(n int, at event.Micros, permit bool) {
			for range n {
				events++
				in := Input{Key: []byte("uid=42"), At: at, ID: fmt.Sprint("e", events), Hits: []Hit{{Limit: set.Limits[0], Amount: event.One}}}
				if permit {
					in.Permit, in.PermitAt = fmt.Sprint("p", events), at
				}
				var res Result
				state, res = p.Step(nil, state, in)
				for i := range res.Changes {
					if res.Changes[i].State == verdict.Block {
						issued++
					}
				}
			}
		}
		count(8, now+8*event.Second, true) // the second burst
		count(8, now, true)                // the first one
		count(1, now+9*event.Second, true) // granted before these came
		if issued > 0 {
			t.Errorf("%s: %d verdicts", at, issued)
		}
		if level := p.Level(state).Limits[0].Level; level != 16*event.One {
			t.Errorf("the level is %v: no grant may rely on less", level)
		}
		issued = 0
		count(1, now+9*event.Second, false)
		if issued != 1 {
			t.Errorf("%s: %d verdicts by an event without a permit, want 1", at, issued)
		}
	}
}
