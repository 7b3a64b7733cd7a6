package enforce

import (
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// stalePolicy answers checks of a stale table.
type stalePolicy struct {
	always        OnStale
	rules         map[string]OnStale
	closed        []verdict.Verdict // only their APIs are set
	local         []*localLimit
	coveredByRule []verdict.Verdict // the same, of all rules that name APIs
}

func newStalePolicy(always OnStale, rules map[string]RuleOnStale, instances int) stalePolicy {
	p := stalePolicy{always: always, rules: map[string]OnStale{}}
	for name, r := range rules {
		p.rules[name] = r.Do
		apis := verdict.Verdict{APIs: slices.Clone(r.APIs)}
		if len(r.APIs) > 0 {
			p.coveredByRule = append(p.coveredByRule, apis)
		}
		switch r.Do {
		case Closed:
			p.closed = append(p.closed, apis)
		case Local:
			p.local = append(p.local, newLocalLimit(name, r, instances))
		}
	}
	slices.SortFunc(p.local, func(a, b *localLimit) int { return strings.Compare(a.verdict.Rule, b.verdict.Rule) })
	return p
}

// matters reports whether the policy changes any answer of a stale table.
func (p *stalePolicy) matters() bool { return p.always != LastKnown || len(p.rules) > 0 }

// enforces reports whether a rule's verdicts count. A rule's policy also holds for its limits,
// which are named rule/limit.
func (p *stalePolicy) enforces(rule string) bool {
	do, ok := p.rules[rule]
	if !ok {
		base, _, _ := strings.Cut(rule, "/")
		if do, ok = p.rules[base]; !ok {
			do = p.always
		}
	}
	return do != Open
}

// deny returns the decision of what fails closed, or of a local limit that is reached; otherwise d.
// mono is a time of the monotonic clock.
func (p *stalePolicy) deny(d Decision, mono time.Duration, api string, dims []event.Dim) Decision {
	if p.closes(api) {
		return Decision{at: d.at, by: &unavailable}
	}
	for _, l := range p.local {
		if wait, ok := l.take(event.FromDuration(mono)+1, api, dims); !ok { // at 0 every slot would be taken
			return Decision{until: d.at + wait, at: d.at, by: &l.verdict}
		}
	}
	return d
}

func (p *stalePolicy) closes(api string) bool {
	covers := func(v verdict.Verdict) bool { return v.Covers(api) }
	return slices.ContainsFunc(p.closed, covers) || p.always == Closed && !slices.ContainsFunc(p.coveredByRule, covers)
}
