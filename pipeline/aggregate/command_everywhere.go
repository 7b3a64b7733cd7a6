package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/pipeline/event"
)

// partsAtOnce is how many partitions are asked at the same time.
const partsAtOnce = 16

// commandEverywhere carries out a command on its keys in all partitions: the keys that contain dimensions
// without a uid are in any of them.
func (a *answers) commandEverywhere(ctx context.Context, c *Command) (api.Commanded, error) {
	total := api.Commanded{ID: c.id, Partition: c.home(a.found.Load().Partitions)}
	var mu sync.Mutex
	var errs []error
	var g errgroup.Group
	g.SetLimit(partsAtOnce)
	partitions := a.found.Load().Partitions
	for id := range partitions {
		g.Go(func() error {
			one, err := a.commandIn(ctx, c, id)
			if errors.Is(err, ErrNotOwner) {
				one, err = a.commandElsewhere(ctx, c, id)
			}
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				errs = append(errs, fmt.Errorf("partition %d: %w", id, err))
				return nil
			}
			addDone(&total, &one)
			return nil
		})
	}
	_ = g.Wait() // the errors are in errs
	for _, err := range errs {
		if errors.Is(err, ErrCommand) {
			return api.Commanded{}, errors.Unwrap(err)
		}
	}
	if len(errs) > 0 {
		return total, fmt.Errorf("the command is done in %d of %d partitions, on %d keys: repeat it to do the rest; %w",
			int(partitions)-len(errs), partitions, total.Keys, errs[0])
	}
	return total, nil
}

// commandElsewhere has a partition's owner carry out its part of a command.
func (a *answers) commandElsewhere(ctx context.Context, c *Command, id int32) (done api.Commanded, err error) {
	req := struct {
		api.Command
		commandPart
	}{api.Command{Command: c.Name, Key: byName(c.Key), Rule: c.Rule, Reason: c.Reason, By: c.By, OnBehalfOf: c.OnBehalfOf}, commandPart{c.id, &id}}
	if actor := actorOf(ctx); actor.Name != "" { // the owner hears the name from us
		req.By = ""
	}
	body, err := json.Marshal(&req)
	if err != nil {
		return done, err
	}
	return done, askOwner(ctx, a, id, http.MethodPost, "/v1/commands", body, &done)
}

// inForceAmong are those keys of a partition on which a rule, or any one for "", has something in force,
// also in shadow mode. It looks at them in slices between events.
func inForceAmong(ctx context.Context, p *owner.Partition, keys []string, rule string) (out []string, err error) {
	at := now()
	for next := 0; next < len(keys) && err == nil; {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		p.ViewSome(func(s *shard.Shard, v *owner.Rules) bool {
			key := []byte(keys[next])
			var state []byte
			if state, err = s.State(key); err != nil {
				return false
			}
			for _, e := range v.Set.Explain(state, key, at, "") {
				if (e.Verdict != nil || e.Candidate != nil) && (rule == "" || rule == e.Rule || rule == ruleOf(e.Rule)) {
					out = append(out, keys[next])
					break
				}
			}
			next++
			return next < len(keys)
		})
	}
	return out, err
}

// exemptedByRule is how many exemptions of a key a command ends or replaces.
func exemptedByRule(p *owner.Partition, c *Command) (n int) {
	text := event.FormatKey(c.Key)
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		n = len(slices.DeleteFunc(s.Exempted(c.Key, now()), func(e shard.Exempted) bool { return e.Key != text || e.Rule != c.Rule }))
	})
	return n
}
