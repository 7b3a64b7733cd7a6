package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// strictRules are short, so that windows end while things fail, and so is their hold: what Redis has
// lost is waited for by it. Posts are asked for ahead: nothing else counts them by another key.
const strictRules = `
    - {name: fixed, match: {api: shop.buy, outcome: success}, limit: 30, per: 10s, window: tumbling, strict: {hold: 5s}}
    - {name: item, key: attrs.item, match: {api: shop.buy, outcome: success}, limit: 60, per: 15s, strict: {hold: 5s}}
    - {name: leak, match: {api: sms.send}, window: bucket, limit: 20, per: 10s, strict: {hold: 5s}}
    - {name: begun, match: {api: sms.send}, window: from-first, limit: 15, per: 8s, strict: {hold: 5s}}
    - {name: posts, match: {api: post.write}, limit: 60, per: 10s, window: tumbling, strict: {hold: 5s, ahead: 1s}}
    - {name: exports, match: {api: report.export}, window: in-flight, limit: 3, strict: {hold: 5s}}
    - {name: sold, match: {api: shop.buy, outcome: success}, limit: 1M, per: 365d, window: tumbling, strict: {hold: 5s}}
    - {name: bought, match: {api: shop.buy, outcome: success}, limit: 1M, per: 365d, window: tumbling, then: {block: 1h}}
`

const (
	strictWorkers   = 32
	strictEnforcers = 4
	strictUIDs      = 5
	strictItems     = 3
)

// strictAction is an action that was let in and done, as its client knows it.
type strictAction struct {
	uid, item, api string
	at             map[string]event.Micros // by key: when its permit was granted
	began, ended   time.Time
	success        bool
}

// strictClients want ten times as much as the limits allow, and write down what they did.
type strictClients struct {
	t      *testing.T
	prefix string
	dial   func() redis.UniversalClient // to Redis, as an enforcer has it
	emit   *emit.Emitter

	mu    sync.Mutex
	log   []strictAction
	enf   [strictEnforcers]atomic.Pointer[admit.Admitter]
	stops [strictEnforcers]func()
	stop  func()                                                  // the clients
	does  func(ctx context.Context, enforcer int, rnd *rand.Rand) // one request; nil: act
	ahead atomic.Uint64                                           // admitted without a question, by enforcers that are gone

	admitted, denied, doubted, failed atomic.Int64
}

// newStrictClients starts the enforcers that the clients ask. The emitter is closed by the caller.
func newStrictClients(t *testing.T, prefix string, dial func() redis.UniversalClient, e *emit.Emitter) *strictClients {
	s := &strictClients{t: t, prefix: prefix, dial: dial, emit: e}
	for i := range s.enf {
		s.start(i)
	}
	t.Cleanup(func() {
		for _, stop := range s.stops {
			stop()
		}
	})
	return s
}

// start starts an enforcer, in place of the one that was there.
func (s *strictClients) start(i int) {
	client := s.dial()
	a, err := admit.New(admit.Config{Redis: client, Prefix: s.prefix, Poll: 200 * time.Millisecond})
	if err != nil {
		s.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(s.t.Context()))
	var running sync.WaitGroup
	running.Go(func() { _ = a.Run(ctx) })
	if s.stops[i] != nil {
		s.stops[i]()
	}
	s.enf[i].Store(a)
	s.stops[i] = sync.OnceFunc(func() {
		cancel()
		running.Wait()
		_ = client.Close()
		s.ahead.Add(a.Stats().Ahead)
	})
}

// hammer lets all clients work until ctx ends, or stop.
func (s *strictClients) hammer(ctx context.Context, seed uint64) {
	ctx, cancel := context.WithCancel(ctx)
	var clients sync.WaitGroup
	s.stop = func() {
		cancel()
		clients.Wait()
	}
	workers, act := strictWorkers, s.act
	if s.does != nil {
		workers, act = budgetWorkers, s.does
	}
	for n := range workers {
		clients.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(n)))
			for ctx.Err() == nil {
				act(ctx, n%strictEnforcers, rnd)
			}
		})
	}
}

// act is one request.
func (s *strictClients) act(ctx context.Context, enforcer int, rnd *rand.Rand) {
	a := strictAction{
		uid: fmt.Sprint("strict", rnd.IntN(strictUIDs)), item: fmt.Sprint("i", rnd.IntN(strictItems)),
		api: []string{"shop.buy", "shop.buy", "shop.buy", "sms.send", "report.export", "post.write"}[rnd.IntN(6)], success: rnd.IntN(5) > 0,
	}
	e := event.Event{UID: a.uid, API: a.api, Outcome: "success", Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime,
		Attrs: []event.Attr{{Name: "item", Value: event.Value{Text: a.item}}}}
	p, err := s.enf[enforcer].Load().Admit(ctx, admit.Request{API: a.api, Dims: []event.Dim{{Name: "uid", Value: a.uid}, {Name: "attrs.item", Value: a.item}}, Attrs: e.Attrs})
	switch {
	case err != nil:
		s.failed.Add(1)
		return
	case p.InDoubt:
		s.doubted.Add(1)
		sleepFor(ctx, 100*time.Millisecond)
		return
	case !p.Admitted:
		s.denied.Add(1)
		sleepFor(ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
		return
	case p.ID == "": // no rule is strict yet
		sleepFor(ctx, 100*time.Millisecond)
		return
	}
	s.admitted.Add(1)
	a.began = time.Now()
	sleepFor(ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
	a.ended = time.Now()
	if !a.success {
		e.Outcome = "failure"
	}
	a.at = map[string]event.Micros{"": p.Event.At}
	for _, k := range p.Event.Keys {
		a.at[k.Key] = k.At
	}
	e.Permit = p.Event
	if a.api != "report.export" {
		if err := s.emit.EmitWait(context.WithoutCancel(ctx), e); err != nil {
			s.t.Errorf("emit: %v", err)
		}
	}
	p.Done(e.Outcome)
	s.mu.Lock()
	s.log = append(s.log, a)
	s.mu.Unlock()
}

// end stops the clients, and waits until their events are in Kafka.
func (s *strictClients) end() {
	s.t.Helper()
	s.stop()
	closeEmitter(s.t, s.emit)
}

// flows waits until so many more are admitted.
func (s *strictClients) flows(more int64) {
	s.t.Helper()
	want := s.admitted.Load() + more
	eventually(s.t, "requests are admitted again", func() bool { return s.admitted.Load() >= want })
}

func sleepFor(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
