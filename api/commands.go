package api

import (
	"bytes"
	"context"
	"encoding/json"

	"github.com/tallygate/tallygate/verdict"
)

// Command is the body of POST /v1/commands.
type Command struct {
	Command string              `json:"command" schema:"enum=block|unblock|reset|exempt|forget|limit|grant"`
	Key     map[string]string   `json:"key,omitempty"`
	Exact   bool                `json:"exact,omitempty"`                        // this key, and none that contains it
	Keys    []map[string]string `json:"keys,omitempty" schema:"maxItems=10000"` // for unblock, in place of key: these keys alone, all of one partition

	Rule   string     `json:"rule,omitempty"`                      // for unblock, reset and exempt: only this rule or limit; for limit and grant: it
	For    string     `json:"for,omitempty"`                       // for block, exempt, limit and grant: how long, such as 30m or 7d; 0 ends an exemption
	Limit  NumberText `json:"limit,omitempty"`                     // of limit: a number as in rules, or unlimited
	Amount NumberText `json:"amount,omitempty"`                    // of grant: a number as in rules
	Until  string     `json:"until,omitempty"`                     // for limit and grant, in place of for: a time, or period-end
	ID     string     `json:"id,omitempty" schema:"maxLength=128"` // for limit and grant: the same one again does nothing
	End    bool       `json:"end,omitempty"`                       // for limit and grant: end the key's limit, or the grant with the id
	Reason string     `json:"reason" schema:"minLength=1"`         // why, for the audit
	By     string     `json:"by,omitempty"`                        // who, as the caller states: a credential's name goes before it

	OnBehalfOf string `json:"on_behalf_of,omitempty"` // for whom, as the caller states
}

// NumberText is a number as in rules, such as 5k. In JSON it may be a number, too: what payments' webhooks have.
type NumberText string

// UnmarshalJSON reads either.
func (n *NumberText) UnmarshalJSON(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) > 0 && (data[0] == '-' || data[0] >= '0' && data[0] <= '9') {
		*n = NumberText(data)
		return nil
	}
	return json.Unmarshal(data, (*string)(n))
}

// Commanded is the answer to POST /v1/commands: what a command did. It is durable and published.
type Commanded struct {
	ID         string              `json:"id"`                              // of the audit entry
	Partition  int32               `json:"partition"`                       // the key's own
	Keys       int                 `json:"keys"`                            // how many had a state; for forget, how many were erased
	Each       []map[string]string `json:"each" schema:"maxItems=1000"`     // these keys
	Verdicts   []verdict.Verdict   `json:"verdicts" schema:"maxItems=1000"` // that it published, cleared ones too
	Exemptions []Exemption         `json:"exemptions,omitempty"`            // of exempt: those that hold for the key now
	Ended      int                 `json:"ended,omitempty"`                 // of exempt: how many exemptions were ended or replaced
	Given      *Allowance          `json:"given,omitempty"`                 // of limit and grant: what the key has by the command's id
	Repeated   bool                `json:"repeated,omitempty"`              // of limit and grant: the key had it already, and nothing was done
}

// Command gives a command.
func (a *Client) Command(ctx context.Context, c *Command) (*Commanded, error) {
	return Decode[Commanded](a.Post(ctx, "/v1/commands", c))
}
