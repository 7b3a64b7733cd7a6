package ask

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// commandRequest is an api.Command as it is read: a key may be text.
type commandRequest struct {
	api.Command
	Key  keyDims  `json:"key"`
	Keys keyLists `json:"keys"`
	commandPart
}

// commandPart is added by an instance that asks another one: where the keys are. The id is then that of the command
// that it is a part of.
type commandPart struct {
	Partition *int32 `json:"partition,omitempty"`
}

// command returns the request's command. passedOn tells that another instance asks.
func (r *commandRequest) command(passedOn bool) (c Command, err error) {
	c = Command{Name: r.Command.Command, Key: r.Key, Exact: r.Exact, Keys: r.Keys, Rule: r.Rule, Reason: r.Reason}
	if c.allows() {
		return c, errors.Join(r.allow(&c), c.validate())
	}
	if r.Limit != "" || r.Amount != "" || r.Until != "" || r.End {
		return c, errors.New("limit, amount, until and end are for the commands limit and grant")
	}
	if passedOn {
		c.id, c.partition = r.ID, r.Partition
	} else if r.ID != "" || r.Partition != nil {
		return c, errors.New("id and partition are for limits, grants, and what instances tell each other: leave them out")
	}
	if r.For != "" {
		d, err := rules.ParseDuration(r.For)
		if err != nil {
			return c, err
		}
		c.For = d.Duration()
	}
	return c, c.validate()
}

// periodEnd stands in until for the end of the key's window.
const periodEnd = "period-end"

// allow reads what the request says of a limit or a grant. Until when is kept as it was asked for, too: the end of a
// period, or a span from now, is another moment when the same request comes again, and the id tells that it is the same
// by these words. A zero is refused, as nobody knows whether it means nothing or no limit; unlimited is a word.
func (r *commandRequest) allow(c *Command) (err error) {
	a := &c.Allow
	a.ID, a.Ends, a.Until, a.Asked = r.ID, r.End, event.NoTime, cmp.Or(r.Until, r.For)
	if r.Keys != nil || r.Partition != nil {
		return errors.New("a limit or a grant is about one key")
	}
	number, other := r.Amount, r.Limit
	if c.Name == api.KindLimit {
		number, other = r.Limit, r.Amount
	}
	switch {
	case other != "":
		return errors.New("limit goes with the command limit, and amount with grant")
	case a.Ends && (number != "" || r.Until != "" || r.For != ""):
		return errors.New("end ends a limit or a grant: leave out how much, and until when")
	case a.Ends:
		return nil
	case number == "":
		return fmt.Errorf("%s needs a number", c.Name)
	case r.Until != "" && r.For != "":
		return errors.New("until and for say the same: leave one of them out")
	case number != "unlimited" || c.Name != api.KindLimit:
		if a.Amount, err = rules.ParseNumber(string(number)); err != nil {
			return err
		}
	}
	switch {
	case r.Until == periodEnd:
		c.PeriodEnd = true
	case r.Until != "":
		if a.Until, err = event.ParseMicros(r.Until); err != nil {
			return fmt.Errorf("until is %.40q, want a time such as 2026-12-31T00:00:00Z, or %s", r.Until, periodEnd)
		}
	case r.For != "":
		d, err := rules.ParseDuration(r.For)
		c.For = d.Duration()
		return err
	}
	return nil
}

// ServeCommand answers POST /v1/commands. This instance carries the command out if it owns the key;
// else the owner does.
func (a *commands) ServeCommand(w http.ResponseWriter, r *http.Request) {
	var req commandRequest
	body, err := readCommand(w, r, &req)
	a.serve(w, r, &req, body, err)
}

// readCommand reads a body that has no unknown fields: one that is misspelt would be left out silently.
func readCommand(w http.ResponseWriter, r *http.Request, into any) (body []byte, err error) {
	if body, err = io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommandBody)); err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	return body, d.Decode(into)
}

