package api

import (
	"context"

	"github.com/tallygate/tallygate/pipeline/verdict"
)

// Command is the body of POST /v1/commands.
type Command struct {
	Command string              `json:"command"` // block, unblock, reset, exempt or forget
	Key     map[string]string   `json:"key,omitempty"`
	Exact   bool                `json:"exact,omitempty"` // this key, and none that contains it
	Keys    []map[string]string `json:"keys,omitempty"`  // for unblock: these keys alone, all of one partition; in place of Key
	Rule    string              `json:"rule,omitempty"`  // for unblock, reset and exempt: only this rule or limit
	For     string              `json:"for,omitempty"`   // for block and exempt: how long, as in rules, such as 30m or 7d; 0 ends an exemption
	Reason  string              `json:"reason"`          // why, for the audit
	By      string              `json:"by,omitempty"`    // who, as the caller states: a credential's name goes before it

	OnBehalfOf string `json:"on_behalf_of,omitempty"` // for whom, as the caller states
}

// Commanded is the answer to POST /v1/commands: what a command did. It is durable and published.
type Commanded struct {
	ID        string `json:"id"`        // of the audit entry
	Partition int32  `json:"partition"` // the key's own
	Keys      int    `json:"keys"`      // that had a state; for forget, those erased

	// Each are these keys, and Verdicts those that it published, cleared ones too: of both at most 1000.
	Each     []map[string]string `json:"each"`
	Verdicts []verdict.Verdict   `json:"verdicts"`

	// Of exempt: what holds for the key now, and how many exemptions were ended or replaced.
	Exemptions []Exemption `json:"exemptions,omitempty"`
	Ended      int         `json:"ended,omitempty"`
}

// Command gives a command.
func (a *Client) Command(ctx context.Context, c *Command) (*Commanded, error) {
	return Decode[Commanded](a.Post(ctx, "/v1/commands", c))
}
