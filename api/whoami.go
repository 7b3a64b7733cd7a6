package api

import (
	"context"
)

// Whoami is the answer to GET /v1/whoami: whose credential a request has.
type Whoami struct {
	Credential string `json:"credential"` // token, certificate, issuer or none
	Name       string `json:"name"`
	Role       string `json:"role"` // viewer, operator or admin
}

// Whoami asks whose credential the client shows.
func (a *Client) Whoami(ctx context.Context) (*Whoami, error) {
	return Decode[Whoami](a.Get(ctx, "/v1/whoami"))
}
