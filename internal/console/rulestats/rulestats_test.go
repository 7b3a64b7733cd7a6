package rulestats

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/tallygate/tallygate/api"
)

var start = time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)

// at is a moment, in seconds after start.
func at(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

// member is a program that started then, with one counter.
func member(id string, started int, value float64) Member {
	return Member{ID: id, Started: at(started), Metrics: map[string][]api.Sample{"m": {{Value: value}}}}
}

// Counters begin at 0 with each start of a program, and programs come and go: what is added up is what happened.
func TestTotals(t *testing.T) {
	for name, c := range map[string]struct {
		polls [][]Member // ten seconds apart
		want  float64
	}{
		"what was before is not known":        {[][]Member{{member("a", -100, 500)}}, 0},
		"growth":                              {[][]Member{{member("a", -100, 500)}, {member("a", -100, 507)}, {member("a", -100, 510)}}, 10},
		"two programs":                        {[][]Member{{member("a", -100, 5), member("b", -100, 5)}, {member("a", -100, 6), member("b", -100, 8)}}, 4},
		"a restart counts from 0":             {[][]Member{{member("a", -100, 500)}, {member("a", 5, 7)}}, 7},
		"a restart past the old value":        {[][]Member{{member("a", -100, 5)}, {member("a", 5, 50)}}, 50},
		"a counter that fell has begun again": {[][]Member{{member("a", -100, 500)}, {member("a", -100, 7)}}, 7},
		"an old program that is new here":     {[][]Member{{member("a", -100, 5)}, {member("a", -100, 5), member("b", -100, 900)}, {member("b", -100, 901)}}, 1},
		"a new program":                       {[][]Member{{member("a", -100, 5)}, {member("a", -100, 5), member("b", 3, 9)}}, 9},
		"a program that is away for a poll":   {[][]Member{{member("a", -100, 5)}, {}, {member("a", -100, 8)}}, 3},
		"a program that is gone":              {[][]Member{{member("a", -100, 5)}, {member("a", -100, 8)}, {}, {}}, 3},
	} {
		tr := New(0)
		for i, members := range c.polls {
			tr.Add(at(10*i), members)
		}
		if got := tr.Of("m"); len(got) != 1 || got[0].Total != c.want {
			t.Errorf("%s: %+v, want %v", name, got, c.want)
		}
	}
}

// A rate is over the last half minute, not over all time.
func TestRates(t *testing.T) {
	tr := New(30 * time.Second)
	value := 0.0
	for second := 0; second <= 300; second += 5 {
		tr.Add(at(second), []Member{member("a", -100, value)})
		if second < 200 {
			value += 50 // 10 a second
		}
		got := tr.Of("m")[0].Rate
		switch {
		case second == 0:
			if got != 0 || tr.Span() != 0 {
				t.Errorf("nothing is known after one poll: %v over %v", got, tr.Span())
			}
		case second <= 200:
			if math.Abs(got-10) > 1e-9 {
				t.Fatalf("after %d s: %v", second, got)
			}
		case second >= 235:
			if got != 0 {
				t.Fatalf("after %d s: %v", second, got)
			}
		}
	}
	if tr.Span() < 30*time.Second || tr.Span() > 35*time.Second || len(tr.past) > 9 || !tr.Began().Equal(start) {
		t.Errorf("over %v, %d polls, since %v", tr.Span(), len(tr.past), tr.Began())
	}
}

func labelled(pairs ...any) (out []api.Sample) {
	for i := 0; i < len(pairs); i += 2 {
		labels := map[string]string{}
		list := pairs[i].([]string)
		for j := 0; j < len(list); j += 2 {
			labels[list[j]] = list[j+1]
		}
		out = append(out, api.Sample{Labels: labels, Value: pairs[i+1].(float64)})
	}
	return out
}

func TestRules(t *testing.T) {
	aggregators, enforcers := New(0), New(0)
	for _, n := range []float64{0, 10} { // ten seconds apart, so these are rates of 1
		metrics := map[string][]api.Sample{
			"tallygate_rule_matches_total":      labelled([]string{"rule", "writes/burst"}, 5*n, []string{"rule", "writes/hourly"}, 7*n, []string{"rule", "logins"}, n),
			"tallygate_near_limit_events_total": labelled([]string{"rule", "writes/burst"}, n, []string{"rule", "writes/hourly"}, n),
			"tallygate_overshoot_events_total":  labelled([]string{"rule", "logins", "mode", "enforce"}, 2*n, []string{"rule", "logins/candidate", "mode", "shadow"}, 50*n),
			"tallygate_verdicts_total": labelled([]string{"rule", "logins", "mode", "enforce", "state", "block"}, n,
				[]string{"rule", "logins", "mode", "enforce", "state", "clear"}, 9*n, []string{"rule", "logins/candidate", "mode", "shadow", "state", "block"}, 3*n),
			"tallygate_rule_skips_total": labelled([]string{"rule", "logins", "reason", "absent"}, 4*n),
		}
		aggregators.Add(at(int(n)), []Member{{ID: "a", Started: at(-10), Metrics: metrics}})
		checks := map[string][]api.Sample{
			"tallygate_rule_checks_total":     labelled([]string{"rule", "logins", "action", "block"}, n, []string{"rule", "logins", "action", "log"}, n),
			"tallygate_rule_would_deny_total": labelled([]string{"rule", "logins/candidate"}, 6*n),
		}
		enforcers.Add(at(int(n)), []Member{{ID: "e1", Started: at(-10), Metrics: checks}, {ID: "e2", Started: at(-10), Metrics: checks}})
	}
	now := &World{
		Aggregators: []api.Status{{Aggregator: &api.AggregatorStatus{Rules: api.RulesStatus{Blown: []string{"writes"}}, Partitions: []api.PartitionStatus{{Keys: 60}, {Keys: 40}}}}, {}},
		Enforcers: []api.Status{
			{Metrics: map[string][]api.Sample{"tallygate_rule_blocked_keys": labelled([]string{"rule", "logins"}, 8.0), "tallygate_rule_shadow_keys": labelled([]string{"rule", "logins/candidate"}, 2.0)}},
			{Metrics: map[string][]api.Sample{"tallygate_rule_blocked_keys": labelled([]string{"rule", "logins"}, 5.0)}}, // it is behind
		},
	}
	want := map[string]*Rule{
		"writes": {Name: "writes", Matches: 7, Near: 2, Blown: true},
		"logins": {Name: "logins", Matches: 1, Overshoot: 2, Above: 20, Verdicts: 1, Shadow: 3, Skips: 4, Denials: 2, WouldDeny: 12, Blocked: 8, ShadowNow: 2, Share: 0.1},
	}
	got := Rules(aggregators, enforcers, now)
	if d := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9)); d != "" {
		t.Errorf("(- want)\n%s", d)
	}
	if got := Rules(aggregators, New(0), &World{}); got["logins"].Blocked != -1 || got["logins"].Share != -1 {
		t.Errorf("no enforcer tells: %+v", got["logins"])
	}
}

