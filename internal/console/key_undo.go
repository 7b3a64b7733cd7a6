package console

import (
	"fmt"
	"slices"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
	"github.com/tallygate/tallygate/verdict"
)

// undoFor is the time for which a command can be undone with a button.
const undoFor = 10 * time.Minute

// undoOffer is a button that undoes a command that was just given.
type undoOffer struct {
	Text string // what was done, by whom
	undo
}

// undo is the form that undoes what a command did; nil if nothing does.
func (act *keyAct) undo(e *eyes, key []event.Dim, b *api.Command, did *api.Commanded, now time.Time) *undo {
	switch {
	case act.name == "block":
		return undoBlock(e, key, did.ID)
	case act.name == "exempt":
		return undoExempt(e, key, did.ID, b.Rule)
	}
	return nil // of an unblock the answer does not tell until when: the key's page offers it, from the audit
}

func undoReason(id string) string { return "undo of command " + id }

func undoBlock(e *eyes, key []event.Dim, id string) *undo {
	return &undo{Label: "Undo: unblock", Path: e.path(key) + "/unblock", Fields: map[string]string{"action": "do", "reason": undoReason(id), "exact": "yes", "rule": verdict.Manual}}
}

func undoExempt(e *eyes, key []event.Dim, id, rule string) *undo {
	return &undo{Label: "Undo: end the exemption", Path: e.path(key) + "/end-exemption", Fields: map[string]string{"action": "do", "reason": undoReason(id), "rule": rule}}
}

// undoOffers are the commands of the last minutes on a key that can be undone, and were not. They are found in the
// audit, so that any console offers them.
func (r *request) undoOffers(e *eyes, key []event.Dim, t *timeline) (offers []undoOffer) {
	if !r.may(access.Operator) {
		return nil
	}
	for _, c := range t.list {
		if c.Type != auditlog.Command || r.Now.Sub(c.At.Time()) > undoFor || !slices.Equal(c.Entry.Key, key) || t.undone(c.ID) {
			continue
		}
		var u *undo
		switch {
		case c.Command == "block" && c.Until > event.FromTime(r.Now) && t.stillBlocked(key, c.ID):
			u = undoBlock(e, key, c.ID)
		case c.Command == "exempt" && c.Until != event.NoTime && c.Until > event.FromTime(r.Now):
			u = undoExempt(e, key, c.ID, c.Rule)
		case c.Command == "unblock":
			u = t.undoUnblock(e, key, c, r.Now)
		}
		if u != nil {
			offers = append(offers, undoOffer{fmt.Sprintf("%s by %s, %s ago: %s", c.CommandName(), orDash(c.Who()), span(r.Now.Sub(c.At.Time())), c.Reason), *u})
		}
	}
	return offers
}

// undone reports whether a later command undid one.
func (t *timeline) undone(id string) bool {
	return slices.ContainsFunc(t.list, func(r *auditlog.Record) bool { return r.Type == auditlog.Command && r.Reason == undoReason(id) })
}

// stillBlocked reports whether no later command ended what one began.
func (t *timeline) stillBlocked(key []event.Dim, id string) bool {
	for _, r := range t.list { // the latest first
		if r.Type != auditlog.Command || !slices.Equal(r.Entry.Key, key) {
			continue
		}
		if r.ID == id {
			return true
		}
		if r.Command != "exempt" || r.Until != event.NoTime {
			return false
		}
	}
	return false
}

// clearedWithin bounds the time from a command to its verdict's clear: the clear has its own time.
const clearedWithin = 30 * event.Second

// undoUnblock blocks the key again, until the latest of what was ended would have ended by itself.
func (t *timeline) undoUnblock(e *eyes, key []event.Dim, c *auditlog.Record, now time.Time) *undo {
	var until event.Micros
	for _, r := range t.list {
		v := r.Verdict
		if v == nil || v.State != verdict.Clear || v.Since < c.At-event.Second || v.Since > c.At+clearedWithin || !auditlog.RuleIs(v.Rule, c.Rule) {
			continue
		}
		for _, before := range t.list {
			if b := before.Verdict; b != nil && b.Decides() && b.Rule == v.Rule && b.Seq < v.Seq && slices.Equal(b.Key, v.Key) {
				until = max(until, b.Until)
				break // the latest before it
			}
		}
	}
	left := until.Time().Sub(now).Truncate(time.Second)
	if left < time.Second {
		return nil
	}
	return &undo{Label: "Undo: block again for " + span(left), Path: e.path(key) + "/block",
		Fields: map[string]string{"action": "do", "reason": undoReason(c.ID), "for": fmt.Sprintf("%ds", int(left.Seconds()))}}
}
