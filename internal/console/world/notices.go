package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/status"
)

const (
	certificateWarn = 14 * 24 * time.Hour
	memberSkewWarn  = 3 * time.Second // more than an answer takes
)

// notices are what the banner says, the worst first.
func notices(r *Readings) []Notice {
	all := enforcerNotices(r)
	if r.Cluster.Known(r.Now) {
		all = append(all, ruleNotices(r.Cluster.Value.Members)...)
		all = append(all, certificateNotices(r)...)
		all = append(all, memberClocks(r)...)
	}
	if e := r.Exemptions.Value; e.Ending > 0 && e.Next.After(r.Now) {
		ends := "exemptions end"
		if e.Ending == 1 {
			ends = "exemption ends"
		}
		all = append(all, Notice{Name: "exemptions", Level: Warn, Text: fmt.Sprintf("%d %s within the hour, the next in %s", e.Ending, ends, span(e.Next.Sub(r.Now))),
			Do: "Extend what is still needed.", Link: "/exemptions"})
	}
	slices.SortStableFunc(all, func(a, b Notice) int { return cmp.Compare(ranks[b.Level], ranks[a.Level]) })
	return all
}

// enforcerNotices are of kill switches and clocks. An enforcer that is gone says nothing any more.
func enforcerNotices(r *Readings) (all []Notice) {
	var off, skewed []string
	var since time.Time
	for i := range r.Enforcers.Value {
		b := &r.Enforcers.Value[i]
		if b.Gone() {
			continue
		}
		if !b.Enabled {
			off = append(off, b.Name+" ("+cmp.Or(b.OffCause, "unknown cause")+")")
			if since.IsZero() || !b.OffSince.IsZero() && b.OffSince.Before(since) {
				since = b.OffSince
			}
		}
		if b.Skew().Abs() >= skewWarn {
			skewed = append(skewed, b.Name+": "+clockText(b.Skew()))
		}
	}
	if len(off) > 0 {
		all = append(all, Notice{Name: "kill-switch", Level: Bad, Since: since, Runbook: "TallygateKillSwitch",
			Text: "A kill switch is on: " + some(off) + " allow everything", Do: "Take it back when it is no longer needed.", Link: "/cluster#enforcers"})
	}
	if len(skewed) > 0 {
		all = append(all, Notice{Name: "clock-skew", Level: Warn, Runbook: "TallygateClockSkew",
			Text: "Clocks differ: " + some(skewed), Do: "Let NTP set them: blocks end at the wrong time there.", Link: "/cluster#enforcers"})
	}
	return all
}

func ruleNotices(members []status.Status) (all []Notice) {
	var blown, differ []string
	versions := map[int64]bool{}
	for i := range members {
		m := &members[i]
		if m.Aggregator == nil {
			continue
		}
		rules := &m.Aggregator.Rules
		versions[rules.Version] = true
		differ = append(differ, fmt.Sprintf("%s has version %d", m.Instance, rules.Version))
		for _, rule := range rules.Blown {
			if !slices.Contains(blown, rule) {
				blown = append(blown, rule)
			}
		}
		if !rules.FileOK {
			all = append(all, Notice{Name: "rules-rejected:" + m.Instance, Level: Bad, Runbook: "TallygateRulesBroken", Link: "/cluster#members",
				Text: fmt.Sprintf("The rule file of %s is rejected, and version %d applies on: %s", m.Instance, rules.Version, short(rules.FileError)),
				Do:   "Correct the file; tallygate check says where it is wrong."})
		}
	}
	if len(blown) > 0 {
		all = append(all, Notice{Name: "fuse", Level: Bad, Runbook: "TallygateFuseBlown",
			Text: "The fuse of " + some(blown) + " has blown: it blocks nobody any more", Do: "Look whom it hit, then correct the rule and load it again."})
	}
	if len(versions) > 1 {
		all = append(all, Notice{Name: "rules-differ", Level: Warn, Runbook: "TallygateRulesDiffer", Link: "/cluster#members",
			Text: "The aggregators count by different rules: " + some(differ), Do: "Wait some seconds; then look at the last errors of the one behind."})
	}
	return all
}

// certificateNotices are of the aggregators, and of decision servers that tell everybody.
func certificateNotices(r *Readings) (all []Notice) {
	var of []Certificates
	for _, m := range r.Cluster.Value.Members {
		of = append(of, Certificates{m.Instance, m.Metrics[certificateMetric]})
	}
	for _, c := range append(of, r.Enforced.Value.Certificates...) {
		for _, s := range c.Expiry {
			if n, due := c.notice(s, r.Now); due {
				all = append(all, n)
			}
		}
	}
	return all
}

func (c *Certificates) notice(s status.Sample, now time.Time) (n Notice, due bool) {
	left := time.Unix(int64(s.Value), 0).Sub(now)
	if left >= certificateWarn {
		return n, false
	}
	what := "The certificate of --" + s.Labels["option"] + " of " + c.Program
	n = Notice{Name: "certificate:" + c.Program + ":" + s.Labels["option"], Level: Warn, Runbook: "TallygateCertificateExpires",
		Text: what + " ends in " + span(left), Do: "Put a new one in its file: it is read without a restart."}
	switch {
	case s.Value == 0:
		n.Level, n.Text = Bad, what+" cannot be read"
	case left <= 0:
		n.Level, n.Text = Bad, what+" has ended"
	}
	return n, true
}

// memberClocks compares the aggregators' clocks with the console's.
func memberClocks(r *Readings) (all []Notice) {
	for _, m := range r.Cluster.Value.Members {
		if skew := m.Now.Sub(r.Cluster.At); !m.Now.IsZero() && skew.Abs() >= memberSkewWarn {
			all = append(all, Notice{Name: "member-clock:" + m.Instance, Level: Warn, Runbook: "TallygateClockSkew", Link: "/cluster#members",
				Text: fmt.Sprintf("The clock of the aggregator %s differs from the console's by %s", m.Instance, span(skew.Abs())), Do: "Let NTP set both."})
		}
	}
	return all
}

// some lists the first few of many.
func some(all []string) string {
	const few = 4
	if len(all) > few {
		return strings.Join(all[:few], ", ") + fmt.Sprintf(" and %d more", len(all)-few)
	}
	return strings.Join(all, ", ")
}
