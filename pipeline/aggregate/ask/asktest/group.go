// Package asktest has a consumer group to ask without Kafka. Its instances judge as all do: their partitions are
// shards. They reach each other over HTTP, where the test serves them.
//
// Tests of roles, hostile clients and answers make one in milliseconds, and serve it with whatever stands before the
// handlers of package ask. It does not have what Kafka is needed for: takeovers, lag, several versions of rules.
package asktest

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/owner"
	"github.com/tallygate/tallygate/pipeline/aggregate/shard"
	"github.com/tallygate/tallygate/rules"
)

// Partitions are those of a group: 0 to 3.
const Partitions = 4

// Group is a group, and what tests change of it.
type Group struct {
	Members []*Member
	Away    atomic.Bool // Kafka does not answer who is in the group; the members remember
	Stall   atomic.Bool // no command is acknowledged
	Fixed   atomic.Bool // the rules are of no file

	t     testing.TB
	parts []*Part

	mu       sync.Mutex
	audit    []string
	versions []api.Rules
	current  *owner.Rules
}

// Member is one of the group's instances: it is what its Answers know of themselves (ask.Instance) and of the others
// (ask.Group). The versions of the rules are the group's.
type Member struct {
	*ask.Answers
	At      ask.Address
	Offline atomic.Bool // it is not connected to Kafka yet
	Unknown atomic.Bool // the others do not see it in the group

	group *Group
	index int
}

// New makes a group without members for the rest of the test.
func New(t testing.TB, set *rules.Set) *Group {
	t.Helper()
	v := &owner.Rules{Number: 1, Set: set}
	first := api.Rules{Version: 1, RuleRecord: api.RuleRecord{Format: 1, Name: set.Name, By: "asktest"}}
	g := &Group{t: t, current: v, versions: []api.Rules{first}}
	for id := range int32(Partitions) {
		g.parts = append(g.parts, newPart(g, id, v))
	}
	return g
}

// Join adds a member. Of cfg it needs the address at which the test serves it, and at most the settings of its
// connections. The members' shares change, so that all should have joined before one is asked: the one with index i has
// each partition whose number leaves the rest i.
func (g *Group) Join(cfg ask.Config, tls bool) *Member {
	g.t.Helper()
	m := &Member{At: ask.Address{Addr: cfg.Advertise, TLS: tls}, group: g, index: len(g.Members)}
	cfg.Instance, cfg.Rules, cfg.Group, cfg.Name = m, g, m, "asktest"
	var err error
	m.Answers, err = ask.New(cfg)
	must(g.t, err)
	g.Members = append(g.Members, m)
	g.t.Cleanup(m.CloseIdleConnections)
	return m
}

// Emit counts events in the partition of their uid, and what these forward in theirs. All is counted when it returns.
func (g *Group) Emit(events ...*event.Event) {
	g.t.Helper()
	for _, e := range events {
		forwards := g.parts[event.Partition([]byte(e.UID), Partitions)].take(shard.Input, event.AppendJSON(nil, e))
		for _, f := range forwards {
			g.parts[f.To].take(shard.Loop, f.Value)
		}
	}
}

// Audit returns the records of the audit topic, a line each, in the order in which they were written.
func (g *Group) Audit() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.audit, "\n")
}

func (g *Group) audited(line string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.audit = append(g.audit, line)
}

// The methods of ask.Rulebook.

// Current returns the set that the group was started with. A roll back is noted, and changes no counting.
func (g *Group) Current() *owner.Rules { return g.current }

// Shared is true, unless a test says that the rules are fixed.
func (g *Group) Shared() bool { return !g.Fixed.Load() }

// Running returns the newest version.
func (g *Group) Running() *api.Rules { return g.last(0) }

// last returns a copy of a version, or for 0 of the newest one; nil: there is none. A caller may keep it while others
// roll back.
func (g *Group) last(number int64) *api.Rules {
	g.mu.Lock()
	defer g.mu.Unlock()
	if number = cmp.Or(number, int64(len(g.versions))); number > int64(len(g.versions)) {
		return nil
	}
	return new(g.versions[number-1])
}

// Version returns a version by its number; the first is 1.
func (g *Group) Version(_ context.Context, number int64) (api.Rules, error) {
	if v := g.last(number); v != nil {
		return *v, nil
	}
	return api.Rules{}, ask.ErrNoVersion
}