func TestQuality(t *testing.T) {
	tr := New(0)
	for i, n := range []float64{100, 120} {
		tr.Add(at(10*i), []Member{{ID: "a", Started: at(-10), Metrics: map[string][]api.Sample{
			"tallygate_events_total":                labelled([]string{"result", "counted"}, 10*n, []string{"result", "late"}, 7.0, []string{"result", "no_time"}, 0.0),
			"tallygate_vocabulary_mismatches_total": labelled([]string{"what", "api", "name", "serch"}, n),
		}}})
	}
	got := QualityOf(tr)
	want := Quality{
		Results:    []Rated{{Name: "counted", Rate: 20, Total: 200}, {Name: "late"}},
		Mismatches: []Rated{{Name: "serch", What: "api", Rate: 2, Total: 20}},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(- want)\n%s", d)
	}
}

// Five hundred rules of three aggregators cost little at each poll.
func BenchmarkAdd(b *testing.B) {
	var samples []api.Sample
	for i := range 500 {
		samples = append(samples, api.Sample{Labels: map[string]string{"rule": fmt.Sprint("rule-", i)}, Value: float64(i)})
	}
	metrics := map[string][]api.Sample{}
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		metrics[name] = samples
	}
	tr, n := New(0), 0
	for b.Loop() {
		n++
		tr.Add(at(n), []Member{{ID: "1", Metrics: metrics}, {ID: "2", Metrics: metrics}, {ID: "3", Metrics: metrics}})
	}
}
