package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

const explainUsage = `
tallygate explain shows what a key has counted under every rule, and why it is blocked or exempt; of
strict rules also which permits are under way, and whether any are granted. It shows the same of keys
that contain these dimensions and more; --exact leaves them out. Ask any aggregator: the one that owns
the key answers.

  tallygate explain uid=42
  tallygate explain uid=42 attrs.campaign=summer --api ad.select
  tallygate explain uid=42 api=login     # of rules with key: [uid, api]; --api only leaves out rules
  tallygate explain all=true             # of rules with key: all
`

// explainAnswer is the answer to GET /v1/explain, as it is shown.
type explainAnswer api.Explained

// explain is `tallygate explain`.
func explain(ctx context.Context, c *call) error {
	o := c.options(explainUsage)
	at := apiclient.NewOptions(o)
	concerns := o.String("api", "", "only the rules that concern this `API`")
	exact := o.Bool("exact", false, "only this key, and none that contains it")
	limit := o.Int("limit", explainedKeys, "`number` of keys with more dimensions to show at most")
	asJSON := o.Bool("json", false, "write the aggregator's answer as it is")
	if err := o.Parse(c.args); err != nil {
		return err
	}
	key, err := parseKey(o.Args())
	if err == nil && *limit < 0 {
		err = fmt.Errorf("--limit %d: want 0 or more", *limit)
	}
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	q := api.KeyQuery(key)
	if *concerns != "" {
		q.Set("api", *concerns)
	}
	if *exact {
		q.Set("exact", "true")
	} else if *limit != explainedKeys {
		q.Set("limit", strconv.Itoa(*limit))
	}
	aggregator, err := at.Open()
	if err != nil {
		return err
	}
	defer aggregator.Close()
	body, err := aggregator.Get(ctx, "/v1/explain?"+q.Encode())
	if err != nil {
		return err
	}
	if *asJSON {
		_, err = c.stdout.Write(body)
		return err
	}
	a, err := api.Decode[explainAnswer](body, nil)
	if err != nil {
		return err
	}
	return a.write(c.stdout)
}

// explainedKeys is the aggregator's default number of keys with more dimensions.
const explainedKeys = 20

// write shows what was asked for, then the keys that contain it.
func (a *explainAnswer) write(out io.Writer) error {
	if len(a.Rules) == 0 && len(a.Others) == 0 && a.More == 0 && len(a.Missing) == 0 {
		also := ""
		if api := cell(a.Key["api"], event.MaxAPI); api != "" {
			also = fmt.Sprintf("; api=%[1]s is a dimension, and --api %[1]s leaves only its rules", api)
		}
		_, err := fmt.Fprintln(out, "no rule counts by these dimensions and this API, and no key with more dimensions has counted anything"+also)
		return err
	}
	if len(a.Rules) > 0 {
		if err := a.writeKey(out, len(a.Others) > 0); err != nil {
			return err
		}
	}
	for i := range a.Others {
		if i > 0 || len(a.Rules) > 0 {
			fmt.Fprintln(out)
		}
		if err := (*explainAnswer)(&a.Others[i]).writeKey(out, true); err != nil {
			return err
		}
	}
	if a.More > 0 {
		fmt.Fprintf(out, "\nand %s more; name more dimensions, or --limit\n", plural(a.More, "key"))
	}
	for _, m := range a.Missing {
		fmt.Fprintf(out, "\nPartition %d is missing: %s\n", m.Partition, cell(m.Reason, 300))
	}
	return nil
}

// writeKey shows one key; named tells to say which.
func (a *explainAnswer) writeKey(out io.Writer, named bool) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	if named {
		fmt.Fprintln(out, keytext.FormatMap(a.Key))
	}
	fmt.Fprintln(w, "RULE\tCOUNT\tLIMIT\tWINDOW\tVERDICT")
	for i := range a.Rules {
		e := &a.Rules[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", cell(e.Rule, 128), countText(e), limitText(e), windowText(e), standing(e))
	}
	if a.Hot != nil && a.Hot.EventsPerSecond >= busyRate {
		fmt.Fprintf(w, "\nThis key gets %s of the events of its partition %d: %s a second.\n", share(a.Hot.Share), a.Partition, rate(a.Hot.EventsPerSecond))
	}
	a.writeStrict(w)
	return w.Flush()
}

// busyRate is from how many events a second a key's share of its partition is told: below, it is no load.
const busyRate = 10

// inFlight is the window of what is under way: nothing but permits counts there.
const inFlight = "in-flight"

func windowText(e *api.ExplainedRule) string {
	if e.Window == inFlight {
		return "under way now"
	}
	return clock(e.From) + " to " + clock(e.Until)
}

