package console

import (
	"slices"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/console/blocks"
	"github.com/tallygate/tallygate/internal/console/rulestats"
	"github.com/tallygate/tallygate/internal/console/rulewatch"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

const (
	shownKeys    = 10             // of a rule
	pardonsSpan  = 24 * time.Hour // which the console has in memory
	maxPardoning = 5_000          // verdicts and commands that are looked at
)

// inForce are a rule's keys with verdicts in force, of the blocklist that this console follows.
type inForce struct{ enforce, shadow float64 }

// inForce counts them by rule; nil if the blocklist is not known now: then what enforcers tell is shown.
func (r *request) inForce() map[string]inForce {
	k := r.server.Keys
	if k == nil || k.blocklistSource().Level == "bad" || !k.list.Health().Ready {
		return nil
	}
	p, err := k.list.Page(blocks.Query{Limit: 1})
	if err != nil {
		return nil
	}
	out := map[string]inForce{}
	for _, c := range p.ByRule {
		name := rulestats.RuleOf(c.Rule)
		sum := out[name]
		out[name] = inForce{sum.enforce + float64(c.Enforce), sum.shadow + float64(c.Shadow)}
	}
	return out
}

// fares sums a rule's numbers, with those of the blocklist.
func fares(w *rulewatch.State, name string, now map[string]inForce) rulestats.Rule {
	f := w.Rule(name)
	if now == nil {
		return f
	}
	f.Blocked, f.ShadowNow, f.Share = now[name].enforce, now[name].shadow, -1
	if keys := w.Keys(); keys > 0 {
		f.Share = min((f.Blocked+f.ShadowNow)/float64(keys), 1)
	}
	return f
}

// topKeys are the keys with the highest counts among those that a rule has verdicts for; nil without a blocklist.
func (r *request) topKeys(rule string) *table {
	k := r.server.Keys
	if k == nil {
		return nil
	}
	p, err := k.list.Page(blocks.Query{Rule: rule, Sort: blocks.ByCount, Limit: shownKeys})
	if err != nil {
		return nil
	}
	t := &table{Caption: "Keys that count most under the rule", Hidden: true,
		Head:  []column{{Text: "Key"}, {Text: "Count of limit", Num: true}, {Text: "Mode"}, {Text: "Until"}},
		Empty: empty{Title: "Nobody is over a limit of this rule", Text: "Keys with a verdict in force appear here."}}
	if s := k.blocklistSource(); s.Level == "bad" {
		t.Empty = empty{Title: "It is not known who is blocked", Text: s.Text}
	}
	e := r.eyesOf(k, nil)
	for i := range p.Rows {
		v := &p.Rows[i]
		t.Rows = append(t.Rows, row{Cells: []cell{
			{Text: e.text(v.Key), Link: e.path(v.Key), Head: true, Code: true}, cellf("%v of %v", v.Count, v.Limit), {Text: v.Mode.String()}, {HTML: left(v.Until.Time(), r.Now)},
		}})
	}
	return t
}

// pardons are the commands of the last day that took verdicts of a rule back; nil without an audit.
func (r *request) pardons(rule string) *table {
	k := r.server.Keys
	if k == nil {
		return nil
	}
	from := r.Now.Add(-pardonsSpan)
	commands, err := k.audit.Find(auditlog.Filter{Types: []string{auditlog.Command}, From: from}, "", maxPardoning)
	if err != nil {
		return nil
	}
	issued, err := k.audit.Find(auditlog.Filter{Types: []string{auditlog.Verdict}, Rule: rule, From: from}, "", maxPardoning)
	if err != nil {
		return nil
	}
	t := &table{Caption: "Keys of this rule that somebody unblocked, reset or exempted in the last 24 hours", Hidden: true,
		Head:  []column{{Text: "Key"}, {Text: "What"}, {Text: "When"}, {Text: "Who"}, {Text: "Why"}},
		Empty: empty{Title: "None in the last 24 hours", Text: "Nobody has taken a verdict of this rule back."}}
	e := r.eyesOf(k, nil)
	for _, c := range commands.Entries {
		if len(t.Rows) == shownKeys || !pardon(c.Entry, rule, issued.Entries) {
			continue
		}
		key := cell{Text: dash, Head: true}
		if len(c.Entry.Key) > 0 {
			key = cell{Text: e.text(c.Entry.Key), Link: e.path(c.Entry.Key), Head: true, Code: true}
		}
		t.Rows = append(t.Rows, row{Cells: []cell{key, textCell(c.CommandName()), {HTML: when(c.At.Time())}, textCell(c.Who()), textCell(c.Reason)}})
	}
	return t
}

// pardon reports whether a command took back a verdict of a rule: one that names the rule, or one about a key that
// the rule had a verdict for.
func pardon(c *auditlog.Entry, rule string, issued []*auditlog.Record) bool {
	if !slices.Contains([]string{"unblock", "reset", "exempt"}, c.Command) {
		return false
	}
	if c.Rule != "" {
		return auditlog.RuleIs(c.Rule, rule)
	}
	return slices.ContainsFunc(issued, func(v *auditlog.Record) bool {
		about := func(key []event.Dim) bool { return len(key) > 0 && auditlog.Has(v.Entry.Key, key) }
		return v.At <= c.At && (about(c.Key) || slices.ContainsFunc(c.Each, about))
	})
}
