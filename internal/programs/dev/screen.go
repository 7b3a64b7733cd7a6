package dev

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/verdict"
)

// screen shows verdicts as they are issued, as another enforcer would receive them, and a summary
// every few seconds.
type screen struct {
	out       io.Writer
	json      bool // each line is an object
	registry  *prometheus.Registry
	decisions string // the decision server's address
	api       string // the aggregator's

	notes notes

	mu    sync.Mutex
	shown map[string]shown // the latest of each record key
	tried bool             // the curl line has been printed
	last  map[string]float64
}

// shown is the part of a verdict that matters after it was shown.
type shown struct {
	seq          int64
	state        verdict.State
	mode         verdict.Mode
	since, until event.Micros
}

const (
	summaryEvery = 5 * time.Second
	rulesEvery   = 250 * time.Millisecond // how often it looks whether rules have changed

	// staleAfter is the staleness from which on the summary mentions it: heartbeats alone cause one
	// second.
	staleAfter = 5 * time.Second

	clockTime = "15:04:05"
	maxShown  = 256 // characters of what events and rules name
)

func newScreen(out io.Writer, registry *prometheus.Registry, decisions, api string) *screen {
	return &screen{out: out, registry: registry, decisions: decisions, api: api,
		shown: map[string]shown{}, last: map[string]float64{}}
}

// Replace is called with each snapshot of the blocklist, which also has verdicts that have ended.
func (s *screen) Replace(_ int, all []verdict.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range all {
		if v := &all[i]; s.isNew(v) && v.State == verdict.Block && v.Until > now() {
			s.show(v)
		}
	}
}

// Apply shows new verdicts.
func (s *screen) Apply(_ int, changes []verdict.Verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range changes {
		if v := &changes[i]; v.State != verdict.Left && s.isNew(v) {
			s.show(v)
		}
	}
}

// Remove and Heartbeat show nothing.
func (*screen) Remove(int, []byte)          {}
func (*screen) Heartbeat(int, event.Micros) {}

// isNew notes a verdict, and reports whether it is new and not just one whose end has moved.
func (s *screen) isNew(v *verdict.Verdict) bool {
	key := string(verdict.AppendRecordKey(nil, v))
	last, ok := s.shown[key]
	if ok && last.seq >= v.Seq {
		return false
	}
	s.shown[key] = shown{v.Seq, v.State, v.Mode, v.Since, v.Until}
	return !ok || last.state != v.State || last.since != v.Since
}

func (s *screen) show(v *verdict.Verdict) {
	if s.json {
		s.showJSON(v)
		return
	}
	key := make([]string, len(v.Key))
	for i, d := range v.Key {
		key[i] = d.Name + "=" + d.Value
	}
	what := v.State.String()
	if v.Mode == verdict.Shadow {
		what = "shadow " + what
	}
	fmt.Fprintf(s.out, "%s  %-12s  %-28s %-16s %s of %s, until %s\n", time.Now().Format(clockTime), what,
		words.Cell(strings.Join(key, " "), maxShown), words.Cell(v.Rule, maxShown), v.Count, v.Limit, v.Until.Time().Local().Format(clockTime))
	if !s.tried && v.Decides() {
		s.tryIt(v)
	}
}

// plain matches texts that need no quotes in a shell.
var plain = regexp.MustCompile(`^[A-Za-z0-9._:@-]+$`)

// tryIt prints how to see the block from outside, if one line can.
func (s *screen) tryIt(v *verdict.Verdict) {
	if len(v.Key) != 1 || v.Key[0].Name != "uid" || !plain.MatchString(v.Key[0].Value) || len(v.APIs) == 0 {
		return
	}
	s.tried = true
	uid, api := v.Key[0].Value, strings.ReplaceAll(v.APIs[0], "*", "x")
	fmt.Fprintf(s.out, "          try it:  curl -i http://%s/v1/forward-auth -H 'X-Tallygate-Uid: %s' -H 'X-Tallygate-Api: %s'\n", s.decisions, uid, api)
	fmt.Fprintf(s.out, "          and why: tallygate explain uid=%s --aggregator %s\n", uid, s.api)
}

// permits shows what a customer got who wanted more at once than there is.
func (s *screen) permits(uid string, admitted, denied int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json {
		s.write(permitsLine{lineOf("permits"), uid, rushRule, admitted, denied})
		return
	}
	fmt.Fprintf(s.out, "%s  %-12s  %-28s %-16s %d asked at once: %d admitted, %d denied before the action\n", time.Now().Format(clockTime), "permits",
		words.Cell("uid="+uid, maxShown), rushRule, admitted+denied, admitted, denied)
}

