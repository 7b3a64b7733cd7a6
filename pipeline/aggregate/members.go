package aggregate

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// memberAge is the time for which an answer about the group's members is valid: one who asks for many keys asks the
// coordinator once. An owner that was replaced meanwhile refuses the question, and it can be repeated.
const memberAge = time.Second

// peerAgain is the least time between two questions about members with unknown keys.
const peerAgain = 100 * time.Millisecond

// membersWithin bounds a question about the group's members to the coordinator.
const membersWithin = 500 * time.Millisecond

// members is the group as the coordinator last described it.
type members struct {
	mu     sync.Mutex
	at     time.Time
	groups []*sarama.GroupDescription

	last   atomic.Pointer[groupSeen] // the same, for those who do not wait for an answer
	asking atomic.Pointer[question]  // that somebody waits for; nil: none
}

// groupSeen is an answer about the group's members.
type groupSeen struct {
	at     time.Time
	groups []*sarama.GroupDescription
}

// question is one that the coordinator is being asked.
type question struct {
	done chan struct{} // closed when there is an answer
	err  error         // set before
}

// errNoCoordinator says that the group's coordinator takes long to answer.
var errNoCoordinator = fmt.Errorf("the group's coordinator does not answer: %w", context.DeadlineExceeded)

// within returns the group as describe does, but waits for patience at most. Then, and if Kafka does not answer,
// it is the group of the last answer, with the reason.
func (s *members) within(ctx context.Context, a *instance, age, patience time.Duration) (is groupSeen, err error) {
	if last := s.last.Load(); last != nil && time.Since(last.at) < age {
		return *last, nil
	}
	q := &question{done: make(chan struct{})}
	if !s.asking.CompareAndSwap(nil, q) {
		if other := s.asking.Load(); other != nil {
			q = other
		} else {
			close(q.done) // answered just now
		}
	} else if !a.asking.start(func() {
		_, q.err = s.describe(a, age)
		s.asking.Store(nil)
		close(q.done)
	}) {
		s.asking.Store(nil)
		q.err = errors.New("this instance is stopping")
		close(q.done)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-q.done:
		err = q.err
	case <-late.C:
		err = errNoCoordinator
	case <-ctx.Done():
		err = ctx.Err()
	}
	if last := s.last.Load(); last != nil {
		is = *last
	}
	return is, err
}

// describe returns the group, by an answer that is at most this old.
func (s *members) describe(a *instance, age time.Duration) ([]*sarama.GroupDescription, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) < age {
		return s.groups, nil
	}
	if !a.online.Load() {
		return nil, errors.New("this instance is not connected: it has just been started, or only publishes")
	}
	admin, err := sarama.NewClusterAdminFromClient(a.clients.bulk)
	if err != nil {
		return nil, err
	}
	groups, err := describeGroup(admin, a.names.Group)
	if err != nil {
		// sarama continues to ask the coordinator that it remembers, even after another broker has
		// replaced it.
		if err := a.clients.bulk.RefreshCoordinator(a.names.Group); err != nil {
			return nil, err
		}
		groups, err = describeGroup(admin, a.names.Group)
	}
	if err == nil {
		s.at, s.groups = time.Now(), groups
		s.last.Store(&groupSeen{s.at, groups})
	}
	return groups, err
}

// owners returns the owner of each partition that has one, as the group's coordinator knows them.
func (a *instance) owners() (map[int32]ask.Address, error) {
	groups, err := a.members.describe(a, memberAge)
	if err != nil {
		return nil, fmt.Errorf("ask for the group's members: %w", err)
	}
	return ownersOf(a, groups)
}

func ownersOf(a *instance, groups []*sarama.GroupDescription) (map[int32]ask.Address, error) {
	all := map[int32]ask.Address{}
	for _, g := range groups {
		for _, m := range g.Members {
			assigned, err := m.GetMemberAssignment()
			if err != nil {
				return nil, fmt.Errorf("read the assignment of member %s: %w", m.MemberId, err)
			}
			if assigned == nil {
				continue
			}
			meta, err := m.GetMemberMetadata()
			if err != nil {
				return nil, fmt.Errorf("read the metadata of member %s: %w", m.MemberId, err)
			}
			var is topics.Member
			if meta != nil {
				is = topics.ParseMember(meta.UserData)
			}
			for _, id := range assigned.Topics[a.names.Events] {
				if is.Advertise == "" {
					all[id] = ask.Address{Err: fmt.Errorf("partition %d belongs to %s at %s, which advertises no address: start it with --advertise", id, m.ClientId, m.ClientHost)}
					continue
				}
				all[id] = ask.Address{Addr: is.Advertise, TLS: is.TLS}
			}
		}
	}
	return all, nil
}

// knows reports whether a member of the group has this public key. One with an unknown key may have joined just now,
// so the coordinator is asked once more. While Kafka does not answer, nobody joins or leaves: then the group is what it
// was, so that instances can still tell each other how they are; unless it has to be known now.
func (s *members) knows(ctx context.Context, a *instance, key string, now bool) bool {
	for _, age := range []time.Duration{memberAge, peerAgain} {
		var is groupSeen
		var err error
		if now {
			is.groups, err = s.describe(a, age)
		} else {
			is, err = s.within(ctx, a, age, membersWithin)
		}
		for _, member := range membersOf(is.groups) {
			if member.Key == key && (err == nil || !now) {
				return true
			}
		}
		if err != nil {
			return false
		}
	}
	return false
}

// membersOf yields the members with what each tells of itself: nothing, if it is of another program.
func membersOf(groups []*sarama.GroupDescription) iter.Seq2[*sarama.GroupMemberDescription, topics.Member] {
	return func(yield func(*sarama.GroupMemberDescription, topics.Member) bool) {
		for _, g := range groups {
			for _, m := range g.Members {
				var is topics.Member
				if meta, err := m.GetMemberMetadata(); err == nil && meta != nil {
					is = topics.ParseMember(meta.UserData)
				}
				if !yield(m, is) {
					return
				}
			}
		}
	}
}

// describeGroup returns the group, or the error that its coordinator answered with.
func describeGroup(admin sarama.ClusterAdmin, name string) ([]*sarama.GroupDescription, error) {
	groups, err := admin.DescribeConsumerGroups([]string{name})
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		if !errors.Is(g.Err, sarama.ErrNoError) {
			return nil, g.Err
		}
	}
	return groups, nil
}
