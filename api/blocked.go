package api

import (
	"context"
	"net/url"
)

// Blocked is the answer to GET /v1/blocked: a page of a partition's keys that have a verdict in force.
type Blocked struct {
	Partitions int32        `json:"partitions" schema:"minimum=1"` // of the topic
	Partition  int32        `json:"partition"`
	Keys       []BlockedKey `json:"keys"`
	Next       string       `json:"next,omitempty"` // the next page's after; absent on the last page
}

// BlockedKey is a key with a verdict in force.
type BlockedKey struct {
	Key   map[string]string `json:"key"`
	Rules []string          `json:"rules" schema:"minItems=1"`
}

// Blocked asks for a page: q has partition, and may have rule, limit and after.
func (a *Client) Blocked(ctx context.Context, q url.Values) (*Blocked, error) {
	return Decode[Blocked](a.Get(ctx, "/v1/blocked?"+q.Encode()))
}
