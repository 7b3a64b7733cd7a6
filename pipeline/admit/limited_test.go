package admit

import (
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

const uploads = `    - name: uploads
      match: {api: upload, outcome: success}
      count: {sum: attrs.bytes}
      limit: 10
      tiers: [{when: 'attrs.plan == "big"', limit: 20}]
      per: 1d
      window: sliding
      strict: {hold: 5m}
`

// owner counts a key's events as its partition's owner does, and publishes its level.
type owner struct {
	r       *rig
	matcher *rules.Matcher
	stepper *rules.Stepper
	state   []byte
	seq     int64
}

func (o *owner) count(e event.Event) {
	o.r.t.Helper()
	e.API, e.UID, e.Cost, e.Time = "upload", "42", event.One, event.FromTime(time.Now())
	works := o.matcher.Match(&e, e.Time)
	if len(works) != 1 {
		o.r.t.Fatalf("%+v means something for %d keys", e, len(works))
	}
	next, _ := o.stepper.Step(nil, o.state, rules.Input{Key: works[0].Key, At: e.Time, Hits: works[0].Hits, Permit: e.Permit.ID, PermitAt: e.Permit.At})
	o.state = next
	is := o.stepper.Level(o.state)
	o.seq++
	level := &protocol.Level{Key: string(works[0].Key), Seq: o.seq, Latest: max(is.Latest, 0)}
	if e.Permit.ID != "" {
		level.Settles = []string{e.Permit.ID}
	}
	for _, one := range is.Limits {
		section := protocol.Section{Name: one.Limit.Hash.String(), Tier: one.Tier}
		for _, step := range one.Steps {
			section.Steps = append(section.Steps, protocol.Step{Until: step.Until, Amount: step.Amount})
		}
		level.Sections = append(level.Sections, section)
	}
	o.r.apply(event.Partition([]byte("42"), rigPartitions), protocol.Record{Level: level})
}

func bytesAttr(n, plan string) []event.Attr {
	attrs := []event.Attr{{Name: "bytes", Value: event.Value{Kind: event.Number, Text: n}}}
	if plan != "" {
		attrs = append(attrs, event.Attr{Name: "plan", Value: event.StringValue(plan)})
	}
	return attrs
}

// What a denial tells adds nothing to a sum, and gives nothing of it back, whatever amount the event has.
func TestADenialUnderASum(t *testing.T) {
	onEach(t, func(t *testing.T, r *rig) {
		r.rules(1, uploads)
		set, err := rules.Compile("rules.yaml", []byte(header+uploads))
		if err != nil {
			t.Fatal(err)
		}
		o := &owner{r: r, matcher: set.NewMatcher(), stepper: set.NewStepper()}
		a := r.admitter()
		ask := func(bytes, plan string) *Permit {
			q := uid("upload", "42")
			q.Attrs = bytesAttr(bytes, plan)
			return r.admit(a, q)
		}
		stands := func(when, plan string, limit, left event.Decimal) {
			t.Helper()
			p := ask("21", plan) // more than any limit: it is told what is left, and takes nothing
			if p.Admitted || p.InDoubt || p.Numbers.Limit != limit*event.One || p.Numbers.Remaining != left*event.One {
				t.Errorf("%s: %+v, want %d left of %d", when, p.Numbers, left, limit)
			}
		}
		limited := func(bytes, plan string) {
			t.Helper()
			o.count(event.Event{Outcome: event.OutcomeLimited, Attrs: bytesAttr(bytes, plan)})
		}
		done := func(p *Permit, bytes, plan string) {
			t.Helper()
			if !p.Admitted || p.InDoubt {
				t.Fatalf("%s bytes: %+v", bytes, p)
			}
			o.count(event.Event{Outcome: "success", Attrs: bytesAttr(bytes, plan), Permit: p.Event})
		}
		done(ask("6", "small"), "6", "small")
		if p := ask("6", "small"); p.Admitted {
			t.Errorf("12 of 10: %+v", p)
		}
		for _, bytes := range []string{"6", "6", "0", "-6", "9000000000"} {
			limited(bytes, "small")
			stands("a denial of "+bytes, "small", 10, 4)
		}
		held := ask("3", "small") // a permit under way is not the denial's
		limited("3", "small")
		stands("a denial beside a permit", "small", 10, 1)
		done(held, "3", "small")
		stands("its event", "small", 10, 1)
		limited("3", "big")
		stands("the larger plan", "", 20, 11)
		done(ask("10", ""), "10", "big")
		stands("the larger plan's sum", "big", 20, 1)
		limited("1", "small")
		stands("the smaller plan", "", 10, 0)
	})
}