// tryStrict prints how to meet a strict rule from outside.
func (s *screen) tryStrict(url, body string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json {
		return
	}
	fmt.Fprintf(s.out, "          try it:  for i in 1 2 3 4; do curl -s %s -H 'Content-Type: application/json' -d '%s'; echo; done\n", url, body)
}

// say prints a line about something other than a verdict.
func (s *screen) say(note string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.json {
		s.write(noteLine{lineOf("note"), note})
		return
	}
	fmt.Fprintf(s.out, "%s  -- %s\n", time.Now().Format(clockTime), words.Lines(note))
}

func (s *screen) summaries(ctx context.Context) error {
	tick, look := time.NewTicker(summaryEvery), time.NewTicker(rulesEvery)
	defer tick.Stop()
	defer look.Stop()
	for {
		select {
		case <-look.C: // who has saved the file waits for it
			for _, line := range s.notes.ofRules(s.registry) {
				s.say(line)
			}
		case <-tick.C:
			s.summarise(now())
			for _, line := range s.notes.lines(ctx, s.registry) {
				s.say(line)
			}
		case <-ctx.Done():
			return nil
		}
	}
}

// summary counts since the last one.
type summary struct {
	Events    float64 `json:"events"` // all so far that were counted
	PerSecond float64 `json:"events_per_second"`
	Keys      float64 `json:"keys"`
	InForce   int     `json:"in_force"`
	Verdict   float64 `json:"verdict_latency_ms,omitempty"` // from the event to the verdict; 0: there was none
	Denied    float64 `json:"denied_after_ms,omitempty"`    // from the event until it was enforced
	Behind    float64 `json:"behind_seconds"`               // how far the blocklist is behind
}

// String describes it for people.
func (y *summary) String() string {
	text := fmt.Sprintf("%.0f events (%.0f/s), %.0f keys, %d in force", y.Events, y.PerSecond, y.Keys, y.InForce)
	if y.Verdict > 0 {
		text += fmt.Sprintf("; verdict latency %.1f ms", y.Verdict)
	}
	if y.Denied > 0 {
		text += fmt.Sprintf("; denied after %.1f ms", y.Denied)
	}
	if y.Behind > staleAfter.Seconds() {
		text += fmt.Sprintf("; the blocklist is %.0f s behind", y.Behind)
	}
	return text
}

// summarise tells of a summary.
func (s *screen) summarise(at event.Micros) {
	y := s.summary(at)
	if !s.json {
		s.say(y.String())
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.write(summaryLine{lineOf("summary"), y})
}

// summary makes one.
func (s *screen) summary(at event.Micros) summary {
	is := s.gather()
	s.mu.Lock()
	defer s.mu.Unlock()
	since := func(name string) float64 { return is[name] - s.last[name] }
	y := summary{
		Events: is["tallygate_events_total"], PerSecond: since("tallygate_events_total") / summaryEvery.Seconds(),
		Keys: is["tallygate_state_keys"], InForce: s.inForce(at), Behind: is["tallygate_blocklist_staleness_seconds"],
	}
	if n := since(toVerdict + countOf); n > 0 {
		y.Verdict = 1000 * since(toVerdict) / n
	}
	if n := since(toEnforced + countOf); n > 0 {
		y.Denied = 1000 * since(toEnforced) / n
	}
	s.last = is
	return y
}

// inForce counts the enforced blocks, and forgets what ended an hour ago.
func (s *screen) inForce(at event.Micros) (blocks int) {
	for key, v := range s.shown {
		switch {
		case v.until < at-event.FromDuration(time.Hour):
			delete(s.shown, key)
		case v.until > at && v.state == verdict.Block && v.mode == verdict.Enforce:
			blocks++
		}
	}
	return blocks
}

func now() event.Micros { return event.FromTime(time.Now()) }

const (
	toVerdict  = "tallygate_event_to_verdict_seconds"
	toEnforced = "tallygate_event_to_enforced_seconds"
	countOf    = ":count"
)

// gather sums every metric over its labels; for events, only those counted. A histogram is its sum,
// and its count under the name followed by countOf.
func (s *screen) gather() map[string]float64 {
	sums := map[string]float64{}
	families, _ := s.registry.Gather() // metrics that cannot be gathered are not shown
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == "tallygate_events_total" && m.GetLabel()[0].GetValue() != "counted" {
				continue
			}
			sums[f.GetName()] += m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetHistogram().GetSampleSum()
			sums[f.GetName()+countOf] += float64(m.GetHistogram().GetSampleCount())
		}
	}
	return sums
}
