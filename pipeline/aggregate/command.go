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
	Rule   string        // of unblock, reset and exempt: the rule or limit; "" is all
	For    time.Duration // of block and exempt: how long; of exempt 0 ends an exemption
	Reason string
	By     string // who gave it

	OnBehalfOf string // for whom, as that one says; "" is nobody else
}

// CommandResult is what a command did, once that is durable and published.
type CommandResult struct {
	ID        string            `json:"id"`
	Partition int32             `json:"partition"`
	Keys      int               `json:"keys"`     // that had a state: of forget those that were erased
	Verdicts  []verdict.Verdict `json:"verdicts"` // that it published, maxToldVerdicts at most; those that were cleared, too
}

// maxToldVerdicts bounds an answer: a user may have thousands of keys.
const maxToldVerdicts = 1000

// maxCommandFor is how long a block or an exemption may last: what is in force for longer than the verdict
// topic keeps its records would be lost with a Redis that is filled anew.
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

// ErrCommand says that a command is wrong.
var ErrCommand = errors.New("aggregate: not a command")

// Command carries a command out on a key that this instance owns, and returns when it is in the audit, and what it
// did is durable and published. It stands behind no event that waits to be counted: the audit has it, and then the
// owner changes the key's state between two events and writes it through, with the marks that it has, so that no crash
// carries it out twice. When it returns an error that is not ErrCommand or ErrNotOwner, the command may
// have taken effect, of forget and exempt on some of the keys: it can be given again.
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
	// What came up between looking and the command.
	later, err := p.KeysWith(rec.Key)
	if later = without(later, found); err == nil && len(later) > 0 {
		rec.Keys = later
		err = done.carryOut(ctx, p, &rec)
	}
	return done, err
}

// carryOut carries a command out on its keys, and adds what came of it.
func (r *CommandResult) carryOut(ctx context.Context, p *owner.Partition, rec *shard.CommandRecord) error {
	so, err := p.CarryOut(ctx, rec)
	r.Keys += so.Keys
	room := max(0, maxToldVerdicts-len(r.Verdicts))
	r.Verdicts = append(r.Verdicts, so.Verdicts[:min(room, len(so.Verdicts))]...)
	return err
}

// knowsRule refuses a name that no rule has: nothing would come of it, and nobody would notice.
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

// wide reports whether a command is about all keys that have its dimensions, and maybe others. With a uid
// among them they are all in one partition; without, they are spread over all.
func (c *Command) wide() bool {
	kind := shard.CommandKinds[c.Name]
	return hasUID(c.Key) && (kind == rules.CommandForget || kind == rules.CommandExempt && c.For > 0)
}

func hasUID(key []event.Dim) bool {
	return slices.ContainsFunc(key, func(d event.Dim) bool { return d.Name == "uid" })
}

// without returns what is in list and not in other.
func without(list, other []string) []string {
	known := make(map[string]bool, len(other))
	for _, key := range other {
		known[key] = true
	}
	return slices.DeleteFunc(list, func(key string) bool { return known[key] })
}
