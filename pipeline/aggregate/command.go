package aggregate

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// Command is what an operator does to one key.
type Command struct {
	Name   string        // block, unblock, reset, exempt or forget
	Key    []event.Dim   // sorted by name
	Rule   string        // for unblock, reset and exempt: the rule or limit; "" is all
	For    time.Duration // for block and exempt: how long; 0 ends an exemption
	Reason string
	By     string // who gave it

	OnBehalfOf string // for whom, as By states; "" is By
}

// CommandResult is what a command did. It is durable and published.
type CommandResult struct {
	ID        string `json:"id"`
	Partition int32  `json:"partition"`
	Keys      int    `json:"keys"` // that had a state; for forget, those erased

	// Verdicts are those that it published, cleared ones too: at most maxToldVerdicts.
	Verdicts []verdict.Verdict `json:"verdicts"`
}

// maxToldVerdicts bounds an answer: a user may have thousands of keys.
const maxToldVerdicts = 1000

// maxCommandFor bounds a block or an exemption. A verdict in force for longer than the verdict
// topic keeps records would be lost when Redis is refilled.
const maxCommandFor = 90 * 24 * time.Hour

func (c *Command) validate() error {
	kind, ok := shard.CommandKinds[c.Name]
	lasts := kind == rules.CommandBlock || kind == rules.CommandExempt
	var errs []error
	if !ok {
		errs = append(errs, fmt.Errorf("there is no command %q: block, unblock, reset, exempt or forget", c.Name))
	}
	if len(c.Key) == 0 {
		errs = append(errs, errors.New("a command needs a key, such as uid=42"))
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
	if c.For < 0 || c.For > maxCommandFor {
		errs = append(errs, fmt.Errorf("%v: at most %v, which is as long as verdicts are kept", c.For, maxCommandFor))
	}
	return errors.Join(errs...)
}

// ErrCommand is wrapped by errors that say what is wrong with a command.
var ErrCommand = errors.New("aggregate: not a command")

// Command carries out a command on a key that this instance owns. It returns when the command is in
// the audit, and its effects are durable and published.
//
// A command does not wait behind events that are to be counted. First it goes to the audit. Then
// the owner changes the key's state between two events, and writes it through with its applied
// offsets, so that no crash carries it out twice.
//
// After an error other than ErrCommand and ErrNotOwner the command may have taken effect; forget
// and exempt may have on some of the keys. It is safe to repeat.
func (a *api) Command(ctx context.Context, c Command) (CommandResult, error) {
	if err := c.validate(); err != nil {
		return CommandResult{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	id := a.Partition(c.Key)
	p := a.partition(id)
	if p == nil || !p.Live() {
		return CommandResult{}, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	if err := knowsRule(p, c.Rule); err != nil {
		return CommandResult{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	rec := shard.CommandRecord{
		ID: rand.Text(), Command: c.Name, Key: event.FormatKey(c.Key), Rule: c.Rule,
		For: event.FromDuration(c.For), Reason: c.Reason, By: c.By, OnBehalfOf: c.OnBehalfOf,
	}
	done := CommandResult{ID: rec.ID, Partition: id}
	if !c.wide() {
		err := done.carryOut(ctx, p, &rec)
		return done, err
	}
	found, err := p.KeysWith(rec.Key)
	if err == nil {
		rec.Keys = found
		err = done.carryOut(ctx, p, &rec)
	}
	if err != nil {
		return CommandResult{}, err
	}
	// Keys created between the lookup and the command.
	later, err := p.KeysWith(rec.Key)
	if later = without(later, found); err == nil && len(later) > 0 {
		rec.Keys = later
		err = done.carryOut(ctx, p, &rec)
	}
	return done, err
}

// carryOut carries out a command on its keys, and adds its results.
func (r *CommandResult) carryOut(ctx context.Context, p *owner.Partition, rec *shard.CommandRecord) error {
	so, err := p.CarryOut(ctx, rec)
	r.Keys += so.Keys
	room := max(0, maxToldVerdicts-len(r.Verdicts))
	r.Verdicts = append(r.Verdicts, so.Verdicts[:min(room, len(so.Verdicts))]...)
	return err
}

// knowsRule refuses a name that no rule has. The command would do nothing, silently.
func knowsRule(p *owner.Partition, name string) (err error) {
	p.View(func(_ *shard.Shard, v *owner.Rules) {
		if name != "" && !v.Set.Names(name) {
			err = noRule(name)
		}
	})
	return err
}

func noRule(name string) error {
	return fmt.Errorf("no rule, and no limit as rule/limit, is called %q", name)
}

// wide reports whether a command concerns all keys that contain its dimensions. With a uid they are
// all in one partition; without, they are spread over all.
func (c *Command) wide() bool {
	kind := shard.CommandKinds[c.Name]
	return hasUID(c.Key) && (kind == rules.CommandForget || kind == rules.CommandExempt && c.For > 0)
}

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	known := make(map[string]bool, len(other))
	for _, key := range other {
		known[key] = true
	}
	return slices.DeleteFunc(list, func(key string) bool { return known[key] })
}
