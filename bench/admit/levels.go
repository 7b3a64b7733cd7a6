package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// Budgets of three levels: a call of a model reserves an upper bound of its tokens for its user, their team and its
// organisation, or for none of them. What it used is known at its end.
const (
	reserves, uses = 1000, 700 // tokens of a call
	teams, orgs    = 100, 10
	open           = 256 // calls that are under way, before they are settled together
)

// levelsScript is the usual one: all three have room, or nothing is taken. ARGV: the limit, the amount, seconds.
var levelsScript = redis.NewScript(`
for _, key in ipairs(KEYS) do
  if tonumber(redis.call('GET', key) or 0) + ARGV[2] > tonumber(ARGV[1]) then return 0 end
end
for _, key in ipairs(KEYS) do
  if redis.call('INCRBY', key, ARGV[2]) == tonumber(ARGV[2]) then redis.call('EXPIRE', key, ARGV[3]) end
end
return 1`)

// returnScript gives back what was reserved and not used.
var returnScript = redis.NewScript(`for _, key in ipairs(KEYS) do redis.call('DECRBY', key, ARGV[1]) end return 1`)

// dimsOf are a user's levels.
func dimsOf(user int) []event.Dim {
	return []event.Dim{
		{Name: "attrs.org", Value: "o" + strconv.Itoa(user%orgs)},
		{Name: "attrs.team", Value: "t" + strconv.Itoa(user%teams)},
		{Name: "uid", Value: "m" + strconv.Itoa(user)},
	}
}

// newScriptedLevels is the peer that asks by the script.
func newScriptedLevels(client *redis.Client) *peer {
	var mu sync.Mutex
	var list [][]string
	settle := func(ctx context.Context, least int) error {
		mu.Lock()
		ended := list
		if len(list) < least {
			mu.Unlock()
			return nil
		}
		list = nil
		mu.Unlock()
		return giveBack(ctx, client, ended)
	}
	return &peer{name: "three levels in Lua", ask: func(ctx context.Context, _, user int) error {
		var keys []string
		for _, d := range dimsOf(user) {
			keys = append(keys, "levels:"+d.Value)
		}
		n, err := levelsScript.Run(ctx, client, keys, 1_000_000_000_000, reserves, 3600).Int()
		if n != 1 || err != nil {
			return whether(false, err)
		}
		mu.Lock()
		list = append(list, keys)
		mu.Unlock()
		return settle(ctx, open)
	}, after: func(ctx context.Context) error { return settle(ctx, 0) }}
}

// giveBack gives back what calls have not used, a hundred at once.
func giveBack(ctx context.Context, client *redis.Client, list [][]string) error {
	for len(list) > 0 {
		pipe := client.Pipeline()
		n := min(len(list), 100)
		for _, keys := range list[:n] {
			returnScript.EvalSha(ctx, pipe, keys, reserves-uses)
		}
		_, err := pipe.Exec(ctx)
		switch {
		case err == nil:
			list = list[n:]
		case redis.HasErrorPrefix(err, "NOSCRIPT"):
			err = returnScript.Load(ctx, client).Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// levels asks for permits of three limits, and keeps those to be settled.
type levels struct {
	*admit.Admitter
	*owner
	limits map[string]*rules.Limit // by the dimension of their key

	settling sync.Mutex
	mu       sync.Mutex
	list     []settledLevels
}

// settledLevels is a permit of a user.
type settledLevels struct {
	user   int
	permit event.Permit
}

// newLevels is the peer of strict sums.
func newLevels(a *admit.Admitter, o *owner) (*peer, error) {
	l := &levels{Admitter: a, owner: o, limits: map[string]*rules.Limit{}}
	for _, limit := range o.set.Limits {
		if dim, ok := levelRules[limit.Rule.Name]; ok {
			l.limits[dim] = limit
		}
	}
	if len(l.limits) != len(levelRules) {
		return nil, fmt.Errorf("of the rules of three levels %d are there", len(l.limits))
	}
	heartbeat := func(ctx context.Context) error {
		_, err := o.apply(ctx)
		return err
	}
	rest := func(ctx context.Context) error { return l.settle(ctx, 0) }
	return &peer{name: "permit of three levels", ask: l.ask, before: heartbeat, after: rest}, nil
}

var levelRules = map[string]string{"org": "attrs.org", "team": "attrs.team", "member": "uid"}

func (l *levels) ask(ctx context.Context, _, user int) error {
	p, err := l.Admit(ctx, admit.Request{API: "levels", Dims: dimsOf(user), Cost: reserves * event.One})
	switch {
	case err != nil:
		return err
	case !p.Admitted || p.ID == "":
		return fmt.Errorf("%w: %s", errDenied, p.Reason)
	}
	l.mu.Lock()
	l.list = append(l.list, settledLevels{user, p.Event})
	l.mu.Unlock()
	return l.settle(ctx, open)
}

// settle settles what was asked for, if that is so much, a hundred calls at once: each of their keys has a new level.
func (l *levels) settle(ctx context.Context, least int) error {
	l.settling.Lock() // o.counts are one owner's
	defer l.settling.Unlock()
	l.mu.Lock()
	list := l.list
	if len(list) < least {
		l.mu.Unlock()
		return nil
	}
	l.list = nil
	l.mu.Unlock()
	for len(list) > 0 {
		n := min(len(list), 100)
		changed := map[string]*protocol.Level{}
		for _, s := range list[:n] {
			for _, dim := range dimsOf(s.user) {
				l.settleKey(changed, dim, &s.permit)
			}
		}
		list = list[n:]
		var records []protocol.Record
		for _, level := range changed {
			records = append(records, protocol.Record{Level: level})
		}
		if _, err := l.apply(ctx, records...); err != nil {
			return err
		}
	}
	return nil
}

// settleKey counts what a call used for one of its keys.
func (l *levels) settleKey(changed map[string]*protocol.Level, dim event.Dim, permit *event.Permit) {
	key, at, limit := string(event.AppendDim(nil, dim.Name, dim.Value)), permit.At, l.limits[dim.Name]
	for _, k := range permit.Keys {
		if k.Key == key {
			at = k.At
		}
	}
	level := changed[key]
	if level == nil {
		l.seq++
		level = &protocol.Level{Key: key, Seq: l.seq}
		changed[key] = level
	}
	place := limit.Name + " " + key
	l.counts[place] += uses * event.One
	level.Latest, level.Settles = max(level.Latest, at), append(level.Settles, permit.ID)
	level.Sections = []protocol.Section{{Name: hex.EncodeToString(limit.Hash[:]),
		Steps: []protocol.Step{{Until: at - at%limit.Window.Per + limit.Window.Per, Amount: l.counts[place]}}}}
}
