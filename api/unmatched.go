package api

import (
	"cmp"
	"context"
)

// Unmatched is the answer to GET /v1/unmatched: what the events say that no rule counts, since each instance began.
type Unmatched struct {
	Events    uint64            `json:"events"`
	Unmatched []UnmatchedEvents `json:"unmatched"`
	Instances int               `json:"instances" schema:"minimum=1"` // how many answered, this one among them
	Missing   []MissingMember   `json:"missing,omitempty"`            // members that did not
	Trouble   *Trouble          `json:"trouble,omitempty"`            // why Kafka was not asked for the members
}

// UnmatchedEvents are events of one API and outcome that no rule counts.
type UnmatchedEvents struct {
	API     string `json:"api"`
	Outcome string `json:"outcome"`
	Events  uint64 `json:"events" schema:"minimum=1"`
	NoUID   bool   `json:"no_uid,omitempty"` // they name no user: no rule by user counts them
}

// Compare puts the most events first, and of the same API those that name a user.
func (u UnmatchedEvents) Compare(v UnmatchedEvents) int {
	noUID := func(e UnmatchedEvents) int {
		if e.NoUID {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(v.Events, u.Events), cmp.Compare(u.API, v.API), cmp.Compare(u.Outcome, v.Outcome), cmp.Compare(noUID(u), noUID(v)))
}

// Unmatched asks what the events say that no rule counts.
func (a *Client) Unmatched(ctx context.Context) (*Unmatched, error) {
	return Decode[Unmatched](a.Get(ctx, "/v1/unmatched"))
}
