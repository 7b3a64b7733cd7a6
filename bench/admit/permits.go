package main

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/admit/publish"
	"github.com/tallygate/tallygate/rules"
)

const source = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: bench}
spec:
  rules:
    - {name: tumbling, match: {api: tumbling}, limit: 1000000000, per: 1h, window: tumbling, strict: {hold: 30s}}
    - {name: bucket, match: {api: bucket}, limit: 1000000, per: 1h, window: bucket, strict: {hold: 30s}}
    - {name: ahead, match: {api: ahead}, limit: 1000000000, per: 1h, window: tumbling, strict: {hold: 30s, ahead: 1s}}
    - {name: org, key: attrs.org, match: {api: levels}, count: {sum: cost}, limit: 1000000000, per: 1h, window: tumbling, strict: {hold: 30s}}
    - {name: team, key: attrs.team, match: {api: levels}, count: {sum: cost}, limit: 1000000000, per: 1h, window: tumbling, strict: {hold: 30s}}
    - {name: member, key: uid, match: {api: levels}, count: {sum: cost}, limit: 1000000000, per: 1h, window: tumbling, strict: {hold: 30s}}
`

// owner is what an aggregator does for strict limits: it says that the rules are in force and that Redis may grant, and settles
// permits as if their events were counted.
type owner struct {
	shards publish.Shards
	set    *rules.Set

	mu     sync.Mutex
	next   int64
	seq    int64
	counts map[string]event.Decimal // by limit and key
}

// settled is a permit whose event was counted.
type settled struct {
	limit   *rules.Limit
	key, id string
	at      event.Micros
}

const prefix = "bench"

func newOwner(ctx context.Context, client *redis.Client) (*owner, error) {
	set, err := rules.Compile("rules.yaml", []byte(source))
	if err != nil {
		return nil, err
	}
	o := &owner{shards: publish.OnRedis(client, prefix, 1, 1), set: set, counts: map[string]event.Decimal{}}
	text, err := json.Marshal(map[string]any{"format": 1, "file": "rules.yaml", "source": source})
	if err != nil {
		return nil, err
	}
	if err := o.shards.PutRules(ctx, 1, text); err != nil {
		return nil, err
	}
	first, err := o.apply(ctx, protocol.Record{Version: 1})
	if err != nil {
		return nil, err
	}
	_, err = o.apply(ctx, protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: first.Clock + event.Day}})
	return o, err
}

// apply is also a heartbeat.
func (o *owner) apply(ctx context.Context, records ...protocol.Record) (protocol.Applied, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	a, err := o.shards.Apply(ctx, &protocol.Batch{Of: 1, Start: o.next, Next: o.next + int64(len(records)), Beat: event.FromTime(time.Now()), Records: records})
	if err == nil && !a.OK {
		err = fmt.Errorf("a batch was refused: %+v", a)
	}
	o.next = a.Reached
	return a, err
}

// settle settles permits, a hundred keys at once.
func (o *owner) settle(ctx context.Context, list []settled) error {
	for len(list) > 0 {
		levels, n := map[string]*protocol.Level{}, 0
		for n < len(list) && len(levels) < 100 {
			s := &list[n]
			n++
			if levels[s.key] == nil {
				o.seq++
				levels[s.key] = &protocol.Level{Key: s.key, Seq: o.seq}
			}
			o.add(levels[s.key], s)
		}
		list = list[n:]
		var records []protocol.Record
		for _, l := range levels {
			records = append(records, protocol.Record{Level: l})
		}
		if _, err := o.apply(ctx, records...); err != nil {
			return err
		}
	}
	return nil
}

// add counts a permit's event.
func (o *owner) add(l *protocol.Level, s *settled) {
	place := s.limit.Name + " " + s.key
	o.counts[place] += event.One
	l.Latest, l.Settles = max(l.Latest, s.at), append(l.Settles, s.id)
	section := protocol.Section{Name: hex.EncodeToString(s.limit.Hash[:])}
	if w := &s.limit.Window; w.Kind.HasRate() {
		section.Level = event.One
	} else {
		section.Steps = []protocol.Step{{Until: s.at - s.at%w.Per + w.Per, Amount: o.counts[place]}}
	}
	l.Sections = []protocol.Section{section}
}

// asker asks for permits, and keeps what is to be settled.
type asker struct {
	*admit.Admitter
	*owner
	api  string
	mu   sync.Mutex
	list []settled
}

func (a *asker) ask(ctx context.Context, _ int, user string) error {
	p, err := a.Admit(ctx, admit.Request{API: a.api, Dims: []event.Dim{{Name: "uid", Value: user}}})
	switch {
	case err != nil:
		return err
	case !p.Admitted || p.ID == "":
		return fmt.Errorf("%w: %s", errDenied, p.Reason)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.list = append(a.list, settled{p.By, p.Key, p.ID, p.Event.At})
	return nil
}

// settle settles all that was asked for.
func (a *asker) settle(ctx context.Context) error {
	a.mu.Lock()
	list := a.list
	a.list = nil
	a.mu.Unlock()
	return a.owner.settle(ctx, list)
}

// newPermits makes an Admitter, and a peer of each kind of limit.
func newPermits(ctx context.Context, client *redis.Client, addr string, names []string) (peers []*peer, stop func(), err error) {
	o, err := newOwner(ctx, client)
	if err != nil {
		return nil, nil, err
	}
	admitter, stop, err := newAdmitter(ctx, addr)
	if err != nil {
		return nil, nil, err
	}
	for _, kind := range []string{"tumbling", "bucket"} {
		a := &asker{Admitter: admitter, owner: o, api: kind}
		users := make([]string, len(names)) // of its own: a key has one limit
		for i, name := range names {
			users[i] = kind + "-" + name
		}
		peers = append(peers, &peer{
			name: "permit " + kind,
			ask:  func(ctx context.Context, client, user int) error { return a.ask(ctx, client, users[user]) },
			before: func(ctx context.Context) error {
				_, err := o.apply(ctx)
				return err
			},
			after: a.settle,
		})
	}
	three, err := newLevels(admitter, o)
	if err != nil {
		stop()
		return nil, nil, err
	}
	return append(peers, three), stop, nil
}

// newAdmitter returns one that runs, and knows the rules.
func newAdmitter(ctx context.Context, addr string) (*admit.Admitter, func(), error) {
	client := newClient(addr)
	a, err := admit.New(admit.Config{Redis: client, Prefix: prefix})
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	stop := func() {
		cancel()
		running.Wait()
		_ = client.Close()
	}
	for end := time.Now().Add(10 * time.Second); !a.Stats().Ready || a.Stats().Version == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			stop()
			return nil, nil, errors.New("the rules are not read after 10 s")
		}
	}
	return a, stop, nil
}
