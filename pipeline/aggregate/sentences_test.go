package aggregate

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
)

const addresses = `
  rules:
    - name: by-ip
      key: ip
      match: {api: "*"}
      limit: 1
      per: year
      window: calendar
      then: {block: until-reset}
`

// Events wait in their topic before they are forwarded. Their verdicts use the time of arrival, not
// of forwarding.
func TestForwardsKeepTheirBrokerTime(t *testing.T) {
	inMemoryShows(t, "what is forwarded keeps its first broker time", func(t *testing.T, r *rig) {
		set := compile(t, addresses)
		m := r.start(set)
		r.ready(m) // the topics are there
		m.end(t)
		const n = 20
		for i := range n {
			e := hit("", "a")
			e.IP = ipOf(i)
			r.emitTo(r.names.Events, int32(i%rigPartitions), string(event.AppendJSON(nil, e)))
		}
		came := map[string]event.Micros{} // each event's broker time, by partition and offset
		for p := range int32(rigPartitions) {
			for _, rec := range r.records(r.names.Events, p) {
				came[place(p, rec.Offset)] = event.FromTime(rec.Timestamp)
			}
		}
		r.begin(set)
		eventually(t, "every address has its verdict", func() bool { return len(r.verdicts()) == n })
		forwarded := 0
		for p := range int32(rigPartitions) {
			for _, rec := range r.records(r.names.Loop, p) {
				if len(rec.Value) > 0 {
					forwarded++
				}
			}
		}
		if forwarded == 0 {
			t.Error("nothing was forwarded")
		}
		for _, v := range r.verdicts() {
			if want := came[place(v.Cause.Partition, v.Cause.Offset)]; v.Since != want {
				t.Errorf("the verdict on %s is since %v, its event came at %v", v.KeyText(), v.Since, want)
			}
		}
	})
}

func place(partition int32, offset int64) string { return fmt.Sprintf("%d@%d", partition, offset) }

const skipping = `
  rules:
    - name: costly
      match: {api: fraction}
      limit: 9
      per: 1m
      window: tumbling
      then: {block: 1m}
    - name: predicate
      match: {api: predicate}
      when: attrs.n > 3
      limit: 9
      per: 1m
      then: {block: 1m}
    - name: orders
      match: {api: buy}
      refunds: true
      limit: 9
      per: 1s
      window: tumbling
      then: {block: until-reset}
`

// Events that count nowhere appear in a metric, with the reason and the rule.
func TestWhatCountsNowhereIsInAMetric(t *testing.T) {
	inMemory(t, func(t *testing.T, r *rig) {
		m := r.begin(compile(t, skipping))
		p := event.Partition([]byte("u1"), rigPartitions)
		r.emitTo(r.names.Events, p, `{"uid":"u1","api":"fraction","cost":0.5}`, `{"uid":"u1","api":"predicate","attrs":{"n":"x"}}`,
			`{"uid":"u1","api":"return","cost":-1,"refunds":"nosuch"}`)
		old := hit("u1", "buy")
		old.Time = now() - 2*event.Hour
		r.emit(old)
		late := hit("u1", "buy")
		late.Time = now() - 10*event.Minute
		r.emit(hit("u1", "buy"), late)
		r.emitTo(r.names.Events, p, `{"uid":"u1","api":"buy","cost":-1}`)
		eventually(t, "all is read", func() bool { return r.letters() == 1 && r.count("u1", "orders", m) >= 0 })
		for sentence, tt := range map[string][]string{
			"a predicate that fails does not match, and is counted in a metric with the rule's name":                   {"tallygate_rule_skips_total", "when_failed", "predicate"},
			"an event whose weight × cost is a fraction does not match (metric)":                                       {"tallygate_rule_skips_total", "fraction", "costly"},
			"An unknown name does nothing, and is counted in a metric":                                                 {"tallygate_events_total", "unknown_refund"},
			"An event older than max_lateness (1 h) before its broker time is counted in a metric, in no window":       {"tallygate_events_total", "too_old"},
			"Later than that an event is counted as late, and nowhere else":                                            {"tallygate_events_total", "late"},
			"A negative cost without a name is not an event: it is a dead letter, and counted in a metric with others": {"tallygate_events_total", "dead_letter"},
		} {
			eventually(t, sentence, func() bool { return m.labelled(t, tt[0], tt[1:]...) == 1 })
		}
	})
}

// labelled returns the value of a counter that has all these label values, in any order; 0 if there
// is none.
func (m *member) labelled(t *testing.T, name string, values ...string) float64 {
	t.Helper()
	families, err := m.cfg.Registry.(*prometheus.Registry).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			has := 0
			for _, l := range x.GetLabel() {
				for _, v := range values {
					if l.GetValue() == v {
						has++
					}
				}
			}
			if f.GetName() == name && has == len(values) {
				return x.GetCounter().GetValue()
			}
		}
	}
	return 0
}
