package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/internal/keytext"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// explained is an explanation of a rule, with where the key stands in Redis if the rule is strict, and
// why it is exempt.
type explained struct {
	rules.Explanation
	Strict   *aggregate.StrictStanding `json:"strict"`
	ExemptBy []aggregate.Exemption     `json:"exempt_by"`
}

// writeStrict says what strict limits see, which is more than what is counted: permits that are under way
// weigh, too.
func (a *explainAnswer) writeStrict(out io.Writer) {
	if a.Strict == nil {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "\nSTRICT\tCOUNTED\tUNDER WAY\tLIMIT\tREMAINING\tRESETS\tPERMITS\n"
	for i := range a.Rules {
		if s := a.Rules[i].Strict; s != nil {
			fmt.Fprint(w, head)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cell(a.Rules[i].Rule, 128), s.Level, s.Held, orUnlimited(s.Limit, s.Limit), orUnlimited(s.Limit, s.Remaining), resets(s), permits(s))
			head = ""
		}
	}
	_ = w.Flush() // what it writes to keeps its errors
	for i := range a.Rules {
		if e := &a.Rules[i]; e.Strict.Denies(&e.Explanation) {
			fmt.Fprintf(out, "\n%s\n", e.Strict.Denial(&e.Explanation))
		}
	}
	switch s := a.Strict; {
	case s.Grants:
		fmt.Fprintf(out, "\nRedis may grant permits for partition %d.\n", a.Partition)
	case s.DoubtSince == event.NoTime:
		fmt.Fprintf(out, "\nStrict rules of partition %d are in doubt: %s.\n", a.Partition, cell(s.Why, 300))
	default:
		fmt.Fprintf(out, "\nStrict rules of partition %d are in doubt since %s: %s.\n", a.Partition, clock(s.DoubtSince), cell(s.Why, 300))
	}
	if a.Strict.Error != "" {
		fmt.Fprintf(out, "What is under way is not known: %s\n", cell(a.Strict.Error, 300))
	}
}

// denials are the strict limits that grant the key no permit now, or a key that contains it: one sentence
// each. rule leaves out other rules; "" none.
func (a *explainAnswer) denials(rule string) (out []string) {
	for i := range a.Rules {
		if e := &a.Rules[i]; e.Strict.Denies(&e.Explanation) && ruleIs(e.Rule, rule) {
			out = append(out, keytext.FormatMap(a.Key)+": "+e.Strict.Denial(&e.Explanation))
		}
	}
	if s := a.Strict; s != nil && !s.Grants && s.Why != "" {
		out = append(out, fmt.Sprintf("%s: strict limits are in doubt, and grant no permit: %s.", keytext.FormatMap(a.Key), cell(s.Why, 300)))
	}
	for i := range a.Others {
		out = append(out, a.Others[i].denials(rule)...)
	}
	return out
}

func orUnlimited(limit, n event.Decimal) string {
	if limit == 0 {
		return "unlimited"
	}
	return n.String()
}

func resets(s *aggregate.StrictStanding) string {
	switch {
	case s.Used == 0:
		return "-"
	case s.ResetsAt == event.NoTime:
		return "when they end"
	}
	return clock(s.ResetsAt)
}

// permits says which are under way, and what becomes of them if nobody says how their actions ended.
func permits(s *aggregate.StrictStanding) string {
	if s.Permits == 0 {
		return "-"
	}
	var parts []string
	if s.Permits == 1 {
		parts = append(parts, "1 since "+clock(s.Oldest))
	} else {
		parts = append(parts, fmt.Sprintf("%d, the oldest since %s", s.Permits, clock(s.Oldest)))
	}
	fate := "counted"
	if s.Lost == "return" {
		fate = "given back"
	}
	return strings.Join(append(parts, fmt.Sprintf("lost from %s on: then %s", clock(s.LostAt), fate)), ", ")
}
