package dev

import (
	"context"
	"fmt"
	"io"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// screen shows verdicts as they fall, as one more enforcer would learn of them, and a summary
// every few seconds.
type screen struct {
	out      io.Writer
	registry *prometheus.Registry
	listen   string // of the decision server

	mu     sync.Mutex
	shown  map[string]shown // what was last shown, by record key
	tried  bool             // the curl line has been printed
	note   string           // what the traffic has to say in the next summary
	counts map[string]float64
}

type shown struct {
	seq   int64
	state verdict.State
	since event.Micros
}

const summaryEvery = 5 * time.Second

// Replace is called with each snapshot of the blocklist.
func (s *screen) Replace(shard int, all []verdict.Verdict) { s.Apply(shard, all) }

// Apply shows verdicts that fall.
func (s *screen) Apply(_ int, changes []verdict.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		v := &changes[i]
		key := string(verdict.AppendRecordKey(nil, v))
		last, ok := s.shown[key]
		s.shown[key] = shown{v.Seq, v.State, v.Since}
		if ok && (last.seq >= v.Seq || last.state == v.State && last.since == v.Since) {
			continue // seen, or a block whose end has moved
		}
		s.show(v)
	}
}

// Remove and Heartbeat are nothing to look at.
func (*screen) Remove(int, []byte)          {}
func (*screen) Heartbeat(int, event.Micros) {}

func (s *screen) show(v *verdict.Verdict) {
	key := make([]string, len(v.Key))
	for i, d := range v.Key {
		key[i] = d.Name + "=" + d.Value
	}
	what := v.State.String()
	if v.Mode == verdict.Shadow {
		what = "shadow " + what
	}
	fmt.Fprintf(s.out, "%s  %-12s  %-28s %-16s %s of %s, until %s\n", time.Now().Format("15:04:05"), what,
		strings.Join(key, " "), v.Rule, v.Count, v.Limit, v.Until.Time().Local().Format("15:04:05"))
	if s.tried || v.State != verdict.Block || v.Mode != verdict.Enforce || len(v.Key) != 1 || v.Key[0].Name != "uid" || len(v.APIs) == 0 {
		return
	}
	s.tried = true
	api := strings.TrimSuffix(strings.ReplaceAll(v.APIs[0], "*", "x"), ".")
	fmt.Fprintf(s.out, "          try it: curl -i http://%s/v1/forward-auth -H 'X-Tallygate-Uid: %s' -H 'X-Tallygate-Api: %s'\n",
		s.listen, v.Key[0].Value, api)
	fmt.Fprintf(s.out, "          and why: tallygate explain uid=%s\n", url.QueryEscape(v.Key[0].Value))
}

func (s *screen) say(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = note
}

func (s *screen) summaries(ctx context.Context) error {
	tick := time.NewTicker(summaryEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			s.summary()
		case <-ctx.Done():
			return nil
		}
	}
}

func (s *screen) summary() {
	is := s.gather()
	s.mu.Lock()
	defer s.mu.Unlock()
	rate := (is["tallygate_rule_matches_total"] - s.counts["tallygate_rule_matches_total"]) / summaryEvery.Seconds()
	fmt.Fprintf(s.out, "%s  -- %.0f events counted, %.0f keys, %.0f verdicts, %.0f in force, blocklist %.0f ms behind, %.0f counts/s%s\n",
		time.Now().Format("15:04:05"), is["tallygate_events_total"], is["tallygate_state_keys"], is["tallygate_verdicts_total"],
		is["tallygate_blocklist_entries"], 1000*is["tallygate_blocklist_staleness_seconds"], rate, s.note)
	s.counts = is
}

// gather sums every metric over its labels; of the events, those that were counted.
func (s *screen) gather() map[string]float64 {
	sums := map[string]float64{}
	families, _ := s.registry.Gather() // what can't be gathered is not shown
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tallygate_events_total" && m.GetLabel()[0].GetValue() != "counted" {
				continue
			}
			sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sums
}
