package rules

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/keystate"
	"github.com/tallygate/tallygate/verdict"
)

const hotBucket = `
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: hot}
spec: {rules: [{name: hot, match: {api: x}, window: bucket, limit: 60, per: 1m, then: {block: until-reset}}]}
`

// A flood of a minute moves a block's end no more often than there are grains in it, whatever its rate;
// the debt is one burst; and no block ends early, nor an eighth later than it should.
func TestAFloodOfABucketMovesItsEndOnceAGrain(t *testing.T) {
	set := compiled(t, hotBucket)
	l := set.Limits[0]
	for _, rate := range []event.Micros{10, 100, 1000} {
		p, state := set.NewStepper(), []byte(nil)
		published, until, last := 0, event.NoTime, event.NoTime
		for at := noon; at < noon+event.Minute; at += event.Second / rate {
			next, res := p.Step(nil, state, Input{Key: []byte("uid=1"), At: at, Hits: unitHits(l)})
			state, last = next, at
			for _, v := range res.Changes {
				published, until = published+1, v.Until
			}
			if exact := l.Window.Below(sectionOf(t, set, state), l.threshold()); published > 0 && until < exact {
				t.Fatalf("%d a second, at %v: blocked until %v, which is before %v", rate, at-noon, until, exact)
			}
		}
		if published > 60 || until > last+65*event.Second {
			t.Errorf("%d a second: %d publications, blocked for %v", rate, published, (until - last).Duration())
		}
	}
}

// Whatever a bucket's rule and events are, what is published never ends before there is a token, nor
// after an eighth of that and a grain.
func TestABucketsEndIsNeverEarly(t *testing.T) {
	set := compiled(t, hotBucket)
	rapid.Check(t, func(t *rapid.T) {
		l := set.Limits[0]
		l.Burst = event.Decimal(rapid.IntRange(1, 200).Draw(t, "burst")) * event.One
		l.Debt = event.Decimal(rapid.IntRange(0, 3_000_000).Draw(t, "debt"))
		l.bound()
		set.finish()
		p, state, at := set.NewStepper(), []byte(nil), noon
		var block verdict.Verdict
		for range rapid.IntRange(1, 60).Draw(t, "events") {
			at += event.Micros(rapid.SampledFrom([]int{0, 0, 1, 1000, 500_000, 1_000_000, 7_000_001}).Draw(t, "step"))
			hits := unitHits(l)
			hits[0].Amount *= event.Decimal(rapid.SampledFrom([]int{1, 1, 2, 30, 1000}).Draw(t, "cost"))
			next, res := p.Step(nil, state, Input{Key: []byte("uid=1"), At: at, Hits: hits})
			state = next
			for _, v := range res.Changes {
				block = v
			}
			if block.State != verdict.Block || at >= block.Until {
				continue
			}
			window := sectionOf(t, set, state)
			exact := l.Window.Below(window, l.threshold())
			if late := (exact-at)/8 + l.Grain; block.Until < exact || len(res.Changes) > 0 && block.Until > exact+late {
				t.Fatalf("at %v: until %v, exactly %v", at, block.Until, exact)
			}
			if level := l.Window.Count(window); level > l.Window.Most {
				t.Fatalf("a level of %v, and at most %v", level, l.Window.Most)
			}
		}
	})
}

func sectionOf(t tester, set *Set, state []byte) []byte {
	k, err := keystate.Read(state)
	if err != nil {
		t.Fatalf("%v", err)
	}
	_, window, ok := set.NewStepper().find(&k, set.Limits[0]).Parts()
	if !ok {
		t.Fatalf("no section")
	}
	return window
}
