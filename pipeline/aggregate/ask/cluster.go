package ask

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
)

// answerWithin bounds the wait for a member. Together with what Group.Seen waits for Kafka it is
// less than what a reader of the answer waits for.
const answerWithin = 1200 * time.Millisecond

// cluster asks all members of the group.
type cluster struct{ *base }

// Cluster returns what all members of the group say about themselves: own is this instance's status, and the
// others are asked for path. It takes two seconds at most, whoever does not answer; without Kafka they are those
// that were members last.
func (a *cluster) Cluster(ctx context.Context, own api.Status, path string) api.Cluster {
	c := api.Cluster{Members: []api.Status{own}}
	var group Seen
	var err error
	c.Missing, group, err = askFellows(ctx, a.base, path, func(theirs *api.Status) { c.Members = append(c.Members, *theirs) })
	c.Trouble = group.Trouble
	byInstance := func(x, y api.Status) int {
		return cmp.Or(cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.Address, y.Address))
	}
	slices.SortFunc(c.Members, byInstance)
	countDiffering(c.Members)
	c.Unowned = unowned(&c, group, err)
	return c
}

// askFellows asks the other members for path, and gives each answer to with, one at a time. It returns those that
// did not answer, and the group, which is an earlier one if err says that Kafka did not name it now.
func askFellows[T any](ctx context.Context, a *base, path string, with func(*T)) (missing []api.MissingMember, group Seen, err error) {
	group, err = a.group.Seen(ctx)
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	scatter(group.Others, allAtOnce, func(m Member) (T, error) { return askFellow[T](ctx, a, m, path) }, func(m Member, theirs T, err error) {
		if err != nil {
			missing = append(missing, api.MissingMember{Instance: m.Name, Address: m.At.Addr, Reason: err.Error()})
			return
		}
		with(&theirs)
	})
	slices.SortFunc(missing, func(x, y api.MissingMember) int {
		return cmp.Or(cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.Address, y.Address))
	})
	return missing, group, err
}

// askFellow asks one member.
func askFellow[T any](ctx context.Context, a *base, m Member, path string) (answer T, err error) {
	if m.At.Addr == "" {
		return answer, errors.New("it advertises no address: start it with --advertise")
	}
	answer, err = askInstance[T](ctx, a.peers, m.At, http.MethodGet, path, nil)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("it has not answered within %v", answerWithin)
	case err != nil:
		err = errors.New(strings.TrimPrefix(err.Error(), "ask its owner: "))
	}
	return answer, err
}

// countDiffering notes how many members run other rules than each.
func countDiffering(members []api.Status) {
	for i := range members {
		mine := members[i].Aggregator
		if mine == nil {
			continue
		}
		for j := range members {
			if theirs := members[j].Aggregator; theirs != nil && theirs.Rules.Version != mine.Rules.Version {
				mine.Rules.Differ++
			}
		}
	}
}

// unowned are the partitions that no answer has, each with the reason.
func unowned(c *api.Cluster, group Seen, err error) (all []api.MissingPartition) {
	has, of := map[int32]bool{}, int32(0)
	for _, m := range c.Members {
		if m.Aggregator == nil {
			continue
		}
		of = max(of, m.Aggregator.Of)
		for _, p := range m.Aggregator.Partitions {
			has[p.Partition] = true
		}
	}
	for id := range of {
		if has[id] {
			continue
		}
		o, owned := group.Owners[id]
		all = append(all, api.MissingPartition{Partition: id, Reason: whyUnowned(c, o, owned, cmp.Or(group.OwnersErr, err))})
	}
	return all
}

func whyUnowned(c *api.Cluster, o Address, owned bool, err error) string {
	for _, m := range c.Missing {
		if owned && o.Addr != "" && m.Address == o.Addr {
			return fmt.Sprintf("its owner %s did not answer: %s", m.Instance, m.Reason)
		}
	}
	switch {
	case o.Err != nil:
		return o.Err.Error()
	case err != nil:
		return "no member has it, and Kafka was not asked: " + err.Error()
	case !owned:
		return "it has no owner at the moment: the group rebalances, or no instance runs"
	}
	return "it is changing its owner"
}

// ServeUnmatched answers GET /v1/unmatched: what the events say that no rule counts, since each instance began. Any
// instance answers for the whole group.
func (a *cluster) ServeUnmatched(w http.ResponseWriter, r *http.Request) {
	reply := api.Unmatched{Unmatched: a.instance.Unmatched(), Instances: 1}
	if r.Header.Get(forwardedHeader) == "" {
		var seen Seen
		reply.Missing, seen, _ = askFellows(r.Context(), a.base, "/v1/unmatched", func(theirs *api.Unmatched) {
			reply.Instances++
			reply.Unmatched = append(reply.Unmatched, theirs.Unmatched...)
		})
		reply.Trouble = seen.Trouble
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