// Versions returns the newest versions first.
func (g *Group) Versions(_ context.Context, before int64, limit int) (all []api.RuleVersion, more bool, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, v := range slices.Backward(g.versions) {
		if before == 0 || v.Version < before {
			all = append(all, api.RuleVersion{Version: v.Version, Name: v.Name, By: v.By, From: v.From, Reason: v.Reason, OnBehalfOf: v.OnBehalfOf})
		}
	}
	return all[:min(limit, len(all))], len(all) > limit, nil
}

// Rollback adds a version with the text of an older one. As in a rules topic, the running version can't be rolled back
// to, and a version that there never was is an error of its own.
func (g *Group) Rollback(_ context.Context, to api.Rollback) (api.Reloaded, error) {
	v := g.last(to.Version)
	switch {
	case v == nil:
		return api.Reloaded{}, ask.ErrNoVersion
	case v.Version == g.Running().Version:
		return api.Reloaded{}, ask.ErrRunning
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	next := api.Rules{Version: int64(len(g.versions)) + 1, RuleRecord: v.RuleRecord}
	next.By, next.OnBehalfOf, next.From, next.Reason = to.By, to.OnBehalfOf, to.Version, to.Reason
	g.versions = append(g.versions, next)
	return api.Reloaded{Version: next.Version, Changed: true}, nil
}

// owns deals the partitions out in turn. A partition never moves.
func (m *Member) owns(id int32) bool { return int(id)%max(1, len(m.group.Members)) == m.index }

// The methods of ask.Instance.

// Online is false while a test says that the instance is not connected.
func (m *Member) Online() bool { return !m.Offline.Load() }

// Partitions are those of the group.
func (m *Member) Partitions() int32 { return Partitions }

// Part returns a partition of this member.
func (m *Member) Part(id int32) ask.Part {
	if !m.owns(id) {
		return nil
	}
	return m.group.parts[id]
}

// Owned returns the member's partitions in order.
func (m *Member) Owned() (all []ask.Part) {
	for _, p := range m.group.parts {
		if m.owns(p.id) {
			all = append(all, p)
		}
	}
	return all
}

// Unmatched has one event that all members saw, and two that only this one did, so that sums over members are told
// from the answer of one.
func (m *Member) Unmatched() []api.UnmatchedEvents {
	return []api.UnmatchedEvents{{API: "lo.gin", Events: 1}, {API: "stray" + strconv.Itoa(m.index), Events: 2}}
}

// Audit writes an entry as JSON.
func (m *Member) Audit(_ context.Context, _ string, entry any) error {
	line, err := json.Marshal(entry)
	if err == nil {
		m.group.audited(string(line))
	}
	return err
}

// The methods of ask.Group.

var errAway = errors.New("no broker answers")

// Owners leaves out the partitions of members that are unknown.
func (m *Member) Owners() (map[int32]ask.Address, error) {
	if m.group.Away.Load() {
		return nil, errAway
	}
	all := map[int32]ask.Address{}
	for _, other := range m.group.Members {
		for _, p := range other.Owned() {
			if !other.Unknown.Load() {
				all[p.ID()] = other.At
			}
		}
	}
	return all, nil
}

// Seen has all members that are known, also while Kafka does not answer: they are those of before.
func (m *Member) Seen(context.Context) (s ask.Seen, err error) {
	if m.group.Away.Load() {
		err = errAway
		s.Trouble = &api.Trouble{Since: time.Now(), Reason: "unreachable", Error: err.Error()}
	}
	for _, other := range m.group.Members {
		if other != m && !other.Unknown.Load() {
			s.Others = append(s.Others, ask.Member{Name: other.At.Addr, At: other.At})
		}
	}
	s.Owners, _ = m.Owners()
	return s, err
}

// Knows tells members by their keys. While Kafka does not answer, nobody is known for a command: it might come from one
// that has left. Questions are answered to those of before.
func (m *Member) Knows(_ context.Context, key string, now bool) bool {
	if now && m.group.Away.Load() {
		return false
	}
	return slices.ContainsFunc(m.group.Members, func(other *Member) bool { return other.PeerKey() == key && !other.Unknown.Load() })
}