// serve answers a request for a command, of which body is what another instance is sent, or err what is wrong with it.
func (a *commands) serve(w http.ResponseWriter, r *http.Request, req *commandRequest, body []byte, err error) {
	var c Command
	if err == nil {
		c, err = req.command(r.Header.Get(forwardedHeader) != "")
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	actor := ActorOf(r.Context())
	if err := actor.may(c.Name); err != nil {
		httpjson.Problem(w, http.StatusForbidden, err.Error())
		return
	}
	c.By, c.OnBehalfOf = actor.Who(req.By, req.OnBehalfOf)
	if !a.instance.Online() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "not connected to Kafka yet")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandWithin)
	defer cancel()
	done, err := a.Command(ctx, c)
	switch {
	case errors.Is(err, ErrNotOwner) && r.Header.Get(forwardedHeader) == "":
		a.forward(w, r, c.home(a.instance.Partitions()), a.peers.command, body)
	case errors.Is(err, ErrNotOwner):
		httpjson.Problem(w, http.StatusServiceUnavailable, "the key's partition is changing its owner: nothing was done, try again")
	case errors.Is(err, rules.ErrRefused):
		httpjson.Problem(w, http.StatusConflict, strings.TrimPrefix(err.Error(), rules.ErrRefused.Error()+": "))
	case errors.Is(err, ErrCommand):
		httpjson.Problem(w, http.StatusBadRequest, strings.TrimPrefix(err.Error(), ErrCommand.Error()+": "))
	case err != nil:
		httpjson.Problem(w, http.StatusGatewayTimeout, err.Error())
	default:
		if done.Verdicts == nil {
			done.Verdicts = []verdict.Verdict{}
		}
		if done.Each == nil {
			done.Each = []map[string]string{}
		}
		httpjson.Reply(w, done)
	}
}

// commandEverywhere carries out a command on its keys in all partitions: the keys that contain dimensions
// without a uid are in any of them.
func (a *commands) commandEverywhere(ctx context.Context, c *Command) (api.Commanded, error) {
	partitions := a.instance.Partitions()
	total := api.Commanded{ID: c.id, Partition: c.home(partitions)}
	var errs []error
	scatter(a.every(), partsAtOnce, func(id int32) (api.Commanded, error) {
		one, err := a.commandIn(ctx, c, id)
		if errors.Is(err, ErrNotOwner) {
			return a.commandElsewhere(ctx, c, id)
		}
		return one, err
	}, func(id int32, one api.Commanded, err error) {
		if err != nil {
			errs = append(errs, fmt.Errorf("partition %d: %w", id, err))
			return
		}
		addDone(&total, &one)
	})
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
func (a *commands) commandElsewhere(ctx context.Context, c *Command, id int32) (done api.Commanded, err error) {
	req := struct {
		api.Command
		commandPart
	}{api.Command{Command: c.Name, Key: byName(c.Key), Rule: c.Rule, Reason: c.Reason, By: c.By, OnBehalfOf: c.OnBehalfOf, ID: c.id}, commandPart{&id}}
	if actor := ActorOf(ctx); actor.Name != "" { // the owner hears the name from us
		req.By = ""
	}
	body, err := json.Marshal(&req)
	if err != nil {
		return done, err
	}
	return askOwner[api.Commanded](ctx, a.base, id, http.MethodPost, "/v1/commands", body)
}

// inForceAmong are those keys of a partition on which a rule, or any one for "", has something in force,
// also in shadow mode. It looks at them in slices between events.
func inForceAmong(ctx context.Context, p Part, keys []string, rule string) (out []string, err error) {
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

// exemptedByRule counts the exemptions of a key that a command ends or replaces.
func exemptedByRule(p Part, c *Command) (n int) {
	text := event.FormatKey(c.Key)
	p.View(func(s *shard.Shard, _ *owner.Rules) {
		n = len(slices.DeleteFunc(s.Exempted(c.Key, now()), func(e shard.Exempted) bool { return e.Key != text || e.Rule != c.Rule }))
	})
	return n
}
