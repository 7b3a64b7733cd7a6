package aggregate

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// lobby is a Redis in which members meet.
type lobby struct {
	mu   sync.Mutex
	all  map[string]bool
	away bool
}

func (l *lobby) Meet(_ context.Context, own string) (met []string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.away {
		return nil, errors.New("it is away")
	}
	if l.all == nil {
		l.all = map[string]bool{}
	}
	l.all[own] = true
	for name := range l.all {
		met = append(met, name)
	}
	return met, nil
}

// looking is an instance that compares itself with others, and what it says then.
func looking(meeting Meeting) (look func(others ...topics.Member) string, log *testrun.Output) {
	log = &testrun.Output{}
	cfg := Config{peerKey: "own", Meeting: meeting, Shards: 1, Logger: log.Logger(), BrokerTime: "append", RuleFile: RuleFile{Source: []byte("the group's")}}
	a := &Aggregator{agreement: &agreement{instance: &instance{cfg: cfg, log: cfg.Logger, metrics: newMetrics(nil)}, unmet: map[string]int{}}}
	return func(others ...topics.Member) string {
		all := make([]otherMember, len(others))
		for i, m := range others {
			all[i] = otherMember{m, m.Advertise}
		}
		a.agreement.look(context.Background(), all)
		if err := a.Agrees(); err != nil {
			return err.Error()
		}
		return ""
	}, log
}

// An aggregator without Redis in a group whose others have one counted its partitions, and nobody heard of its
// verdicts: each side says so, and so does one with other settings. Older members tell nothing, which is no difference.
func TestMembersThatDifferAreNamed(t *testing.T) {
	with := func(change func(*topics.Member)) topics.Member {
		m := topics.Member{Advertise: "b:1", Key: "b", Redis: topics.WithRedis, Shards: 1, BrokerTime: "append"}
		change(&m)
		return m
	}
	place := &lobby{all: map[string]bool{"b": true}}
	look, log := looking(place)
	for want, m := range map[string]topics.Member{
		"": with(func(*topics.Member) {}),
		"b:1 has no Redis, and this instance has one: the verdicts of the first one's partitions reach no enforcer": with(func(m *topics.Member) { m.Redis, m.Shards = topics.WithoutRedis, 0 }),
		"b:1 has --shards 2, and this instance has 1":                                                               with(func(m *topics.Member) { m.Shards = 2 }),
		"b:1 has --broker-time create, and this instance has append":                                                with(func(m *topics.Member) { m.BrokerTime = "create" }),
	} {
		if got := look(m); got != want {
			t.Errorf("%+v: %q, want %q", m, got, want)
		}
	}
	if got := look(topics.Member{Advertise: "old:1", Key: "o"}); got != "" {
		t.Errorf("a member of an older version: %q", got)
	}
	if !log.Has("members of the group differ") || !log.Has("all members of the group agree again") {
		t.Errorf("the log:\n%s", log)
	}
	look, _ = looking(nil)
	if got := look(with(func(*topics.Member) {})); got != "this instance has no Redis, and b:1 has one: the verdicts of the first one's partitions reach no enforcer" {
		t.Errorf("an instance without Redis: %q", got)
	}
}

// Whether two members have the same Redis is seen there, not by addresses. One that has just joined, or whose Redis
// does not answer, is given time.
func TestMembersThatAreNotMetHaveAnotherRedis(t *testing.T) {
	place := &lobby{}
	look, _ := looking(place)
	b := topics.Member{Advertise: "b:1", Key: "b", Redis: topics.WithRedis, Shards: 1, BrokerTime: "append"}
	set := func(away bool, names ...string) {
		place.mu.Lock()
		defer place.mu.Unlock()
		place.away, place.all = away, map[string]bool{}
		for _, name := range names {
			place.all[name] = true
		}
	}
	for i := range unmetLooks - 1 {
		if got := look(b); got != "" {
			t.Fatalf("at look %d: %q", i+1, got)
		}
	}
	set(true)
	for range 2 * unmetLooks {
		if got := look(b); got != "" {
			t.Fatalf("while Redis is away: %q", got)
		}
	}
	set(false)
	if got := look(b); !strings.Contains(got, "b:1 is not seen in the Redis of this instance") {
		t.Errorf("at last: %q", got)
	}
	set(false, "b")
	if got := look(b); got != "" {
		t.Errorf("once it is there: %q", got)
	}
	set(false)
	if got := look(b); got != "" {
		t.Errorf("right after Redis has lost its memory: %q", got)
	}
}

// Members compare themselves when they join, and when one leaves.
func TestAMemberWithoutRedisIsNamed(t *testing.T) {
	onKafka(t, func(t *testing.T, r *rig) {
		set, place := compile(t, yearly), &lobby{}
		a := r.begin(set, func(c *Config) { c.Advertise, c.Meeting, c.Shards = "a:1", place, 1 })
		b := r.start(set, func(c *Config) { c.Advertise = "b:1" })
		r.ready(a, b)
		eventually(t, "both say so", func() bool {
			return a.Agrees() != nil && strings.HasPrefix(a.Agrees().Error(), "b:1 has no Redis, and this instance has one") &&
				b.Agrees() != nil && strings.HasPrefix(b.Agrees().Error(), "this instance has no Redis, and a:1 has one")
		})
		if n := a.counterOf(t, "tallygate_members_differ", "redis"); n != 1 {
			t.Errorf("%v members differ", n)
		}
		b.end(t)
		eventually(t, "the one that is left agrees with itself", func() bool { return a.Agrees() == nil })
	})
}
