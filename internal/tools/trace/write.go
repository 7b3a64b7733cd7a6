package trace

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// writer writes what was traced.
type writer struct {
	out     *bufio.Writer
	json    bool
	flush   bool // after each event: somebody waits for it
	written int
}

func (w *writer) write(t *traced) error {
	w.written++
	if w.json {
		enc := json.NewEncoder(w.out)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(t); err != nil {
			return err
		}
	} else if err := w.text(t); err != nil {
		return err
	}
	if w.flush {
		return w.out.Flush()
	}
	return nil
}

func (w *writer) text(t *traced) error {
	if w.written > 1 {
		fmt.Fprintln(w.out)
	}
	if t.Where != "" {
		fmt.Fprintf(w.out, "%s: ", t.Where)
	}
	fmt.Fprintf(w.out, "%s\n", t.Event)
	if t.NotAtAll != nil {
		fmt.Fprintf(w.out, "  no rule counts it: %s\n", t.NotAtAll.Text)
	}
	table := tabwriter.NewWriter(w.out, 0, 0, 2, ' ', 0)
	for i := range t.Rules {
		for _, line := range t.Rules[i].lines(t) {
			fmt.Fprintf(table, "  %s\t%s\n", line[0], line[1])
		}
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if t.More > 0 {
		rest := "more rules do"
		if t.More == 1 {
			rest = "more rule does"
		}
		fmt.Fprintf(w.out, "  %d %s not count it: --all shows why\n", t.More, rest)
	}
	return nil
}

// lines describes a rule: names, and sentences.
func (r *ruleTrace) lines(t *traced) (lines [][2]string) {
	if r.Does == rules.Passes.String() {
		return [][2]string{{r.Rule, r.passes()}}
	}
	for i := range r.Limits {
		lt := &r.Limits[i]
		parts := []string{r.counted(lt, t.Live)}
		if lt.Late != "" && !r.tells() {
			parts = append(parts, "which it does not change: "+lt.Late)
		}
		parts = append(parts, lt.follows(t)...)
		for _, n := range r.Notes {
			parts = append(parts, n.Text)
		}
		if lt.Exempt != "" {
			parts = append(parts, "exempt by "+lt.Exempt)
		}
		if lt.Mode == verdict.Shadow {
			parts = append(parts, "in shadow mode")
		}
		lines = append(lines, [2]string{lt.Limit, strings.Join(parts, "; ")})
	}
	return lines
}

// passes says why the rule does not count the event.
func (r *ruleTrace) passes() string {
	if len(r.Unmet) == 0 {
		return "would count it otherwise"
	}
	parts := make([]string, len(r.Unmet))
	for i, u := range r.Unmet {
		parts[i] = u.Text
	}
	return "not counted: " + strings.Join(parts, "; ")
}

// counted describes the effect on a count, done or possible.
func (r *ruleTrace) counted(lt *limitTrace, live bool) string {
	of := lt.Of.String()
	switch {
	case lt.Of == 0 && !lt.Closed:
		of = "unlimited"
	case lt.Tier > 0:
		of += fmt.Sprintf(" (tier %d)", lt.Tier)
	case lt.LimitFrom != "":
		of += " (" + lt.LimitFrom + ")"
	}
	was := lt.Before.String() + " of " + of
	switch {
	case r.tells():
		return r.told(lt, was, live)
	case r.Repeat:
		return fmt.Sprintf("repeated: %s has counted its id before, and has %s", r.key, was)
	case r.NoSuch:
		return fmt.Sprintf("takes nothing back: %s remembers no event of that id, and has %s", r.key, was)
	}
	does, then := map[string]string{"counts": "counted", "takes_back": "takes back", "resets": "empties"}[r.Does], "now"
	if live {
		does, then = map[string]string{"counts": "would count", "takes_back": "would take back", "resets": "would empty"}[r.Does], "then"
	}
	switch {
	case lt.After != nil:
		return fmt.Sprintf("%s under %s: %s, %s %s of %s", does, r.key, lt.Before, then, lt.After, of)
	case lt.distinct != "":
		return fmt.Sprintf("%s under %s: %s, and one more if its %s is new there", does, r.key, was, lt.distinct)
	}
	return fmt.Sprintf("%s under %s: %s", does, r.key, was)
}

// tells reports whether the event is a denial that tells the key's limits.
func (r *ruleTrace) tells() bool { return r.Does == rules.Tells.String() }

// told describes the effect of a denial on a limit, done or possible.
func (r *ruleTrace) told(lt *limitTrace, has string, live bool) string {
	tells, counts := "tells", "counts"
	if live {
		tells, counts = "would tell", "count"
	}
	if lt.Late != "" {
		return fmt.Sprintf("%s nothing of %s, which has %s: %s", tells, r.key, has, lt.Late)
	}
	return fmt.Sprintf("%s the limit of %s, and %s nothing: %s", tells, r.key, counts, has)
}

// follows lists the verdicts that are issued, or in force.
func (lt *limitTrace) follows(t *traced) (parts []string) {
	for i := range t.Verdicts {
		if v := &t.Verdicts[i]; v.Rule == lt.Limit || strings.HasPrefix(v.Rule, lt.Limit+"/") && !isLimit(t, v.Rule) {
			parts = append(parts, verdictText(lt, v))
		}
	}
	switch v := lt.InForce; {
	case len(parts) > 0:
	case v != nil:
		parts = append(parts, fmt.Sprintf("%s %s is in force", v.Action, words.Until(v.Until)))
	case lt.Passes && lt.Exempt == "" && len(t.Verdicts) == 0 && lt.After != nil:
		parts = append(parts, "the limit is passed")
	}
	return parts
}

// isLimit reports whether a verdict's name is that of another limit that is told of.
func isLimit(t *traced, name string) bool {
	for i := range t.Rules {
		for j := range t.Rules[i].Limits {
			if t.Rules[i].Limits[j].Limit == name {
				return true
			}
		}
	}
	return false
}

func verdictText(lt *limitTrace, v *verdict.Verdict) string {
	name := ""
	if v.Rule != lt.Limit {
		name = v.Rule + ": "
	}
	switch v.State {
	case verdict.Clear:
		return name + "its verdict ends"
	case verdict.Warn:
		return name + "notice at " + v.Step
	}
	return fmt.Sprintf("%s%s %s", name, v.Action, words.Until(v.Until))
}
