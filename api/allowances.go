package api

import (
	"context"
	"net/url"

	"github.com/tallygate/tallygate/event"
)

// Allowances is the answer to GET /v1/grants: the limits and grants by commands whose keys have all dimensions of the
// question.
type Allowances struct {
	Grants     []Allowance        `json:"grants"`
	More       int                `json:"more,omitempty"`    // how many are left out
	Missing    []MissingPartition `json:"missing,omitempty"` // partitions without an answer
	Partitions []int32            `json:"partitions"`        // that answered
}

// Allowance is a limit of its own that a command gave to a key, or a grant, which adds to the key's limit.
type Allowance struct {
	Kind       string            `json:"kind" schema:"enum=limit|grant"`
	ID         string            `json:"id"`
	Key        map[string]string `json:"key"`
	Rule       string            `json:"rule"`   // the limit that it is about
	Amount     event.Decimal     `json:"amount"` // the limit, 0: unlimited; or what is granted
	Until      event.Micros      `json:"until"`  // by the key's latest time; NoTime: it has no end
	Reason     string            `json:"reason"`
	By         string            `json:"by,omitempty"`
	OnBehalfOf string            `json:"on_behalf_of,omitempty"`
}

// Grant is the body of POST /v1/grants: what a payment bought.
type Grant struct {
	ID     string            `json:"id" schema:"minLength=1"` // of the payment, say: the same one again grants nothing more
	Key    map[string]string `json:"key"`
	Rule   string            `json:"rule" schema:"minLength=1"` // the limit that it adds to
	Amount NumberText        `json:"amount"`
	Until  string            `json:"until,omitempty"`             // a time, or period-end, which is the default where the window has an end
	Reason string            `json:"reason" schema:"minLength=1"` // why, for the audit
}

// GiveGrant grants.
func (a *Client) GiveGrant(ctx context.Context, g *Grant) (*Commanded, error) {
	return Decode[Commanded](a.Post(ctx, "/v1/grants", g))
}

// The kinds of allowances.
const (
	KindLimit = "limit"
	KindGrant = "grant"
)

// Grants asks which limits and grants keys have by commands: q is a KeyQuery, or empty for all, and may have limit.
func (a *Client) Grants(ctx context.Context, q url.Values) (*Allowances, error) {
	return Decode[Allowances](a.Get(ctx, "/v1/grants?"+q.Encode()))
}
