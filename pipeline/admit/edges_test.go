package admit

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit/internal/script"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/rules"
)

// stalling is a Redis client whose HMGET hangs while it is set.
type stalling struct{ on atomic.Bool }

func (s *stalling) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (s *stalling) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "hmget" && s.on.Load() {
			<-ctx.Done()
			return ctx.Err()
		}
		return next(ctx, cmd)
	}
}

func (s *stalling) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// TestRulesThatCannotBeReadInTime: the request is in doubt, and does not fail: its own context goes on.
func TestRulesThatCannotBeReadInTime(t *testing.T) {
	t.Parallel() // it waits for two seconds
	r := newRig(t, miniredis.RunT(t).Addr())
	r.rules(1, strictOnce)
	client := redis.NewClient(&redis.Options{Addr: r.addr, MaxRetries: -1})
	t.Cleanup(func() { client.Close() })
	hook := &stalling{}
	client.AddHook(hook)
	a := r.admitterOn(client, func(c *Config) { c.OnDoubt, c.Poll = Open, 1<<40 })
	r.admit(a, uid("x", "1"))
	hook.on.Store(true)
	r.rules(2, strictOnce)
	if p, err := a.Admit(t.Context(), uid("x", "2")); err != nil || !p.Admitted || !p.InDoubt {
		t.Errorf("%+v, %v", p, err)
	}
	hook.on.Store(false)
}

// TestAShareIsGivenBackWithADenial: what a request took of a share in doubt is given back when another key
// denies it.
func TestAShareIsGivenBackWithADenial(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	r.put(1, `    - {name: t, key: attrs.t, match: {api: x}, window: in-flight, limit: 2, strict: true}
    - {name: u, match: {api: "*"}, window: in-flight, limit: 1, strict: true}
`)
	of := func(key string) int32 { return event.Partition([]byte(key), rigPartitions) }
	shut, open := of("attrs.t=1"), ""
	for p := range int32(rigPartitions) {
		if p != shut {
			r.follow(p, 1)
		}
	}
	var users []string
	for i := 0; len(users) < 2; i++ {
		if open = fmt.Sprint(i); of(open) != shut {
			users = append(users, open)
		}
	}
	a := r.admitter(func(c *Config) { c.OnDoubtOf = map[string]OnDoubt{"t": Local} })
	t1 := event.Dim{Name: "attrs.t", Value: "1"}
	if p := r.admit(a, uid("y", users[0])); !p.Admitted {
		t.Fatalf("%+v", p)
	}
	for range 5 {
		if p := r.admit(a, uid("x", users[0], t1)); p.Admitted || p.By == nil || p.By.Rule.Name != "u" {
			t.Fatalf("%+v", p)
		}
	}
	if p := r.admit(a, uid("x", users[1], t1)); !p.Admitted || !p.InDoubt {
		t.Errorf("nothing is under way of the share: %+v", p)
	}
}

// TestAskingAheadEnds: several permits are asked for by one request at a time, and by none that did not
// come to ask, or comes after the end.
func TestAskingAheadEnds(t *testing.T) {
	r := newRig(t, miniredis.RunT(t).Addr())
	a := stocked(t, r)
	k := a.spares.part([]byte("uid=42")).keys["uid=42"]
	k.uses, k.room, k.asking = 10, 10, false
	for range 2 { // counting is not asking
		if n := k.most(); n != 10 {
			t.Fatalf("%d may be asked for", n)
		}
	}
	one := &ask{turn: k.turn, Ask: protocol.Ask{Key: k.key, IDs: []string{"a", "b"}}}
	if !a.spares.asks(one) || a.spares.asks(one) {
		t.Error("two ask for several at once, or none")
	}
	a.spares.failed(one)
	if !a.spares.asks(one) {
		t.Error("nobody asks after one has failed")
	}
	a.spares.sweep(a.now(), true)
	k.asking = false
	if a.spares.asks(one) {
		t.Error("permits are asked for that nobody would give back")
	}
	was := a.Stats().Cancelled
	l := k.wants[0].Limit
	one.by, one.Wants = []*rules.Limit{l}, []protocol.Want{{Limit: k.v.limits[l].Shape, Amount: event.One}}
	a.spares.answered(one, &protocol.Answer{IDs: one.IDs, Limit: 1000 * event.One})
	testrun.Eventually(t, "an answer behind the end is given back", func() bool { return a.Stats().Cancelled > was })
}

// TestAsFewAsFit: who asks for several permits of a key that has nearly all that one may have gets those
// that are left.
func TestAsFewAsFit(t *testing.T) {
	r := newRig(t, servers.StartRedis(t).Addr()) // the one in memory takes seconds
	r.rules(1, "    - {name: a, match: {api: x}, limit: 100000, per: 1h, strict: {hold: 1h, ahead: 30m}}\n")
	a := r.admitter()
	doubted := false
	for i := range protocol.MaxPermits {
		testrun.Eventually(t, fmt.Sprint("request ", i, " is let in"), func() bool {
			p := r.admit(a, uid("x", "42"))
			doubted = doubted || p.InDoubt // then a permit may be held, until it is given back
			if !p.Admitted && !doubted {
				t.Fatalf("%d: %+v", i, p)
			}
			return p.Admitted
		})
	}
}

// TestCancelsOfAShortLife: a process that ends before it has looked for the rules a second time gives back.
func TestCancelsOfAShortLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancel(t.Context())
		var c cancels
		c.init()
		var b book
		workers := make(chan int, 1)
		go func() { workers <- c.await(ctx, &b, 0) }()
		synctest.Wait() // it has looked once
		b.current.Store(&page{shards: &script.Shards{Shards: rigShards}})
		end()
		if n := <-workers; n != rigShards {
			t.Errorf("%d workers, want %d", n, rigShards)
		}
	})
}
