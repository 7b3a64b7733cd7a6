package aggregate

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// Meeting is a place in Redis where the members that use it meet. Addresses do not tell that: one Redis has several,
// and one address is another Redis elsewhere.
type Meeting interface {
	// Meet leaves this member's name there for a while, and returns all names that are there.
	Meet(ctx context.Context, own string) (met []string, err error)
}

const (
	agreeEvery = 10 * time.Second // and when a session begins
	meetWithin = 2 * time.Second
	// A member is strange when it was missing in so many looks that Redis answered: one that joins has not been there
	// yet, and one whose Redis fails over comes back.
	unmetLooks = 4
)

// agreement compares this member with the others in what must be the same for all: an aggregator without Redis in a
// group whose others have one counts, and nobody hears of its verdicts. The rules are compared elsewhere: they come
// from a topic. The topics are the group's, by its name.
type agreement struct {
	*instance
	unmet map[string]int // members with Redis, by key: looks in a row at which they were not met
	told  string         // what was logged last
	seen  atomic.Pointer[[]api.Difference]
}

// run compares until ctx ends.
func (a *agreement) run(ctx context.Context) {
	var last *owner.Session
	var at time.Time
	for retry.Sleep(ctx, time.Second) {
		a.mu.RLock()
		session := a.session
		a.mu.RUnlock()
		if session == nil || session == last && time.Since(at) < agreeEvery {
			continue
		}
		group, err := a.members.within(ctx, a.instance, memberAge, membersWithin)
		if err != nil {
			continue // Kafka does not answer, which others log
		}
		last, at = session, time.Now()
		a.look(ctx, othersOf(group.groups, a.cfg.peerKey))
	}
}

// otherMember is another member's user data.
type otherMember struct {
	topics.Member
	name string
}

// othersOf are the members with another key. Older members tell nothing.
func othersOf(groups []*sarama.GroupDescription, own string) (all []otherMember) {
	for m, is := range membersOf(groups) {
		if is.Key != own {
			all = append(all, otherMember{is, cmp.Or(is.Advertise, m.ClientId)})
		}
	}
	return all
}

// look compares this member with others, and says what differs.
func (a *agreement) look(ctx context.Context, others []otherMember) {
	if a.cfg.Meeting != nil {
		ctx, cancel := context.WithTimeout(ctx, meetWithin)
		met, err := a.cfg.Meeting.Meet(ctx, a.cfg.peerKey)
		cancel()
		if err == nil { // else nobody can be met, which the publisher logs
			a.meet(others, met)
		}
	}
	differs := a.compare(a.cfg.member(), others)
	lines := make([]string, len(differs))
	count := map[string]int{api.DiffersRedis: 0, api.DiffersShards: 0, api.DiffersBrokerTime: 0}
	for i, d := range differs {
		lines[i] = d.String()
		count[d.What]++
	}
	for what, n := range count {
		a.metrics.membersDiffer.WithLabelValues(what).Set(float64(n))
	}
	a.seen.Store(&differs)
	switch now := strings.Join(lines, "; "); {
	case now == a.told:
	case now == "":
		a.told = ""
		a.log.Info("all members of the group agree again")
	default:
		a.told = now
		a.log.Error("members of the group differ in what must be the same for all", "members", now)
	}
}

// meet notes who was met.
func (a *agreement) meet(others []otherMember, met []string) {
	unmet := map[string]int{}
	for _, m := range others {
		if m.Redis == topics.WithRedis && !slices.Contains(met, m.Key) {
			unmet[m.Key] = a.unmet[m.Key] + 1
		}
	}
	a.unmet = unmet
}

// compare returns what differs between this member and others. What a member does not tell does not differ.
func (a *agreement) compare(own topics.Member, others []otherMember) []api.Difference {
	differs := []api.Difference{}
	for _, m := range others {
		add := func(what, here, there string) {
			differs = append(differs, api.Difference{Instance: m.name, Address: m.Advertise, What: what, Here: here, There: there})
		}
		switch {
		case m.Redis == "":
		case m.Redis != own.Redis && m.Redis == topics.WithoutRedis:
			add(api.DiffersRedis, api.RedisThis, api.RedisNone)
		case m.Redis != own.Redis:
			add(api.DiffersRedis, api.RedisNone, api.RedisThis)
		case a.unmet[m.Key] >= unmetLooks:
			add(api.DiffersRedis, api.RedisThis, api.RedisAnother)
		}
		if m.Shards != 0 && own.Shards != 0 && m.Shards != own.Shards {
			add(api.DiffersShards, strconv.Itoa(own.Shards), strconv.Itoa(m.Shards))
		}
		if m.BrokerTime != "" && m.BrokerTime != own.BrokerTime {
			add(api.DiffersBrokerTime, own.BrokerTime, m.BrokerTime)
		}
	}
	slices.SortFunc(differs, func(x, y api.Difference) int {
		return cmp.Or(cmp.Compare(x.Instance, y.Instance), cmp.Compare(x.Address, y.Address), cmp.Compare(x.What, y.What))
	})
	return differs
}
