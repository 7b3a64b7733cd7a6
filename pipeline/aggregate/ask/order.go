package ask

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// Command is an operator's order about keys.
type Command struct {
	Name   string        // block, unblock, reset, exempt, forget, limit or grant
	Key    []event.Dim   // sorted by name
	Exact  bool          // to Key alone, and to no key that contains it: see wide
	Keys   [][]event.Dim // for unblock: to these keys alone, all of one partition; in place of Key
	Rule   string        // for unblock, reset and exempt: the rule or limit; "" is all
	For    time.Duration // for block and exempt: how long; 0 ends an exemption
	Reason string
	By     string // who gave it

	OnBehalfOf string // for whom, as By states; "" is By

	Allow     shard.Allow // of limit and grant; Asked is for us to say
	PeriodEnd bool        // of limit and grant: until the end of the key's window, in place of For and Allow.Until

	id        string // of the command that this is a part of; "" is one of its own
	partition *int32 // only to what is in there; nil is anywhere
}

// maxTold bounds an answer: a user may have thousands of keys.
const maxTold = 1000

// maxCommandKeys bounds the keys that a command names.
const maxCommandKeys = 10_000

// maxCommandFor bounds a block or an exemption. A verdict in force for longer than the verdict
// topic keeps records would be lost when Redis is refilled.
const maxCommandFor = 90 * 24 * time.Hour

func (c *Command) validate() error {
	kind, ok := shard.CommandKinds[c.Name]
	if kind == rules.CommandLimit || kind == rules.CommandGrant {
		return c.validateAllow(kind)
	}
	lasts := kind == rules.CommandBlock || kind == rules.CommandExempt
	var errs []error
	if !ok {
		errs = append(errs, fmt.Errorf("there is no command %q: block, unblock, reset, exempt, forget, limit or grant", c.Name))
	}
	if len(c.Key) == 0 && len(c.Keys) == 0 {
		errs = append(errs, errors.New("a command needs a key, such as uid=42"))
	}
	if len(c.Keys) > 0 && (kind != rules.CommandUnblock || len(c.Key) > 0 || len(c.Keys) > maxCommandKeys) {
		errs = append(errs, fmt.Errorf("keys are for unblock, in place of key, and at most %d", maxCommandKeys))
	}
	if strings.TrimSpace(c.Reason) == "" {
		errs = append(errs, errors.New("a command needs a reason: it is kept in the audit"))
	}
	if ok && !lasts && c.For != 0 {
		errs = append(errs, fmt.Errorf("%s has no end: leave out how long", c.Name))
	}
	if kind == rules.CommandBlock && (c.For <= 0 || c.Rule != "") {
		errs = append(errs, errors.New("a block needs how long it lasts, and names no rule"))
	}
	if kind == rules.CommandForget && c.Rule != "" {
		errs = append(errs, errors.New("forget erases all of a key: it names no rule"))
	}
	switch {
	case c.For < 0:
		errs = append(errs, fmt.Errorf("%v: a duration is not negative", c.For))
	case c.For > maxCommandFor:
		errs = append(errs, fmt.Errorf("%s: at most %s, which is as long as verdicts are kept",
			rules.FormatDuration(event.FromDuration(c.For)), rules.FormatDuration(event.FromDuration(maxCommandFor))))
	}
	return errors.Join(errs...)
}

// ErrCommand is wrapped by errors that say what is wrong with a command.
var ErrCommand = errors.New("aggregate: not a command")

// validateAllow is validate for a limit or a grant. It knows neither rules nor states: whoever gets the request checks
// it, and only the key's owner can say whether the rule takes the amount, and the key has room for it. There is no
// bound such as maxCommandFor, since no record of the verdict topic has to outlive it: the key's state has it.
func (c *Command) validateAllow(kind rules.CommandKind) error {
	var errs []error
	if len(c.Key) == 0 || len(c.Keys) > 0 {
		errs = append(errs, errors.New("a command needs a key, such as uid=42"))
	}
	if c.Rule == "" {
		errs = append(errs, errors.New("a limit or a grant needs the rule, or rule/limit, that it is about"))
	}
	if strings.TrimSpace(c.Reason) == "" {
		errs = append(errs, errors.New("a command needs a reason: it is kept in the audit"))
	}
	if c.For < 0 {
		errs = append(errs, fmt.Errorf("%v: a duration is not negative", c.For))
	}
	if kind == rules.CommandGrant && c.Allow.Ends && c.Allow.ID == "" {
		errs = append(errs, errors.New("to end a grant, give its id"))
	}
	return errors.Join(errs...)
}

// allows reports whether the command gives a limit or a grant, or ends one.
func (c *Command) allows() bool { return c.Name == api.KindLimit || c.Name == api.KindGrant }

// wide reports whether a command concerns all keys that contain its dimensions. With a uid they are
// all in one partition; without, they are spread over all. There an exemption or a forget holds for the
// key alone: the former would have to be known in every partition, and the latter cannot be taken back.
func (c *Command) wide() bool {
	if c.Exact || len(c.Keys) > 0 {
		return false
	}
	switch shard.CommandKinds[c.Name] {
	case rules.CommandUnblock, rules.CommandReset:
		return true
	case rules.CommandForget:
		return hasUID(c.Key)
	case rules.CommandExempt:
		return hasUID(c.Key) && c.For > 0
	}
	return false
}

// carryOut carries out a command on its keys, and adds its results.
func carryOut(ctx context.Context, p Part, rec *shard.CommandRecord, r *api.Commanded) error {
	so, err := p.CarryOut(ctx, rec)
	one := api.Commanded{Keys: len(so.Keys), Verdicts: so.Verdicts}
	for _, text := range so.Keys[:min(maxTold, len(so.Keys))] {
		if key, parseErr := event.ParseKey([]byte(text)); parseErr == nil { // every key's text was made by AppendKey
			one.Each = append(one.Each, byName(key))
		}
	}
	addDone(r, &one)
	return err
}

// addDone adds what was done elsewhere.
func addDone(r, one *api.Commanded) {
	r.Keys += one.Keys
	r.Each = append(r.Each, one.Each[:min(max(0, maxTold-len(r.Each)), len(one.Each))]...)
	r.Verdicts = append(r.Verdicts, one.Verdicts[:min(max(0, maxTold-len(r.Verdicts)), len(one.Verdicts))]...)
}
