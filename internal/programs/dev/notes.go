package dev

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/api"
)

// What a newcomer has to know beside verdicts: events that came and did nothing. Each is told when there are more
// than before, as all of them so far.

// noteNames are the metrics that notes tell of, with the label by which they are told apart.
const (
	resultOf     = "tallygate_events_total"              // result
	malformed    = "tallygate_event_decode_errors_total" // reason
	misplaced    = "tallygate_events_misplaced_total"    // client
	rulesVersion = "tallygate_rules_version"
	rulesFileOK  = "tallygate_rules_file_ok"
	unmatchedOf  = "unmatched"
	tooOldOf     = "too_old"
	fewUnmatched = 3 // APIs that are named
	asksForNames = 3 // in vain, before events are told of without them
)

// notes count events that came and did nothing.
type notes struct {
	unmatched func(context.Context) []api.UnmatchedEvents // nil: nobody knows what they say
	asked     int                                         // in vain, for the names of what is to be told
	told      map[string]float64                          // by what it is about
	version   float64                                     // of the rules
	broken    bool                                        // the rule file was, when it was last asked
}

// ofRules tells of a rule file that changed: whether its rules count now, or why they do not.
func (n *notes) ofRules(registry *prometheus.Registry) (lines []string) {
	version := byLabel(registry, rulesVersion)[""]
	if n.version != 0 && version != n.version {
		lines = append(lines, fmt.Sprintf("the changed rules count now: version %.0f", version))
	}
	n.version = version
	ok, known := byLabel(registry, rulesFileOK)[""]
	broken := known && ok == 0
	if broken && !n.broken {
		lines = append(lines, "the rule file has a mistake, and the rules before it stay: tallygate check says which")
	}
	n.broken = broken
	return lines
}

// since returns a note's number, if it has grown.
func (n *notes) since(what string, count float64) bool {
	if n.told == nil {
		n.told = map[string]float64{}
	}
	grown := count > n.told[what]
	n.told[what] = count
	return grown
}

// lines are the notes of which there is something new.
func (n *notes) lines(ctx context.Context, registry *prometheus.Registry) (lines []string) {
	results, bad := byLabel(registry, resultOf), byLabel(registry, malformed)
	before := n.told[unmatchedOf]
	if count := results[unmatchedOf]; n.since(unmatchedOf, count) {
		said, noUID := n.names(ctx)
		what := events(count, "match", "matches")
		if noUID {
			what = events(count, "have no uid, and match", "has no uid, and matches")
		}
		if n.asked++; said == "" && n.unmatched != nil && n.asked <= asksForNames {
			n.told[unmatchedOf] = before // an aggregator that is busy answers later
		} else {
			n.asked = 0
			lines = append(lines, fmt.Sprintf("%s no rule%s; tallygate trace says why", what, said))
		}
	}
	if count := results["dead_letter"]; n.since("dead_letter", count) {
		lines = append(lines, some(count, "malformed record", "malformed records")+" ("+counts(bad)+"); tallygate dead-letters shows them")
	}
	if count := results[tooOldOf]; n.since(tooOldOf, count) {
		lines = append(lines, events(count, "are", "is")+" older than the rules' max_lateness, and not counted")
	}
	var wrong float64
	for _, count := range byLabel(registry, misplaced) {
		wrong += count
	}
	if n.since(misplaced, wrong) {
		lines = append(lines, events(wrong, "come", "comes")+" in another partition than that of their uid: the producer's partitioner is not murmur2")
	}
	return lines
}

// names lists the APIs and outcomes of events that no rule counts, and tells whether all of them lack a uid.
func (n *notes) names(ctx context.Context) (text string, noUID bool) {
	if n.unmatched == nil {
		return "", false
	}
	noUID = true
	for i, u := range n.unmatched(ctx) {
		noUID = noUID && u.NoUID
		if i >= fewUnmatched {
			if i == fewUnmatched {
				text += ", …"
			}
			continue
		}
		if i > 0 {
			text += ", "
		}
		text += u.API
		if u.Outcome != "" {
			text += " " + u.Outcome
		}
		if u.NoUID {
			text += " without a uid"
		}
		text += fmt.Sprintf(": %d", u.Events)
	}
	if text == "" {
		return "", false
	}
	return " (" + text + ")", noUID
}

func events(count float64, many, one string) string {
	return some(count, "event "+one, "events "+many)
}

func some(count float64, one, many string) string {
	if count == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%.0f %s", count, many)
}

// counts lists how many there are of each, the most first.
func counts(of map[string]float64) (text string) {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int { return cmp.Or(cmp.Compare(of[b], of[a]), cmp.Compare(a, b)) })
	for i, name := range names {
		if i > 0 {
			text += ", "
		}
		text += fmt.Sprintf("%s: %.0f", name, of[name])
	}
	return text
}

// byLabel returns a metric's values by their first label, "" without any. Counters that are 0 are left out.
func byLabel(registry *prometheus.Registry, name string) map[string]float64 {
	out := map[string]float64{}
	families, _ := registry.Gather() // metrics that cannot be gathered are not shown
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			label := ""
			if len(m.GetLabel()) > 0 {
				label = m.GetLabel()[0].GetValue()
			}
			if n := m.GetCounter().GetValue(); n > 0 {
				out[label] += n
			}
			if m.GetGauge() != nil {
				out[label] += m.GetGauge().GetValue()
			}
		}
	}
	return out
}

// askUnmatched asks the aggregator, as anybody may, what the events say that no rule counts.
func askUnmatched(at string) func(context.Context) []api.UnmatchedEvents {
	client := &http.Client{Timeout: time.Second}
	return func(ctx context.Context) []api.UnmatchedEvents {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+at+"/v1/unmatched", nil)
		if err != nil {
			return nil
		}
		resp, err := client.Do(req)
		if err != nil {
			return nil // it is told without names
		}
		defer resp.Body.Close()
		defer client.CloseIdleConnections()
		var answer api.Unmatched
		if json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&answer) != nil {
			return nil
		}
		return answer.Unmatched
	}
}
