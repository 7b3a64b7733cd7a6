package aggregate

import (
	"net/http"
	"slices"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/internal/status"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
)

// unmatchedReply is the answer to GET /v1/unmatched.
type unmatchedReply struct {
	Events    uint64                  `json:"events"`
	Unmatched []owner.UnmatchedEvents `json:"unmatched"`
	Instances int                     `json:"instances"`         // that answered, this one among them
	Missing   []status.Missing        `json:"missing,omitempty"` // members that did not
	Trouble   *status.Trouble         `json:"trouble,omitempty"` // why Kafka was not asked for the members
}

// ServeUnmatched answers GET /v1/unmatched: what the events say that no rule counts, since each instance began. Any
// instance answers for the whole group.
func (a cluster) ServeUnmatched(w http.ResponseWriter, r *http.Request) {
	reply := unmatchedReply{Unmatched: a.metrics.partitions.Unmatched(), Instances: 1}
	if r.Header.Get(forwardedHeader) == "" {
		reply.Missing, reply.Trouble, _, _ = askFellows(r.Context(), a, "/v1/unmatched", func(theirs *unmatchedReply) {
			reply.Instances++
			reply.Unmatched = append(reply.Unmatched, theirs.Unmatched...)
		})
		reply.join()
	}
	for _, u := range reply.Unmatched {
		reply.Events += u.Events
	}
	httpjson.Reply(w, reply)
}

// join adds up what several instances have seen of the same API and outcome.
func (r *unmatchedReply) join() {
	type said struct {
		api, outcome string
		noUID        bool
	}
	sums := map[said]uint64{}
	for _, u := range r.Unmatched {
		sums[said{u.API, u.Outcome, u.NoUID}] += u.Events
	}
	r.Unmatched = make([]owner.UnmatchedEvents, 0, len(sums))
	for s, events := range sums {
		r.Unmatched = append(r.Unmatched, owner.UnmatchedEvents{API: s.api, Outcome: s.outcome, Events: events, NoUID: s.noUID})
	}
	slices.SortFunc(r.Unmatched, owner.UnmatchedEvents.Compare)
}
