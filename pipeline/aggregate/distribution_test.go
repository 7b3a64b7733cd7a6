package aggregate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

const distributed = `  rules:
    - {name: calls, match: {api: a}, limit: 5, per: 1h, then: {block: 1m}}
    - name: both
      match: {api: [a, b]}
      limits:
        - {name: hourly, limit: 100, per: 1h}
        - {name: daily, limit: {from: attrs.quota, else: 1000, most: 10000}, per: 24h}
      then: {block: 1m}
`

// distributed asks an instance how counts are distributed.
func (m *member) distributed(t *testing.T, rule string) (is api.Distribution) {
	t.Helper()
	w := httptest.NewRecorder()
	m.ServeDistribution(w, httptest.NewRequest(http.MethodGet, "/v1/rules/distribution?rule="+rule, nil))
	if w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if err := json.Unmarshal(w.Body.Bytes(), &is); err != nil {
		t.Fatal(err)
	}
	return is
}

// The numbers are those of Explain, of all keys.
func TestDistribution(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, distributed))
		const users = 300
		var events []*event.Event
		for u := range users {
			for range u % 9 {
				events = append(events, hit(fmt.Sprint("u", u), "a"))
			}
		}
		events = append(events, hit("other", "b"))
		r.emit(events...)
		eventually(t, "all is counted", func() bool {
			n := 0
			for _, l := range m.distributed(t, "both").Limits {
				n += l.Keys
			}
			return n == 2*(users-34+1) && m.distributed(t, "calls").Limits[0].Over == 33*3
		})
		is := m.distributed(t, "calls")
		want := map[string]int{"1": 34, "2": 34, "3": 33, "4": 33, "5": 33, "10": 99}
		l := is.Limits[0]
		for _, b := range l.Buckets {
			text, _ := b.To.MarshalText()
			if b.Keys != want[string(text)] {
				t.Errorf("up to %s: %d keys", text, b.Keys)
			}
		}
		if len(is.Limits) != 1 || l.Limit != "" || event.Decimal(*l.Number) != 5*event.One || l.Keys != users-34 || l.Near != 33+33 || len(l.Buckets) != 6 || is.Sampled || len(is.Missing) != 0 || len(is.Partitions) != len(m.owned()) {
			t.Errorf("%+v %+v", is, l)
		}
		is = m.distributed(t, "both")
		if len(is.Limits) != 2 || is.Limits[0].Limit != "hourly" || is.Limits[1].Limit != "daily" || is.Limits[1].Number != nil || is.Limits[0].Over+is.Limits[1].Near != 0 {
			t.Errorf("%+v", is)
		}
		if is = m.distributed(t, "both/daily"); len(is.Limits) != 1 || is.Limits[0].Keys != users-34+1 {
			t.Errorf("%+v", is)
		}
	})
}

// Of two instances each looks at its own keys, and any answers for both.
func TestDistributionOfSeveralInstances(t *testing.T) {
	one, two := api.Distribution{Partitions: []int32{2, 0}}, api.Distribution{Partitions: []int32{1}, Sampled: true}
	set := compile(t, distributed)
	of := limitsOf(set, "calls")
	a, b := newLimitCounts(of[0]), newLimitCounts(of[0])
	for _, count := range []event.Decimal{0, 1, 4 * event.One, 5 * event.One, 6 * event.One} {
		a.add(count, 5*event.One, 1)
	}
	b.add(1e6*event.One, 5*event.One, 3)
	b.add(event.MaxDecimal, 0, 2)
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

// More keys than are looked at are estimated from a sample of them.
func TestDistributionOfASample(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, distributed))
		const users = 6000
		var events []*event.Event
		for u := range users {
			events = append(events, hit(fmt.Sprint("u", u), "a"))
		}
		r.emit(events...)
		eventually(t, "all is counted", func() bool { return m.distributed(t, "calls").Limits[0].Keys == users })
		v := m.book.Current()
		of := limitsOf(v.Set, "calls")
		w := walker{version: v, of: of, at: now(), counts: []*limitCounts{newLimitCounts(of[0])}}
		for _, p := range m.owned() {
			if err := w.partition(t.Context(), p, p.Sight().Keys/3); err != nil {
				t.Fatal(err)
			}
		}
		if n := w.counts[0].Keys; !w.sampled || n < users*8/10 || n > users*12/10 {
			t.Errorf("a third of %d keys says that there are %d", users, n)
		}
	})
}
