package console

import (
	"cmp"
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/console/chart"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
	"github.com/tallygate/tallygate/verdict"
)

// timeline lists a key's history.
type timeline struct {
	Source source
	Chart  template.HTML
	Table  table
	More   string // the audit page with the rest
	list   []*auditlog.Record
}

// timelineEntries bounds the entries on a key's page.
const timelineEntries = 100

// timeline finds what concerns a key, and the changes that concern the rules that count it.
func (e *eyes) timeline(key []event.Dim, limits []string, now time.Time) timeline {
	t := timeline{Source: e.auditSource(now), More: "/audit?key=" + e.refs.Ref(key)}
	own, err := e.audit.Find(auditlog.Filter{Key: key, KeyOnly: true}, "", timelineEntries)
	if err != nil {
		t.Source = source{"bad", err.Error(), ""}
		return t
	}
	t.list = own.Entries
	from := time.Time{}
	if len(own.Entries) > 0 {
		from = own.Entries[len(own.Entries)-1].At.Time()
	}
	others, _ := e.audit.Find(auditlog.Filter{Types: []string{auditlog.Rules, auditlog.Fuse}, From: from}, "", timelineEntries) // without a cursor it has no error
	for _, r := range others.Entries {
		if r.Type == auditlog.Rules || concerns(r.Rule, limits) {
			t.list = append(t.list, r)
		}
	}
	slices.SortStableFunc(t.list, func(a, b *auditlog.Record) int { return cmp.Compare(b.At, a.At) })
	t.list = t.list[:min(len(t.list), timelineEntries)]
	t.draw(e, now)
	return t
}

// concerns reports whether a rule is one of those that have these limits.
func concerns(rule string, limits []string) bool {
	return slices.ContainsFunc(limits, func(limit string) bool { return auditlog.RuleIs(limit, rule) && rule != "" })
}

func (t *timeline) draw(e *eyes, now time.Time) {
	t.Table = e.auditTable(t.list)
	t.Table.Caption, t.Table.Hidden = "What happened to the key, the latest first", true
	t.Table.Empty = empty{Title: "Nothing in the audit", Text: "Since the console began to follow the audit, nothing has happened to this key.", Link: t.More + "&from=7d", LinkText: "Look further back"}
	if len(t.list) == 0 {
		return
	}
	line := chart.Timeline{Title: "What happened to the key", From: t.list[len(t.list)-1].At.Time().Add(-time.Minute), To: now}
	for _, r := range slices.Backward(t.list) {
		d, _ := r.Describe(r.Raw)
		m := chart.Mark{At: r.At.Time(), Lane: laneOf(r), Class: classOf(r), Title: utc(r.At) + ": " + d.What}
		if v := r.Verdict; v != nil && v.State == verdict.Block {
			m.At, m.Until = v.Since.Time(), t.endOf(r)
		}
		line.Marks = append(line.Marks, m)
	}
	t.Chart = line.Draw()
}

// endOf returns the end of a block, past or to come: another verdict of its key and rule may have ended or moved it.
func (t *timeline) endOf(r *auditlog.Record) time.Time {
	end := r.Verdict.Until
	for _, other := range t.list {
		if v := other.Verdict; v != nil && v.State != verdict.Warn && v.Seq > r.Verdict.Seq && v.Rule == r.Rule && slices.Equal(v.Key, r.Verdict.Key) {
			end = min(end, max(v.Since, r.Verdict.Since))
		}
	}
	return end.Time()
}

// verdicts are those in the time line, the latest first.
func (t *timeline) verdicts() (list []verdict.Verdict) {
	for _, r := range t.list {
		if r.Verdict != nil {
			list = append(list, *r.Verdict)
		}
	}
	return list
}

func laneOf(r *auditlog.Record) string {
	switch r.Type {
	case auditlog.Verdict, auditlog.Fuse:
		return r.Rule
	case auditlog.Command:
		return "commands"
	case auditlog.Rules:
		return "rules published"
	case auditlog.Read:
		return "reads"
	}
	return r.Type
}

func classOf(r *auditlog.Record) string {
	if v := r.Verdict; v != nil {
		switch {
		case v.State == verdict.Clear:
			return "clear"
		case v.State == verdict.Warn:
			return "warn"
		case v.Mode == verdict.Shadow:
			return "shadow"
		}
		return "block"
	}
	if r.Type == auditlog.Command {
		return "command"
	}
	return "other"
}

// whyAt says why a key was blocked at a moment, from its verdicts in the audit. "" if it was not, as far as is known.
func (e *eyes) whyAt(t *timeline, at event.Micros) string {
	var parts []string
	for _, r := range slices.Backward(t.list) {
		v := r.Verdict
		if v == nil || !v.Decides() || v.Since > at || t.endOf(r).Compare(at.Time()) <= 0 {
			continue
		}
		parts = append(parts, e.sentence(v, nil))
	}
	return strings.Join(parts, " ")
}

// auditSource describes how far back the audit is known, and its staleness.
func (k *Keys) auditSource(now time.Time) source {
	h := k.audit.Health()
	switch {
	case h.From.IsZero() && h.Trouble != nil:
		return source{"bad", "The audit cannot be read: " + h.Trouble.Error(), "The overview says whether Kafka answers."}
	case h.From.IsZero():
		return source{"warn", "The audit has not been read yet.", "Load the page again in a moment."}
	case h.Trouble != nil:
		return source{"bad", "The audit as it was before Kafka stopped to answer: " + h.Trouble.Error(), "What happened since is missing."}
	case h.Behind > 0:
		return source{"warn", fmt.Sprintf("The audit is still being read: %s to go.", plural(h.Behind, "record")), "Load the page again in a moment."}
	}
	return source{"ok", fmt.Sprintf("From the audit, of the last %s.", span(now.Sub(h.From))), ""}
}
