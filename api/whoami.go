package api

import (
	"context"
)

// Whoami is the answer to GET /v1/whoami: whose credential a request has.
type Whoami struct {
	Credential string `json:"credential" schema:"enum=token|certificate|issuer|none"` // what proves it; none: no credential is needed
	Name       string `json:"name"`                                                   // as in the audit; empty if no credential is needed
	Role       string `json:"role" schema:"enum=viewer|operator|admin"`
}

// Whoami asks whose credential the client shows.
func (a *Client) Whoami(ctx context.Context) (*Whoami, error) {
	return Decode[Whoami](a.Get(ctx, "/v1/whoami"))
}
