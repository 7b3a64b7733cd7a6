package ask

import (
	"reflect"
	"testing"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

// compile compiles the spec of a rule set.
func compile(t *testing.T, spec string) *rules.Set {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n"+spec))
	if err != nil {
		t.Fatal(err)
	}
	return set
}

// Of two instances each looks at its own keys, and any answers for both.
func TestDistributionOfSeveralInstances(t *testing.T) {
	one, two := api.Distribution{Partitions: []int32{2, 0}}, api.Distribution{Partitions: []int32{1}, Sampled: true}
	set := compile(t, "  rules:\n    - {name: calls, match: {api: a}, limit: 5, per: 1h, then: {block: 1m}}\n")
	of := limitsOf(set, "calls")
	a, b := newLimitCounts(of[0]), newLimitCounts(of[0])
	for _, count := range []event.Decimal{0, 1, 4 * event.One, 5 * event.One, 6 * event.One} {
		a.add(count, 5*event.One, 1)
	}
	b.add(1e6*event.One, 5*event.One, 3)
	b.add(event.MaxDecimal, rules.Unlimited, 2)
	c := newLimitCounts(&rules.Limit{})
	if c.add(1, 0, 1); c.Over != 1 || c.Number == nil || *c.Number != 0 {
		t.Errorf("of a limit of 0: %+v", c)
	}
	a.finish()
	b.finish()
	one.Limits, two.Limits = []api.LimitCounts{a.LimitCounts}, []api.LimitCounts{b.LimitCounts}
	joinDistributions(&one, []api.Distribution{two}, []api.MissingPartition{{Partition: 3, Reason: "it has no owner"}})
	l := one.Limits[0]
	sum := 0
	for i, bucket := range l.Buckets {
		if sum += bucket.Keys; i > 0 && bucket.From != l.Buckets[i-1].To {
			t.Errorf("a gap before %+v", bucket)
		}
	}
	if !reflect.DeepEqual(one.Partitions, []int32{0, 1, 2}) || !one.Sampled || len(one.Missing) != 1 || l.Keys != 9 || sum != 9 || l.Over != 4 || l.Near != 2 || len(l.Buckets) > allBuckets {
		t.Errorf("%+v %+v", one, l)
	}
}

// Buckets are at most forty, equal up to the limit, and each twice as far above it, whatever the limit is.
func TestBucketsOfDistributions(t *testing.T) {
	for number, linear := range map[string]int{"1": 1, "3": 3, "19": 19, "20": 20, "1000": 20, "0.5": 20, "999999999999": 20} {
		set := compile(t, `  rules:
    - {name: r, match: {api: a}, count: {sum: cost}, limit: `+number+`, per: 1h, then: {block: 1m}}
`)
		c := newLimitCounts(limitsOf(set, "r")[0])
		limit, _ := rules.NumberOf(set.Limits[0])
		if len(c.bounds) > allBuckets || c.bounds[linear-1] != limit || c.bounds[linear] != 2*limit {
			t.Errorf("%s: %v", number, c.bounds)
		}
		for i := range c.bounds {
			if i > 0 && c.bounds[i] <= c.bounds[i-1] {
				t.Errorf("%s: %v", number, c.bounds)
			}
		}
	}
}
