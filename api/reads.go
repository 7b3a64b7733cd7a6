package api

import (
	"context"
)

// Read is the body of POST /v1/reads: somebody's look at what is known about a key, or, without one, about many.
type Read struct {
	Key        map[string]string `json:"key,omitempty"`
	What       string            `json:"what"`             // was read: a word, such as explain
	Reason     string            `json:"reason,omitempty"` // why; required without a key
	By         string            `json:"by,omitempty"`     // these two as the caller states
	OnBehalfOf string            `json:"on_behalf_of,omitempty"`
}

// ReadNoted is the answer to POST /v1/reads: the audit has it.
type ReadNoted struct {
	ID string `json:"id"` // of the audit entry
}

// Read writes a look at what is known about a key into the audit.
func (a *Client) Read(ctx context.Context, r Read) (*ReadNoted, error) {
	return Decode[ReadNoted](a.Post(ctx, "/v1/reads", r))
}
