package aggregate

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/base/retry"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

const (
	// watchTopicsEvery is shorter than sarama waits before it reads on in a recreated topic of the
	// same name. Records of the new topic must not be taken for those of the old one.
	watchTopicsEvery = time.Second
	watchRulesEvery  = 10 * time.Second
)

// watch checks until ctx ends whether the topics are still those of the session's beginning, and
// whether all members count by the same rules.
func (a *watching) watch(ctx context.Context) {
	var rulesAt, packsAt time.Time
	for retry.Sleep(ctx, watchTopicsEvery) {
		looked := make(chan struct{})
		a.asking.start(func() { // do not wait for an unreachable Kafka
			defer close(looked)
			if a.watchTopics(); time.Since(rulesAt) > watchRulesEvery {
				rulesAt = time.Now()
				_, _ = a.members.describe(a.instance, memberAge) // for the time when Kafka does not answer
				a.compareRules()
			}
			if !a.packs.allowed() || time.Since(packsAt) > watchRulesEvery {
				packsAt = time.Now()
				a.lookAtPacks()
			}
		})
		select {
		case <-looked:
		case <-ctx.Done():
			return
		}
	}
}

// watchTopics ends the session if a topic is no longer the one that it began with.
func (a *watching) watchTopics() {
	a.mu.RLock()
	s := a.session
	a.mu.RUnlock()
	have, err := a.look()
	if err == nil && s != nil {
		err = sameTopics(s.Topics, have)
	} else if a.fatal() == nil {
		return // Kafka does not answer, or there is no session: its beginning checks the topics
	}
	if err != nil && s != nil {
		s.End(err)
	}
}

// look describes the topics. A changed partition count is fatal for the instance: events would no
// longer reach the states of their keys.
func (a *instance) look() (map[string]topics.Topic, error) {
	have, err := topics.Look(a.clients.bulk, a.cfg.Prefix)
	if err != nil {
		return nil, err
	}
	want := a.found.Load().Partitions
	for _, name := range ownTopics(a.names) {
		if t, ok := have[name]; ok && t.Partitions != want {
			return nil, a.fail(fmt.Errorf("topic %s has %d partitions, and its keys were counted in %d: events would not reach their states; %s",
				name, t.Partitions, want, topics.Migration(a.cfg.Prefix, max(t.Partitions, want))))
		}
	}
	return have, nil
}

// sameTopics returns an error if one of the topics was replaced by another. A missing one may be
// unknown to a broker that has just started; its readers and writers find out.
func sameTopics(were, have map[string]topics.Topic) error {
	for name, was := range were {
		if is, ok := have[name]; ok && is.ID != was.ID {
			return fmt.Errorf("topic %s was created anew", name)
		}
	}
	return nil
}

// newSession notes what the topics are, because partitions taken over in the session rely on it. If
// no broker answers now, they are what they were a moment ago, when the group was joined: watch
// ends the session if that is wrong.
func (a *instance) newSession(s sarama.ConsumerGroupSession, end context.CancelCauseFunc, seen map[string]topics.Topic) (*owner.Session, error) {
	a.packs.begin()
	own, err := a.ownTopics()
	switch {
	case err == nil:
	case a.fatal() != nil:
		return nil, err
	default:
		a.log.Warn("no broker lists the topics; this session uses the list from before joining", "error", err)
		own = seen
	}
	return &owner.Session{ConsumerGroupSession: s, End: end, Topics: own}, nil
}

// ownTopics describes the topics that must not be replaced unnoticed by others of the same name.
func (a *instance) ownTopics() (map[string]topics.Topic, error) {
	have, err := a.look()
	if err != nil {
		return nil, fmt.Errorf("look at the topics: %w", err)
	}
	own := map[string]topics.Topic{}
	for _, name := range ownTopics(a.names) {
		t, ok := have[name]
		if !ok {
			return nil, fmt.Errorf("there is no topic %s: was it deleted? A start creates it", name)
		}
		own[name] = t
	}
	return own, nil
}

func (a *instance) rulesHash() string { return hex.EncodeToString(a.cfg.Rules.Hash[:]) }

// packs tells whether forwards may go in packs: if all members of the session read them. The zero value says no.
type packs struct{ session, of atomic.Int64 }

// begin is called at each session's beginning: an older program may have joined.
func (p *packs) begin() { p.session.Add(1) }

func (p *packs) allowed() bool {
	of := p.of.Load()
	return of > 0 && of == p.session.Load()
}

// lookAtPacks finds whether all members of the group read packs of forwarded events. An older program does
// not: beside one, events are forwarded whole.
func (a *watching) lookAtPacks() {
	if a.cfg.ForwardWhole {
		return
	}
	session, age := a.packs.session.Load(), memberAge
	if !a.packs.allowed() {
		age = 0 // an answer may be of before the session
	}
	groups, err := a.members.describe(a.instance, age)
	if err != nil {
		return // while Kafka does not answer, nobody joins
	}
	members := 0
	for _, is := range membersOf(groups) {
		if !is.Packs {
			a.packs.of.Store(0)
			return
		}
		members++
	}
	if members > 0 {
		a.packs.of.Store(session)
	}
}

// compareRules logs whether members count by other rules than this instance: a partition that moves
// between them loses the counts of limits that the other one does not know.
//
// Rules from the rules topic differ only for a moment.
func (a *watching) compareRules() {
	if a.book.Shared() {
		return
	}
	groups, err := a.members.describe(a.instance, memberAge)
	if err != nil {
		return // Kafka does not answer, which others log
	}
	var others []string
	for m, is := range membersOf(groups) {
		if is.Rules != "" && is.Rules != a.rulesHash() {
			others = append(others, fmt.Sprintf("%s at %s", m.ClientId, is.Advertise))
		}
	}
	slices.Sort(others)
	a.metrics.rulesDiffer.Set(float64(len(others)))
	a.differ.Store(int32(len(others)))
	if now := strings.Join(others, ", "); now != a.rulesDiffer {
		if a.rulesDiffer = now; now == "" {
			a.log.Info("all members of the group run the same rules again")
			return
		}
		a.log.Error("other members of the group run different rules; partitions that move lose counts; give all members the same rule file", "members", now)
	}
}

// ownTopics are the topics that must not be replaced unnoticed by others of the same name.
func ownTopics(n topics.Names) []string {
	return []string{n.Events, n.Loop, n.Table, n.Verdicts}
}
