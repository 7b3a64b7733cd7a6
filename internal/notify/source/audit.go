// Package source makes Notes: of the audit topic, for events, and of the answers of aggregators, Redis and the
// blocklist, for states.
package source

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
	"github.com/tallygate/tallygate/verdict"
)

// Audit makes Notes of entries of the audit. It is for one reader: it remembers which verdicts it has seen, since
// a verdict comes again when its end moves.
type Audit struct {
	seen, before map[string]bool
}

// remembered bounds the verdicts in memory, twice.
const remembered = 10_000

// Note makes an entry's note; nil for nothing. An entry that cannot be read is an error.
func (a *Audit) Note(data []byte, broker time.Time) (*note.Note, error) {
	e, of, err := auditlog.ParseFields(data)
	if err != nil {
		return nil, err
	}
	n := &note.Note{State: note.Happened, At: broker, Rule: e.Rule, By: e.By, For: e.For, Reason: e.Reason, Key: e.Key}
	if e.At != event.NoTime {
		n.At = e.At.Time()
	}
	switch e.Type {
	case auditlog.Verdict:
		return a.verdict(n, e, of)
	case auditlog.Command:
		n.Kind, n.Subject, n.What = note.Command, e.Command, command(e)
	case auditlog.DeadLetters:
		n.Kind, n.Subject = note.Command, "send dead letters again"
		n.What = fmt.Sprintf("%d dead letters sent again, %d events", e.Letters, e.Events)
	case auditlog.Fuse:
		n.Kind = note.Fuse
		n.What = fmt.Sprintf("in partition %d, of %d keys: it is in shadow mode there until changed rules are loaded", e.Partition, e.Keys)
		n.By, n.Reason = "", ""
	case auditlog.Rules:
		n.Kind, n.What = note.RulesChanged, fmt.Sprintf("version %d of %s", e.Version, e.Name)
		if e.From > 0 {
			n.What = fmt.Sprintf("version %d of %s, with the text of version %d", e.Version, e.Name, e.From)
		}
	case auditlog.KillSwitch:
		n.Kind, n.Subject, n.By = note.KillSwitch, e.Enforcer, "" // it only has seen it
		n.What = "enforces again"
		if !e.Enabled {
			n.What = "allows everything, by its " + e.Cause
		}
	default:
		return nil, nil // it is for other readers
	}
	return n, nil
}

// command describes a command's effect, in the command line's words.
func command(e *auditlog.Entry) string {
	what := e.Command
	if what == "forget" {
		what = "erase"
	}
	switch {
	case e.Until != event.NoTime:
		what += " until " + note.Clock(e.Until.Time())
	case what == "exempt":
		what += " ended"
	}
	if e.Keys > 1 {
		what += fmt.Sprintf(", %d keys", e.Keys)
	}
	if e.Command == "unblock" { // the audit does not tell whether rules are strict
		what += "; permits that strict limits deny stay denied"
	}
	return what
}

// verdict makes a Note of a verdict whose rule has notify.
func (a *Audit) verdict(n *note.Note, e *auditlog.Entry, of json.RawMessage) (*note.Note, error) {
	if len(e.Notify) == 0 {
		return nil, nil
	}
	v, err := verdict.Parse(of)
	if err != nil {
		return nil, err
	}
	if v.State != verdict.Block && v.State != verdict.Warn || a.again(&v) {
		return nil, nil
	}
	n.Kind, n.Rule, n.Key, n.By = note.Verdict, v.Rule, v.Key, ""
	if json.Unmarshal(e.Notify, &n.Routes) != nil {
		n.Routes = nil // true: all of them
	}
	if v.State == verdict.Warn {
		n.What = fmt.Sprintf("%s of the limit reached: %s of %s", v.Step, v.Count, v.Limit)
		return n, nil
	}
	n.What = fmt.Sprintf("%s %s: %s of %s", v.Action, until(v.Until), v.Count, v.Limit)
	if v.Mode == verdict.Shadow {
		n.What += " (in shadow mode)"
	}
	return n, nil
}

// again reports whether the verdict was there before, and only its end has moved.
func (a *Audit) again(v *verdict.Verdict) bool {
	id := fmt.Sprintf("%s %d %d", verdict.AppendRecordKey(nil, v), v.State, v.Since)
	if a.seen[id] || a.before[id] {
		return true
	}
	if a.seen == nil || len(a.seen) >= remembered {
		a.seen, a.before = map[string]bool{}, a.seen
	}
	a.seen[id] = true
	return false
}

// until names the end of a block.
func until(m event.Micros) string {
	if m >= event.Forever {
		return "forever"
	}
	return "until " + note.Clock(m.Time())
}
