package aggregate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// answerWithin is how long a member may take to say how it is. Together with membersWithin it is less than what
// a reader of the answer waits for.
const answerWithin = 1200 * time.Millisecond

// fellow is another member of the group.
type fellow struct {
	name string
	at   address
}

// cluster asks all members of the group.
type cluster struct{ *instance }

// Cluster returns what all members of the group say about themselves: own is this instance's status, and the
// others are asked for path. It takes two seconds at most, whoever does not answer; without Kafka they are those
// that were members last.
func (a cluster) Cluster(ctx context.Context, own api.Status, path string) api.Cluster {
	c := api.Cluster{Members: []api.Status{own}}
	var group groupSeen
	var err error
	c.Missing, c.Trouble, group, err = askFellows(ctx, a, path, func(theirs *api.Status) { c.Members = append(c.Members, *theirs) })
	byInstance := func(x, y api.Status) int {
		return cmp.Or(cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.Address, y.Address))
	}
	slices.SortFunc(c.Members, byInstance)
	countDiffering(c.Members)
	c.Unowned = a.unowned(&c, group, err)
	return c
}

// askFellows asks the other members for path, and gives each answer to with, one at a time. It returns those that
// did not answer, and the group with the reason if Kafka did not name it now: then it is that of the last answer.
func askFellows[T any](ctx context.Context, a cluster, path string, with func(*T)) (missing []api.MissingMember, trouble *api.Trouble, group groupSeen, err error) {
	group, err = a.members.within(ctx, a.instance, memberAge, membersWithin)
	if err != nil {
		trouble = a.membersTrouble(err, group.at)
	}
	ctx, cancel := context.WithTimeout(ctx, answerWithin)
	defer cancel()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, f := range a.fellows(group) {
		asked.Go(func() {
			var theirs T
			err := a.askFellow(ctx, f, path, &theirs)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				missing = append(missing, api.MissingMember{Instance: f.name, Address: f.at.addr, Reason: err.Error()})
				return
			}
			with(&theirs)
		})
	}
	asked.Wait()
	slices.SortFunc(missing, func(x, y api.MissingMember) int {
		return cmp.Or(cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.Address, y.Address))
	})
	return missing, trouble, group, err
}

// membersTrouble says why the group's members are those of an earlier answer.
func (a cluster) membersTrouble(err error, last time.Time) *api.Trouble {
	t := &api.Trouble{Since: last.UTC(), Reason: reasonOf(err), Error: "ask for the group's members: " + err.Error()}
	if last.IsZero() {
		t.Since = time.Now().UTC()
	}
	return t
}

// fellows are the other members.
func (a cluster) fellows(group groupSeen) (all []fellow) {
	for _, g := range group.groups {
		for _, m := range g.Members {
			var is topics.Member
			if meta, err := m.GetMemberMetadata(); err == nil && meta != nil {
				is = topics.ParseMember(meta.UserData)
			}
			if is.Key == a.peers.public || is.Advertise != "" && is.Advertise == a.cfg.Advertise {
				continue
			}
			f := fellow{cmp.Or(is.Advertise, m.ClientHost), address{addr: is.Advertise, tls: is.TLS}}
			if m.ClientId != a.cfg.Prefix+defaultClient {
				f.name = m.ClientId // its instance id
			}
			all = append(all, f)
		}
	}
	return all
}

// askFellow asks one member.
func (a cluster) askFellow(ctx context.Context, f fellow, path string, into any) error {
	if f.at.addr == "" {
		return errors.New("it advertises no address: start it with --advertise")
	}
	err := a.peers.askInstance(ctx, f.at, http.MethodGet, path, nil, into)
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("it has not answered within %v", answerWithin)
	case err != nil:
		err = errors.New(strings.TrimPrefix(err.Error(), "ask its owner: "))
	}
	return err
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
func (a cluster) unowned(c *api.Cluster, group groupSeen, err error) (all []api.MissingPartition) {
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
	owners, ownersErr := ownersOf(a.instance, group.groups)
	for id := range of {
		if has[id] {
			continue
		}
		o, owned := owners[id]
		all = append(all, api.MissingPartition{Partition: id, Reason: a.whyUnowned(c, o, owned, cmp.Or(ownersErr, err))})
	}
	return all
}

func (a cluster) whyUnowned(c *api.Cluster, o address, owned bool, err error) string {
	for _, m := range c.Missing {
		if owned && o.addr != "" && m.Address == o.addr {
			return fmt.Sprintf("its owner %s did not answer: %s", m.Instance, m.Reason)
		}
	}
	switch {
	case o.err != nil:
		return o.err.Error()
	case err != nil:
		return "no member has it, and Kafka was not asked: " + err.Error()
	case !owned:
		return "it has no owner at the moment: the group rebalances, or no instance runs"
	}
	return "it is changing its owner"
}
