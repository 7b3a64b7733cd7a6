package aggregate

import (
	"net/http"

	"github.com/tallygate/tallygate/internal/httpjson"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
)

// overview answers what is asked about this instance, and about no key.
type overview struct{ *instance }

// runningRules is the answer to GET /v1/rules: the version of the group's rules that this instance runs, as it
// was published.
type runningRules struct {
	Version int64 `json:"version"`
	ruleRecord
}

// unmatchedReply is the answer to GET /v1/unmatched.
type unmatchedReply struct {
	Events    uint64                  `json:"events"`
	Unmatched []owner.UnmatchedEvents `json:"unmatched"`
}

// ServeUnmatched answers GET /v1/unmatched: what the events say that no rule counts, of the partitions of this
// instance, since it began.
func (a overview) ServeUnmatched(w http.ResponseWriter, _ *http.Request) {
	reply := unmatchedReply{Unmatched: a.metrics.partitions.Unmatched()}
	for _, u := range reply.Unmatched {
		reply.Events += u.Events
	}
	httpjson.Reply(w, reply)
}