func countText(e *api.ExplainedRule) string {
	switch {
	case e.Window == inFlight && e.Strict == nil:
		return "?"
	case e.Rule == rules.ManualRule:
		return "-"
	case e.Estimated:
		return "~" + e.Count.String()
	}
	return e.Count.String()
}

// limitText is the limit, with the tier that sets it.
func limitText(e *api.ExplainedRule) string {
	text := e.Limit.String()
	switch {
	case e.Rule == rules.ManualRule:
		return "-"
	case e.Unlimited():
		text = "unlimited"
	}
	if e.Tier > 0 {
		text += fmt.Sprintf(" (tier %d)", e.Tier)
	}
	if e.LimitFrom != "" {
		text += " (" + e.LimitFrom + ")"
	}
	if e.Granted > 0 {
		text += fmt.Sprintf(" (+%v granted)", e.Granted)
	}
	return text
}

// standing describes the verdict in force: what ends it, and since when it holds.
func standing(e *api.ExplainedRule) string {
	var parts []string
	frees := ""
	if e.Frees != "" {
		frees = " (" + e.Frees + ")"
	}
	if v := e.Verdict; v != nil {
		parts = append(parts, fmt.Sprintf("%s %s%s%s", v.Action, words.Until(v.Until), left(v.Until), frees), "since "+clock(v.Since))
		if v.Cause.ID != "" {
			parts = append(parts, "by event "+cell(v.Cause.ID, 128))
		}
		if e.FreesAt != event.NoTime && e.FreesAt > v.Until {
			parts = append(parts, "over the limit until "+clock(e.FreesAt))
		}
	} else if e.FreesAt != event.NoTime {
		parts = append(parts, "over until "+clock(e.FreesAt)+frees)
	}
	if e.Reset != 0 {
		parts = append(parts, "emptied at "+clock(e.Reset))
	}
	if v := e.Candidate; v != nil {
		parts = append(parts, fmt.Sprintf("its candidate: %s %s", v.Action, words.Until(v.Until)))
	}
	for i := range e.Grants {
		g := &e.Grants[i]
		parts = append(parts, allowanceText(g)+untilText(g.Until)+" by "+givenBy(g)+": "+orDash(cell(g.Reason, 400)))
	}
	if e.Exempt {
		parts = append(parts, exemptText(e.ExemptBy))
	}
	text := cmp.Or(strings.Join(parts, ", "), "-")
	if e.Mode == verdict.Shadow || e.Verdict != nil && e.Verdict.Mode == verdict.Shadow { // the verdict alone: its fuse has blown
		text += " (shadow)"
	}
	return text
}

// writeStrict writes the level of strict limits, which is more than the count: permits that are under way weigh, too.
func (a *explainAnswer) writeStrict(out io.Writer) {
	if a.Strict == nil {
		return
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	head := "\nSTRICT\tCOUNTED\tUNDER WAY\tLIMIT\tREMAINING\tRESETS\tPERMITS\n"
	for i := range a.Rules {
		if s := a.Rules[i].Strict; s != nil {
			fmt.Fprint(w, head)
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", cell(a.Rules[i].Rule, 128), s.Level, s.Held, orUnlimited(s, s.Limit), orUnlimited(s, s.Remaining), resets(s), permits(s))
			head = ""
		}
	}
	_ = w.Flush() // what it writes to keeps its errors
	for i := range a.Rules {
		if e := &a.Rules[i]; e.Denied() {
			fmt.Fprintf(out, "\n%s\n", words.Denial(e))
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
		if e := &a.Rules[i]; e.Denied() && ruleIs(e.Rule, rule) {
			out = append(out, keytext.FormatMap(a.Key)+": "+words.Denial(e))
		}
	}
	if s := a.Strict; s != nil && !s.Grants && s.Why != "" {
		out = append(out, fmt.Sprintf("%s: strict limits are in doubt, and grant no permit: %s.", keytext.FormatMap(a.Key), cell(s.Why, 300)))
	}
	for i := range a.Others {
		out = append(out, (*explainAnswer)(&a.Others[i]).denials(rule)...)
	}
	return out
}

// orUnlimited writes a number of a limit, if there is one.
func orUnlimited(s *api.StrictStanding, n event.Decimal) string {
	if s.Unlimited() {
		return "unlimited"
	}
	return n.String()
}

// resets tells when nothing counts any more: "-" when nothing counts now.
func resets(s *api.StrictStanding) string {
	switch {
	case s.Used == 0:
		return "-"
	case s.ResetsAt == event.NoTime:
		return "when they end"
	}
	return clock(s.ResetsAt)
}

// permits describes those under way, and their fate if nobody says how their actions ended.
func permits(s *api.StrictStanding) string {
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
