package rules

import (
	"testing"

	"github.com/tallygate/tallygate/event"
)

// FuzzCheckExtras: whatever passes the checks can be stepped, judged again, commanded and explained, also
// with all that a section may have besides its window.
func FuzzCheckExtras(f *testing.F) {
	set := compiled(f, bookRules)
	matcher, p := set.NewMatcher(), set.NewStepper()
	p.After(compiled(f, bookRules))
	for i := range p.changed {
		p.changed[i] = true
	}
	key := []byte("uid=u1")
	var state []byte
	for i := range 30 {
		e := &event.Event{API: "x", UID: "u1", ID: string(rune('a' + i%26)), Time: noon + event.Micros(i)*event.Second, Cost: event.One}
		e.Attrs = []event.Attr{{Name: "device", Value: event.Value{Text: e.ID}}, {Name: "plan", Value: event.Value{Text: []string{"pro", "own", "none"}[i%3]}}}
		state, _ = p.Step(nil, state, Input{Key: key, Hits: matcher.Match(e, e.Time)[0].Hits, At: e.Time, ID: e.ID})
		f.Add(state)
	}
	state, _ = p.Command(nil, state, key, Command{Kind: CommandBlock, At: noon, Until: noon + event.Hour})
	state, _ = p.Command(nil, state, key, Command{Kind: CommandExempt, Rule: "tiers", At: noon, Until: noon + event.Hour})
	f.Add(state)
	f.Fuzz(func(t *testing.T, data []byte) {
		if set.Check(data) != nil {
			return
		}
		good := func(what string, next []byte) {
			if err := set.Check(next); err != nil {
				t.Fatalf("%s made a bad state of a good one: %v", what, err)
			}
		}
		set.Explain(data, key, noon+event.Minute, "")
		for _, e := range []*event.Event{
			{API: "x", UID: "u1", Cost: event.One, ID: "new", Time: noon + event.Minute},
			{API: "x", UID: "u1", Cost: -event.One, Refunds: "e", Time: noon + 20*event.Second},
			{API: "x", UID: "u1", Cost: event.One, Time: noon + 3*event.Day, Attrs: []event.Attr{{Name: "device", Value: event.Value{Text: "d"}}}},
		} {
			next, _ := p.Step(nil, data, Input{Key: key, Hits: matcher.Match(e, e.Time)[0].Hits, At: e.Time, ID: e.ID})
			good("a step", next)
		}
		next, _ := p.Rejudge(nil, data, key, noon+event.Minute)
		good("judging again", next)
		for kind := CommandBlock; kind <= CommandForget; kind++ {
			next, _ = p.Command(nil, data, key, Command{Kind: kind, At: noon + event.Minute, Until: noon + event.Hour})
			good("a command", next)
		}
	})
}
