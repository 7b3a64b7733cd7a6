package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// commandRequest is an api.Command as it is read: a key may be text.
type commandRequest struct {
	api.Command
	Key  keyDims  `json:"key"`
	Keys keyLists `json:"keys"`
	commandPart
}

// commandPart is added by an instance that asks another one: the command that it is a part of, and where its keys are.
type commandPart struct {
	ID        string `json:"id,omitempty"`
	Partition *int32 `json:"partition,omitempty"`
}

// command is what is asked for. passedOn tells that another instance asks.
func (r *commandRequest) command(passedOn bool) (c Command, err error) {
	c = Command{Name: r.Command.Command, Key: r.Key, Exact: r.Exact, Keys: r.Keys, Rule: r.Rule, Reason: r.Reason}
	if passedOn {
		c.id, c.partition = r.ID, r.Partition
	} else if r.ID != "" || r.Partition != nil {
		return c, errors.New("id and partition are what instances tell each other: leave them out")
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

// ServeCommand answers POST /v1/commands. This instance carries the command out if it owns the key;
// else the owner does.
func (a *answers) ServeCommand(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommandBody))
	var req commandRequest
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(&req)
	}
	var c Command
	if err == nil {
		c, err = req.command(r.Header.Get(forwardedHeader) != "")
	}
	if err != nil {
		httpjson.Problem(w, http.StatusBadRequest, err.Error())
		return
	}
	actor := actorOf(r.Context())
	if err := actor.may(c.Name); err != nil {
		httpjson.Problem(w, http.StatusForbidden, err.Error())
		return
	}
	c.By, c.OnBehalfOf = actor.who(req.By, req.OnBehalfOf)
	if !a.online.Load() {
		httpjson.Problem(w, http.StatusServiceUnavailable, "not connected to Kafka yet")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), commandWithin)
	defer cancel()
	done, err := a.Command(ctx, c)
	switch {
	case errors.Is(err, ErrNotOwner) && r.Header.Get(forwardedHeader) == "":
		a.forward(w, r, c.home(a.found.Load().Partitions), a.peers.command, body)
	case errors.Is(err, ErrNotOwner):
		httpjson.Problem(w, http.StatusServiceUnavailable, "the key's partition is changing its owner: nothing was done, try again")
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
