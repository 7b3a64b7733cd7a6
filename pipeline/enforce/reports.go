package enforce

import (
	"cmp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/index"
	"github.com/tallygate/tallygate/verdict"
)

// Summary counts a table's verdicts and checks, by rule.
type Summary struct {
	Entries int           // verdicts that have not ended, as Table.InForce
	Rules   []RuleSummary // in the order of their names
}

// RuleSummary is a Summary's part about one rule. A limit of a rule with several has its own, as rule/limit. After
// a thousand rules, further ones are together under (other).
type RuleSummary struct {
	Rule    string
	Blocked int // keys with an enforced block in force, whatever its action
	Shadow  int // keys with a block in force that is in shadow mode

	// Checks that were allowed only because a block is in shadow mode. One that several rules would have
	// denied counts for each.
	WouldDeny uint64
	// Checks that the rule's verdict decided, by action: those that CountDecision was told of.
	Decided map[verdict.Action]uint64
}

// reports are a table's numbers for operators, beside its staleness.
type reports struct {
	table   *Table
	decided decisions

	walking sync.Mutex // held while the table is walked
	last    atomic.Pointer[tally]
}

// tally counts verdicts in force.
type tally struct {
	at              event.Micros // when it was made
	entries         int
	blocked, shadow []int // keys, by the number of the rule
}

// Off returns what turns enforcement off, and since when; "" and the zero time while it is on.
func (r *reports) Off() (cause OffCause, since time.Time) {
	m := &r.table.mode
	m.mu.Lock()
	defer m.mu.Unlock()
	if since = m.switches.since; since.IsZero() {
		return "", since
	}
	return m.switches.cause(), since
}

// Summary returns what is in force now, and what was counted, by rule. It walks over the whole table: 0.05 to
// 0.2 s for a million verdicts; checks and the feed go on meanwhile. For a table of ten thousand and more a
// walk serves for a while, nine seconds for a million. Where Refresh is called in the background, as what
// announces an enforcer does, Summary of such a table does not walk, and does not wait for a walk.
func (r *reports) Summary() Summary {
	const patience = 3 // so that Refresh comes before
	t, rules := r.tally(patience), r.table.index.Rules()
	s := Summary{Entries: t.entries, Rules: make([]RuleSummary, len(rules))}
	at := func(counts []int, i int) int {
		if i < len(counts) {
			return counts[i]
		}
		return 0 // it came after the walk
	}
	for i, rule := range rules {
		s.Rules[i] = RuleSummary{Rule: rule.Name, Blocked: at(t.blocked, i), Shadow: at(t.shadow, i), WouldDeny: rule.WouldDeny.Load()}
	}
	s.Rules = r.decided.addTo(s.Rules)
	slices.SortFunc(s.Rules, func(a, b RuleSummary) int { return strings.Compare(a.Rule, b.Rule) })
	return s
}

// CountDecision counts, for Summary, what a verdict decided; what none decided is not counted. Middleware
// calls it. Who calls Check directly does, too, if the numbers are wanted: Check itself counts nothing that
// costs it time.
func (r *reports) CountDecision(d Decision) {
	if d.by != nil && d.by.Rule != "" {
		r.decided.add(d.by.Rule, d.by.Action)
	}
}

// Refresh walks over a large table for the Summaries to come, unless the last walk is recent: of three seconds
// ago for a million verdicts.
func (r *reports) Refresh() { r.tally(1) }

// servesFor returns the time for which a walk over so many verdicts serves, until Refresh makes another: a walk then
// takes a few hundredths of the time at most.
func servesFor(entries int) event.Micros {
	if entries < 10_000 {
		return 0
	}
	return min(event.Micros(entries)*3, event.Minute)
}

// tally walks, or returns what the last walk found if that is not older than so many times what it serves.
func (r *reports) tally(times event.Micros) *tally {
	recent := func() *tally {
		t := r.last.Load()
		if t == nil {
			return nil
		}
		if age := r.table.cfg.now() - t.at; age < 0 || age >= times*servesFor(t.entries) {
			return nil
		}
		return t
	}
	if t := recent(); t != nil {
		return t
	}
	r.walking.Lock()
	defer r.walking.Unlock()
	if t := recent(); t != nil { // somebody else was walking
		return t
	}
	t := tallyOf(&r.table.index, r.table.cfg.now())
	r.last.Store(&t)
	return &t
}

func tallyOf(x *index.Index, at event.Micros) (t tally) {
	x.Walk(func(rec index.Record) {
		rec.Each(func(c *index.Class, since, until event.Micros) {
			if at >= until {
				return
			}
			t.entries++
			switch {
			case at < since:
			case c.Decides:
				count(&t.blocked, c.Rule.Number)
			case c.Shadow:
				count(&t.shadow, c.Rule.Number)
			}
		})
	}, func() { t = tally{at: at} })
	return t
}

func count(counts *[]int, i int) {
	if i >= len(*counts) {
		*counts = append(*counts, make([]int, max(i+1-len(*counts), cmp.Or(len(*counts), 8)))...)
	}
	(*counts)[i]++
}

// countShadows counts a check that was allowed, for each verdict in shadow mode that would have denied it.
func countShadows(x *index.Index, at event.Micros, api string, dims []event.Dim, enforces func(rule string) bool) {
	x.Each(api, dims, func(r index.Record) bool {
		countShadowsOf(r, at, api, enforces)
		return true
	})
}

// countShadowsOf is countShadows of one key.
func countShadowsOf(r index.Record, at event.Micros, api string, enforces func(rule string) bool) {
	r.Each(func(c *index.Class, since, until event.Micros) {
		if c.Shadow && !c.Logs && since <= at && at < until && c.Covers(api) && (enforces == nil || enforces(c.Verdict.Rule)) {
			c.Rule.WouldDeny.Add(1)
		}
	})
}
