package ask

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// Command is an operator's order about keys.
type Command struct {
	Name   string        // block, unblock, reset, exempt or forget
	Key    []event.Dim   // sorted by name
	Exact  bool          // to Key alone, and to no key that contains it: see wide
	Keys   [][]event.Dim // for unblock: to these keys alone, all of one partition; in place of Key
	Rule   string        // for unblock, reset and exempt: the rule or limit; "" is all
	For    time.Duration // for block and exempt: how long; 0 ends an exemption
	Reason string
	By     string // who gave it

	OnBehalfOf string // for whom, as By states; "" is By

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
	lasts := kind == rules.CommandBlock || kind == rules.CommandExempt
	var errs []error
	if !ok {
		errs = append(errs, fmt.Errorf("there is no command %q: block, unblock, reset, exempt or forget", c.Name))
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

// commands carries out what operators do to keys.
type commands struct{ *base }

// Command carries out a command. Its keys are this instance's, but for a wide one of keys without a uid,
// which asks the owners of all partitions. It returns when the command is in the audit, and its effects
// are durable and published.
//
// A command does not wait behind events that are to be counted. First it goes to the audit. Then
// the owner changes the key's state between two events, and writes it through with its applied
// offsets, so that no crash carries it out twice.
//
// After an error other than ErrCommand and ErrNotOwner the command may have taken effect; a wide one
// may have on some of the keys. It is safe to repeat.
func (a *commands) Command(ctx context.Context, c Command) (api.Commanded, error) {
	if err := c.validate(); err != nil {
		return api.Commanded{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	if c.id == "" {
		c.id = rand.Text()
	}
	if c.partition != nil {
		return a.commandIn(ctx, &c, *c.partition)
	}
	if c.wide() && !hasUID(c.Key) {
		return a.commandEverywhere(ctx, &c)
	}
	return a.commandIn(ctx, &c, c.home(a.instance.Partitions()))
}

// home is the partition of a command's key, or of the first of its keys.
func (c *Command) home(partitions int32) int32 {
	if len(c.Keys) > 0 {
		return partitionOf(c.Keys[0], partitions)
	}
	return partitionOf(c.Key, partitions)
}

// commandIn carries out a command on its keys in one partition, which this instance owns.
func (a *commands) commandIn(ctx context.Context, c *Command, id int32) (api.Commanded, error) {
	p := a.instance.Part(id)
	if p == nil {
		return api.Commanded{}, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	if err := knowsRule(p, c.Rule); err != nil {
		return api.Commanded{}, fmt.Errorf("%w: %w", ErrCommand, err)
	}
	rec := shard.CommandRecord{
		ID: c.id, Command: c.Name, Key: event.FormatKey(c.Key), Rule: c.Rule,
		For: event.FromDuration(c.For), Reason: c.Reason, By: c.By, OnBehalfOf: c.OnBehalfOf,
	}
	done := api.Commanded{ID: rec.ID, Partition: id}
	if shard.CommandKinds[c.Name] == rules.CommandExempt {
		done.Ended = exemptedByRule(p, c)
	}
	keys, err := c.reach(ctx, p, a.instance.Partitions())
	if err == nil && len(keys) > 0 {
		if c.wide() || len(c.Keys) > 0 {
			rec.Keys = keys
		}
		err = carryOut(ctx, p, &rec, &done)
	}
	if err != nil {
		return api.Commanded{}, err
	}
	if c.wide() { // keys created, or blocked, between the lookup and the command
		rec.Keys, err = c.reach(ctx, p, a.instance.Partitions())
		if rec.Keys = without(rec.Keys, keys); err == nil && len(rec.Keys) > 0 {
			err = carryOut(ctx, p, &rec, &done)
		}
	}
	if shard.CommandKinds[c.Name] == rules.CommandExempt && err == nil {
		done.Exemptions = exemptionsOf(p, c.Key)
	}
	return done, err
}

// reach returns the keys of a partition that a command concerns. The command's own key is the first one
// where it lies here, even if it has no state.
func (c *Command) reach(ctx context.Context, p Part, partitions int32) (keys []string, err error) {
	if len(c.Keys) > 0 {
		for _, key := range c.Keys {
			if id := partitionOf(key, partitions); id != p.ID() {
				return nil, fmt.Errorf("%w: the keys are of several partitions, such as %d and %d: send a command for each", ErrCommand, p.ID(), id)
			}
			keys = append(keys, event.FormatKey(key))
		}
		return keys, nil
	}
	if partitionOf(c.Key, partitions) == p.ID() {
		keys = append(keys, event.FormatKey(c.Key))
	}
	if !c.wide() {
		return keys, nil
	}
	others, err := p.KeysWith(ctx, c.Key)
	if err == nil && shard.CommandKinds[c.Name] == rules.CommandUnblock {
		others, err = inForceAmong(ctx, p, others, c.Rule)
	}
	return append(keys, others...), err
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

// knowsRule refuses a name that no rule has. The command would do nothing, silently.
func knowsRule(p Part, name string) (err error) {
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

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	known := make(map[string]bool, len(other))
	for _, key := range other {
		known[key] = true
	}
	return slices.DeleteFunc(list, func(key string) bool { return known[key] })
}
