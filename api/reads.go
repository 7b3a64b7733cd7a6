package api

import (
	"context"
)

// Read is the body of POST /v1/reads: somebody's look at what is known about a key, or, without one, about many.
type Read struct {
	Key        map[string]string `json:"key,omitempty"`
	What       string            `json:"what" schema:"pattern=^[a-z][a-z0-9-]{0,63}$"` // what was read: a word, such as explain
	Reason     string            `json:"reason,omitempty"`                             // why; up to 4096 bytes; required without a key
	By         string            `json:"by,omitempty"`                                 // as the caller states; up to 256 bytes
	OnBehalfOf string            `json:"on_behalf_of,omitempty"`                       // the same
}

// ReadNoted is the answer to POST /v1/reads: the audit has it.
type ReadNoted struct {
	ID string `json:"id"` // of the audit entry
}

// Read writes a look at what is known about a key into the audit.
func (a *Client) Read(ctx context.Context, r Read) (*ReadNoted, error) {
	return Decode[ReadNoted](a.Post(ctx, "/v1/reads", r))
}
