package aggregate

import (
	"net/http"
	"slices"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/httpjson"
)

// ServeUnmatched answers GET /v1/unmatched: what the events say that no rule counts, since each instance began. Any
// instance answers for the whole group.
func (a cluster) ServeUnmatched(w http.ResponseWriter, r *http.Request) {
	reply := api.Unmatched{Unmatched: a.metrics.partitions.Unmatched(), Instances: 1}
	if r.Header.Get(forwardedHeader) == "" {
		reply.Missing, reply.Trouble, _, _ = askFellows(r.Context(), a, "/v1/unmatched", func(theirs *api.Unmatched) {
			reply.Instances++
			reply.Unmatched = append(reply.Unmatched, theirs.Unmatched...)
		})
		joinUnmatched(&reply)
	}
	for _, u := range reply.Unmatched {
		reply.Events += u.Events
	}
	httpjson.Reply(w, reply)
}

// joinUnmatched adds up what several instances have seen of the same API and outcome.
func joinUnmatched(r *api.Unmatched) {
	type said struct {
		api, outcome string
		noUID        bool
	}
	sums := map[said]uint64{}
	for _, u := range r.Unmatched {
		sums[said{u.API, u.Outcome, u.NoUID}] += u.Events
	}
	r.Unmatched = make([]api.UnmatchedEvents, 0, len(sums))
	for s, events := range sums {
		r.Unmatched = append(r.Unmatched, api.UnmatchedEvents{API: s.api, Outcome: s.outcome, Events: events, NoUID: s.noUID})
	}
	slices.SortFunc(r.Unmatched, api.UnmatchedEvents.Compare)
}
