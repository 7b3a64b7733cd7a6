package aggregate

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules"
)

// commandRequest is the body of POST /v1/commands.
type commandRequest struct {
	Command string            `json:"command"`
	Key     map[string]string `json:"key"`
	Rule    string            `json:"rule"`
	For     string            `json:"for"` // a duration as in rules: 30m, 7d
	Reason  string            `json:"reason"`

	// By and OnBehalfOf are as the caller states: see Actor.who.
	By         string `json:"by"`
	OnBehalfOf string `json:"on_behalf_of"`
}

func (r *commandRequest) command() (c Command, err error) {
	c = Command{Name: r.Command, Rule: r.Rule, Reason: r.Reason}
	if c.Key, err = keyOf(r.Key); err != nil {
		return c, fmt.Errorf("key: %w", err)
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
func (a *api) ServeCommand(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxCommandBody))
	var req commandRequest
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(body))
		d.DisallowUnknownFields()
		err = d.Decode(&req)
	}
	var c Command
	if err == nil {
		c, err = req.command()
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
		a.forward(w, r, a.Partition(c.Key), a.peers.command, body)
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
		httpjson.Reply(w, done)
	}
}
