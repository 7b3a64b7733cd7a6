package ask

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

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
	if c.allows() {
		return allow(ctx, a.base, &c)
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

// without returns the elements of list that are not in other.
func without(list, other []string) []string {
	known := make(map[string]bool, len(other))
	for _, key := range other {
		known[key] = true
	}
	return slices.DeleteFunc(list, func(key string) bool { return known[key] })
}
