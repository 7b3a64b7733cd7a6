package console

import (
	"cmp"
	"fmt"
	"html/template"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/console/chart"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// standing is a key's position under one limit.
type standing struct {
	Rule     cell
	Bar      template.HTML
	Count    string
	Window   string
	From, To time.Time
	Frees    time.Time
	FreesBy  string
	InForce  *cell     // nil: nothing is
	Until    time.Time // of what is in force
	Notes    []string
	Class    string // of the row
}

// keyStanding is a key, and where it stands under each limit.
type keyStanding struct {
	Text  string
	Path  string
	Hot   string
	Rules []standing
}

func (e *eyes) standing(a *explained, now time.Time) keyStanding {
	key := dimsOf(a.Key)
	k := keyStanding{Text: e.text(key), Path: e.path(key)}
	if a.Hot != nil && a.Hot.EventsPerSecond >= busyRate {
		k.Hot = fmt.Sprintf("This key gets %s of the events of its partition %d: %s a second.", percent(a.Hot.Share), a.Partition, rate(a.Hot.EventsPerSecond))
	}
	for i := range a.Rules {
		k.Rules = append(k.Rules, standingOf(&a.Rules[i]))
	}
	return k
}

// busyRate is from how many events a second a key's share of its partition is told: below, it is no load.
const busyRate = 10

func standingOf(e *api.ExplainedRule) standing {
	s := standing{Rule: ruleCell(e.Rule), Count: countText(e), Window: windowText(e), From: timeOf(e.From), To: timeOf(e.Until), Frees: timeOf(e.FreesAt), FreesBy: e.Frees, Notes: notesOf(e)}
	shadow := e.Mode == verdict.Shadow || e.Verdict != nil && e.Verdict.Mode == verdict.Shadow // the verdict alone: its fuse has blown
	if e.Rule != rules.ManualRule {
		bar := chart.Bar{Title: e.Rule, Desc: s.Count, Value: decimal(e.Count), Limit: decimal(e.Limit), Closed: e.Closed, Shadow: shadow, Exempt: e.Exempt}
		s.Bar = bar.Draw()
	}
	if e.Window == inFlight {
		s.From, s.To = time.Time{}, time.Time{}
	}
	if v := e.Verdict; v != nil {
		c := modeCell(v)
		c.Text = actionOf(v)
		if s.Until, s.Class = v.Until.Time(), "bad"; shadow {
			c.Note, s.Class = "shadow: not enforced", ""
		}
		s.InForce = &c
	}
	return s
}

// inFlight is the window of what is under way: nothing but permits counts there.
const inFlight = "in-flight"

func windowText(e *api.ExplainedRule) string {
	switch {
	case e.Window == inFlight:
		return "under way now"
	case e.Rule == rules.ManualRule:
		return "a command"
	}
	return e.Window
}

// countText is the count of the limit, with what sets that.
func countText(e *api.ExplainedRule) string {
	if e.Rule == rules.ManualRule {
		return ""
	}
	count := e.Count.String()
	switch {
	case e.Window == inFlight && e.Strict == nil:
		count = "?"
	case e.Estimated:
		count = "about " + count
	}
	if e.Unlimited() {
		return count + ", unlimited"
	}
	text := count + " of " + e.Limit.String()
	if e.Tier > 0 {
		text += fmt.Sprintf(" (tier %d)", e.Tier)
	}
	if e.LimitFrom != "" {
		text += " (" + e.LimitFrom + ")"
	}
	return text
}

func notesOf(e *api.ExplainedRule) (notes []string) {
	if e.Exempt {
		notes = append(notes, "exempt: counted, and not judged")
	}
	if e.Reset != 0 {
		notes = append(notes, "emptied at "+words.Clock(e.Reset))
	}
	if v := e.Candidate; v != nil {
		notes = append(notes, fmt.Sprintf("its candidate would %s %s", v.Action, words.Until(v.Until)))
	}
	if s := e.Strict; s != nil {
		notes = append(notes, strictText(s))
	}
	if e.Counted != event.NoTime && e.Counted != 0 {
		notes = append(notes, "latest counted event "+words.Clock(e.Counted))
	}
	return notes
}

// strictText has the numbers that Redis keeps of a strict limit.
func strictText(s *api.StrictStanding) string {
	text := fmt.Sprintf("strict: %s counted and %s under way, %s left", s.Level, s.Held, s.Remaining)
	if s.Unlimited() {
		text = fmt.Sprintf("strict: %s counted and %s under way, unlimited", s.Level, s.Held)
	}
	if s.Permits > 0 {
		text += fmt.Sprintf("; %s since %s, lost from %s on, then %s", words.Plural(s.Permits, "permit"), words.Clock(s.Oldest), words.Clock(s.LostAt), map[bool]string{true: "given back", false: "counted"}[s.Lost == "return"])
	}
	if s.Used > 0 && s.ResetsAt != event.NoTime {
		text += "; nothing counts any more from " + words.Clock(s.ResetsAt) + " on"
	}
	return text
}

// strictState explains why no permits are granted; "" if they are.
func strictState(s *api.StrictState) string {
	switch {
	case s == nil || s.Grants && s.Error == "":
		return ""
	case s.Error != "":
		return "The numbers of strict limits are not known: " + s.Error
	}
	text := "No permits are granted: " + cmp.Or(s.Why, "the aggregator is in doubt")
	if s.DoubtSince != event.NoTime {
		text += ", since " + words.Clock(s.DoubtSince)
	}
	return text
}

// why says in one sentence why a key is blocked: for a ticket. "" if it is not.
func (e *eyes) why(a *explained) string {
	var parts []string
	for i := range a.Rules {
		if v := a.Rules[i].Verdict; v != nil && v.Decides() {
			parts = append(parts, e.sentence(v, &a.Rules[i]))
		}
	}
	for i := range a.Others {
		for j := range a.Others[i].Rules {
			if v := a.Others[i].Rules[j].Verdict; v != nil && v.Decides() {
				parts = append(parts, e.sentence(v, &a.Others[i].Rules[j]))
			}
		}
	}
	return strings.Join(parts, " ")
}

// sentence tells of one verdict. Without an explanation it has no window.
func (e *eyes) sentence(v *verdict.Verdict, x *api.ExplainedRule) string {
	what := map[verdict.Action]string{verdict.ActBlock: "blocked", verdict.ActChallenge: "challenged", verdict.ActThrottle: "slowed down", verdict.ActLog: "only logged"}[v.Action]
	head := fmt.Sprintf("%s is %s", e.text(v.Key), what)
	times := fmt.Sprintf("since %s until %s", utc(v.Since), utc(v.Until))
	if v.Until >= event.Forever {
		times = fmt.Sprintf("since %s, forever", utc(v.Since))
	}
	if v.Rule == verdict.Manual {
		return fmt.Sprintf("%s by a command %s.", head, times)
	}
	text := fmt.Sprintf("%s by the rule %s %s: %s counted, and the limit is %s", head, v.Rule, times, v.Count, v.Limit)
	if x != nil && x.From < x.Until && x.From > event.MinTime && x.Window != inFlight {
		text += fmt.Sprintf(" (window %s, now from %s to %s)", x.Window, utc(x.From), utc(x.Until))
	}
	cause := fmt.Sprintf("record %d@%d", v.Cause.Partition, v.Cause.Offset)
	if v.Cause.ID != "" {
		cause = "event " + words.Cell(v.Cause.ID, 128) + ", " + cause
	}
	return text + "; triggered by " + cause + "."
}

// utc is a moment for people, with its zone.
func utc(m event.Micros) string { return m.Time().Format("2006-01-02 15:04:05") + " UTC" }
