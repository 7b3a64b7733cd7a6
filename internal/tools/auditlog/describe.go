package auditlog

import (
	"encoding/json"
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/verdict"
)

// Description is an entry in words. It names no key: who shows it may have to mask keys.
type Description struct {
	What, Rule, Why string
	Key             []event.Dim // what it is about; nil if that is no key, or several
}

// Describe puts an entry into words. One of an unknown type is shown as it is: Why is its value, which may name a
// key, and known is false.
func (e *Entry) Describe(raw []byte) (d Description, known bool) {
	d = Description{Rule: words.Cell(e.Rule, 128), Key: e.Key, Why: words.Cell(e.Reason, 400)}
	if len(e.Key) == 0 && len(e.Each) == 1 {
		d.Key = e.Each[0]
	}
	switch e.Type {
	case Verdict:
		v := e.Verdict
		d.What, d.Why = verdictText(v), fmt.Sprintf("%s of %s, by event %s", v.Count, v.Limit, words.Cause(v))
	case Command:
		d.What = e.commandText()
	case Fuse:
		d.What = "fuse blown"
	case Rules:
		d.What = e.rulesText()
	case KillSwitch:
		d.What, d.Why = e.switchText()
	case Read:
		d.What = "read of personal data: " + words.OrDash(words.Cell(e.What, 64))
	case DeadLetters:
		what, why, ok := resentText(raw)
		if !ok {
			return e.unknown(d, raw), false
		}
		d.What, d.Why = what, why
	default:
		return e.unknown(d, raw), false
	}
	return d, true
}

func (e *Entry) unknown(d Description, raw []byte) Description {
	d.What, d.Why = words.OrDash(words.Cell(e.Type, 64)), words.Cell(string(raw), 2000)
	return d
}

// CommandName is a command's name as the command line has it.
func (e *Entry) CommandName() string {
	if e.Command == "forget" {
		return "erase"
	}
	return words.Cell(e.Command, 64)
}

func (e *Entry) commandText() string {
	what := e.CommandName()
	switch {
	case e.Ends:
		what += " ended"
	case e.Command == "limit":
		what += " " + words.Cell(e.Amount, 64)
	case e.Command == "grant":
		what += " +" + words.Cell(e.Amount, 64)
	}
	switch {
	case e.Until != event.NoTime:
		what += " until " + words.Clock(e.Until)
	case e.Command == "exempt":
		what += " ended"
	}
	if e.Keys > 1 {
		what += fmt.Sprintf(", %d keys", e.Keys)
	}
	return what
}

func (e *Entry) rulesText() string {
	what := fmt.Sprintf("rules version %d", e.Version)
	if e.From > 0 {
		return what + fmt.Sprintf(", rolled back to version %d", e.From)
	}
	if e.File != "" {
		what += " of " + words.Cell(e.File, 128)
	}
	return what
}

func (e *Entry) switchText() (what, why string) {
	what = "kill switch on: "
	if e.Enabled {
		what = "kill switch off: "
	}
	what += words.Cell(e.Enforcer, 128)
	if e.Cause != "" {
		why = "by " + words.Cell(e.Cause, 64)
	}
	if e.Since != event.NoTime {
		why += " since " + words.Clock(e.Since)
	}
	return what, why
}

// resentText describes dead letters that were sent again: how many events, and of which records.
func resentText(raw []byte) (what, why string, ok bool) {
	var r struct {
		Letters, Events int
		Now             bool
		Records         []struct {
			Topic      string
			Partition  int32
			Offset     int64
			LastOffset int64 `json:"last_offset"`
		}
	}
	if json.Unmarshal(raw, &r) != nil {
		return "", "", false
	}
	why = words.Plural(r.Events, "event")
	if r.Now {
		why += " without their times"
	}
	for i, at := range r.Records {
		if i == shownRecords {
			why += fmt.Sprintf(", and %d more", len(r.Records)-i)
			break
		}
		why += fmt.Sprintf(", %s/%d@%d", words.Cell(at.Topic, 249), at.Partition, at.Offset)
		if at.LastOffset > at.Offset {
			why += fmt.Sprintf(" to %d", at.LastOffset)
		}
	}
	return "send " + words.Plural(r.Letters, "dead letter") + " again", why, true
}

// shownRecords is of how many partitions a table says which records were sent again.
const shownRecords = 8

// Who names a person, and on whose behalf they acted: the former was authenticated, the latter is a claim.
func (e *Entry) Who() string {
	who := words.Cell(e.By, 128)
	if e.For != "" {
		who += " for " + words.Cell(e.For, 128)
	}
	return who
}

func verdictText(v *verdict.Verdict) string {
	switch v.State {
	case verdict.Clear:
		return "clear"
	case verdict.Warn:
		return "warn " + words.Cell(v.Step, 32)
	default:
		return words.Action(v) + " " + words.Until(v.Until)
	}
}
