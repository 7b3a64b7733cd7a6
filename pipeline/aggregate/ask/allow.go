package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// allow carries out a limit or a grant. What is refused, or was done already, is not in the audit: so the state is
// asked before, and once more behind it, since another command may come in between. The state alone decides.
func allow(ctx context.Context, a *base, c *Command) (api.Commanded, error) {
	id := c.home(a.instance.Partitions())
	p := a.instance.Part(id)
	if p == nil {
		return api.Commanded{}, fmt.Errorf("%w: partition %d", ErrNotOwner, id)
	}
	done := api.Commanded{ID: c.id, Partition: id}
	c.Allow.ID = cmp.Or(c.Allow.ID, c.id)
	plan, repeated, err := planned(p, c)
	if err == nil && !repeated {
		c.Allow.Until, c.Allow.Asked = plan.Until, plan.Asked
		rec := shard.CommandRecord{
			ID: c.id, Command: c.Name, Key: event.FormatKey(c.Key), Rule: plan.Rule,
			Reason: c.Reason, By: c.By, OnBehalfOf: c.OnBehalfOf, Allow: &c.Allow,
		}
		err = carryOut(ctx, p, &rec, &done)
		if err == nil && !c.Allow.Ends {
			_, _, err = planned(p, c)
		}
	}
	if err != nil {
		return api.Commanded{}, err
	}
	done.Repeated = repeated
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		state, _ := s.State(event.AppendKey(nil, c.Key))
		if given, has := rules.AllowanceOf(state, c.Allow.ID); has {
			one := allowance(byName(c.Key), &given)
			done.Given = &one
		}
	})
	return done, nil
}

// planned completes a command for a limit or a grant by the rules and its key's state, of which it reads a copy: nothing
// holds the partition's lock while Kafka takes the audit. Errors wrap ErrCommand or rules.ErrRefused.
func planned(p Part, c *Command) (plan rules.Command, repeated bool, err error) {
	key := event.AppendKey(nil, c.Key)
	p.View(func(s *shard.Shard, v *owner.Rules) {
		var state []byte
		if state, err = s.State(key); err != nil {
			return
		}
		cmd := rules.Command{
			Kind: shard.CommandKinds[c.Name], Rule: c.Rule, At: now(), PeriodEnd: c.PeriodEnd,
			Giver: rules.Giver{By: c.By, OnBehalfOf: c.OnBehalfOf, Reason: c.Reason},
		}
		if c.Allow.Apply(&cmd); c.For > 0 {
			cmd.Until = cmd.At + event.FromDuration(c.For)
		}
		plan, repeated, err = cmd.Plan(v.Set.NewStepper(), state, key)
	})
	if err != nil && !errors.Is(err, rules.ErrRefused) {
		err = fmt.Errorf("%w: %w", ErrCommand, err)
	}
	return plan, repeated, err
}

func allowance(key map[string]string, a *rules.Allowance) api.Allowance {
	kind := api.KindLimit
	if a.Grant {
		kind = api.KindGrant
	}
	return api.Allowance{Kind: kind, ID: a.ID, Key: key, Rule: a.Rule, Amount: a.Amount, Until: a.Until, Reason: a.Reason, By: a.By, OnBehalfOf: a.OnBehalfOf}
}

// appendAllowances appends what a key's state has that holds at its latest time, or at present if that is later.
func appendAllowances(list []api.Allowance, key []event.Dim, state []byte) []api.Allowance {
	given := rules.AllowancesOf(state, now())
	for i := range given {
		list = append(list, allowance(byName(key), &given[i]))
	}
	return list
}

// grantsUnder adds to explanations of a key the limits and grants that are about each. It is asked only where an
// explanation says that there are some, since few keys have any.
func grantsUnder(p Part, key []event.Dim, of []api.ExplainedRule) {
	var all []api.Allowance
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		if state, err := s.State(event.AppendKey(nil, key)); err == nil {
			all = appendAllowances(nil, key, state)
		}
	})
	for i := range of {
		for _, g := range all {
			if g.Rule == of[i].Rule {
				of[i].Grants = append(of[i].Grants, g)
			}
		}
	}
}
