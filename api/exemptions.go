package api

import (
	"context"
	"net/url"

	"github.com/tallygate/tallygate/event"
)

// Exemptions is the answer to GET /v1/exemptions: those that name all dimensions of the question.
type Exemptions struct {
	Exemptions []Exemption        `json:"exemptions"`
	More       int                `json:"more,omitempty"`    // how many are left out
	Missing    []MissingPartition `json:"missing,omitempty"` // partitions without an answer
	Partitions []int32            `json:"partitions"`        // that answered
}

// Exemption is why keys are counted and not judged.
type Exemption struct {
	From       string            `json:"from" schema:"enum=command|rules"` // rules: the rule file
	Key        map[string]string `json:"key"`                              // the dimensions that it names
	In         string            `json:"in,omitempty"`                     // and an address in this network, or list of networks
	Rules      []string          `json:"rules,omitempty"`                  // that know it; absent: all
	Until      event.Micros      `json:"until"`                            // NoTime: it has no end
	Reason     string            `json:"reason"`
	By         string            `json:"by,omitempty"`
	OnBehalfOf string            `json:"on_behalf_of,omitempty"`
}

// The sources of exemptions.
const (
	FromCommand = "command"
	FromRules   = "rules"
)

// Exemptions asks which keys are exempt: q is a KeyQuery, or empty for all, and may have limit.
func (a *Client) Exemptions(ctx context.Context, q url.Values) (*Exemptions, error) {
	return Decode[Exemptions](a.Get(ctx, "/v1/exemptions?"+q.Encode()))
}
