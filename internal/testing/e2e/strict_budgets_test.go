package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

// budgetRules are the budgets of an organisation, its teams and their users, for calls of a model. %s is "strict: {hold:
// 5s}", or nothing.
const budgetRules = `
    - {name: org, key: attrs.org, match: {api: llm.call}, count: {sum: cost}, limit: 24000, per: 10s, window: tumbling, then: {block: until-reset}%[1]s}
    - {name: team, key: attrs.team, match: {api: llm.call}, count: {sum: cost}, limit: 16000, per: 10s, window: tumbling, then: {block: until-reset}%[1]s}
    - {name: user, match: {api: llm.call}, count: {sum: cost}, limit: 8000, per: 10s, window: tumbling, then: {block: until-reset}%[1]s}
`

const (
	budgetWorkers = 64
	budgetUsers   = 12   // three of a team, two teams of an organisation
	budgetMost    = 1000 // tokens of a call
	budgetStream  = 100 * time.Millisecond
)

var budgetLimits = map[string]event.Decimal{"attrs.org": 24_000 * event.One, "attrs.team": 16_000 * event.One, "uid": 8_000 * event.One}

// spent is a call that was made.
type spent struct {
	dims   []event.Dim
	permit event.Permit // when it was granted; its At alone, where nothing is strict
	cost   event.Decimal
}

// budgetClients call a model whose answers come as streams, and write down what they spent.
type budgetClients struct {
	*strictClients
	table *enforce.Table // in place of permits; nil: these
	mu    sync.Mutex
	calls []spent
}

// call is one call of a model: asked for with the most that it may use, and told with what it used.
func (b *budgetClients) call(ctx context.Context, enforcer int, rnd *rand.Rand) {
	user := rnd.IntN(budgetUsers)
	dims := []event.Dim{
		{Name: "attrs.org", Value: fmt.Sprint("o", user/6)}, {Name: "attrs.team", Value: fmt.Sprint("t", user/3)}, {Name: "uid", Value: fmt.Sprint("u", user)},
	}
	e := event.Event{UID: dims[2].Value, API: "llm.call", Outcome: "success", Time: event.NoTime, BrokerTime: event.NoTime, Attrs: []event.Attr{
		{Name: "org", Value: event.StringValue(dims[0].Value)}, {Name: "team", Value: event.StringValue(dims[1].Value)}}}
	call := spent{dims: dims, permit: event.Permit{At: event.FromTime(time.Now())}}
	if b.table != nil {
		if !b.table.CheckDims(e.API, dims).Allowed {
			b.denied.Add(1)
			sleepFor(ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
			return
		}
	} else {
		p, err := b.enf[enforcer].Load().Admit(ctx, admit.Request{API: e.API, Dims: dims, Cost: budgetMost * event.One})
		switch {
		case err != nil:
			b.failed.Add(1)
			return
		case !p.Admitted || p.ID == "":
			b.denied.Add(1)
			sleepFor(ctx, time.Duration(rnd.IntN(60))*time.Millisecond)
			return
		}
		call.permit, e.Permit = p.Event, p.Event
		defer p.Done(e.Outcome)
	}
	b.admitted.Add(1)
	sleepFor(context.WithoutCancel(ctx), budgetStream/2+time.Duration(rnd.Int64N(int64(budgetStream))))
	call.cost = event.Decimal(budgetMost/5+rnd.IntN(budgetMost*4/5)) * event.One
	e.Cost = call.cost
	if err := b.emit.EmitWait(context.WithoutCancel(ctx), e); err != nil {
		b.t.Errorf("emit: %v", err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.calls = append(b.calls, call)
}

// worst is the largest share of a budget that a window has had, by the clients' own log, and how many windows had more
// than nine tenths of one.
func (b *budgetClients) worst(t *testing.T) (share float64, full int) {
	t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	type place struct {
		dim    event.Dim
		window event.Micros
	}
	sums := map[place]event.Decimal{}
	for _, c := range b.calls {
		for _, d := range c.dims {
			granted := c.permit.At
			for _, k := range c.permit.Keys {
				if k.Key == string(event.AppendDim(nil, d.Name, d.Value)) {
					granted = k.At
				}
			}
			sums[place{d, granted / (10 * event.Second)}] += c.cost
		}
	}
	at := ""
	for p, sum := range sums {
		part := float64(sum) / float64(budgetLimits[p.dim.Name])
		if part > 0.9 {
			full++
		}
		if part > share {
			share, at = part, p.dim.Name
		}
	}
	t.Logf("%d calls, %d denied: at most %.1f%% of a budget (%s) is spent, and %d windows of keys have more than 90%%",
		len(b.calls), b.denied.Load(), 100*share, at, full)
	return share, full
}

// playBudgets has 64 clients spend what they can, while the faults are played.
func playBudgets(t *testing.T, strict bool, faults []*fault) *budgetClients {
	t.Helper()
	servers.Kafka(t)
	servers.Redis(t)
	rnd := newRand(t)
	p := &plan{brokers: 1, store: single, aggregators: make([]bool, 1), partitions: 4, rules: fmt.Sprintf(budgetRules, "")}
	if strict {
		p.rules = fmt.Sprintf(budgetRules, ", strict: {hold: 5s}")
	}
	s := newStage(t, p)
	s.start()
	s.asks = newGate(t, false)
	s.asks.lead(s.store.addr())
	e := s.emitter(func(c *emit.Config) { c.Brokers = strings.Split(s.apps.addrs(), ",") })
	s.strict = newStrictClients(t, s.prefix, func() redis.UniversalClient { return s.store.dial(s.asks) }, e)
	b := &budgetClients{strictClients: s.strict}
	if !strict {
		b.table = followed(t, s)
	}
	s.strict.does = b.call
	s.strict.hammer(s.ctx, rnd.Uint64())
	s.strict.flows(100)
	for _, f := range faults {
		f.strike(s, rnd)()
		s.allReady()
		s.strict.flows(150)
	}
	s.strict.flows(300)
	s.strict.end()
	return b
}

// followed is a table in step with the stage's blocklist.
func followed(t *testing.T, s *stage) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := s.store.dial(s.asks)
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client, Prefix: s.prefix})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = table.Run(ctx) })
	running.Go(func() { _ = feed.Run(ctx, table) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		_ = client.Close()
	})
	eventually(t, "the blocklist is followed", table.Ready)
	return table
}

// TestStrictBudgets: 64 clients spend on a model what three levels of budgets allow, while the aggregator, Redis and
// enforcers are killed. By the clients' own log none of the budgets is ever exceeded. Without strict they are, by what
// is under way: that is logged, for comparison.
func TestStrictBudgets(t *testing.T) {
	t.Parallel()
	servers.Nightly(t, "strict")
	t.Run("strict", func(t *testing.T) {
		share, full := playBudgets(t, true, []*fault{{strike: killed}, {strike: redisKilled}, {strike: enforcerReplaced}}).worst(t)
		if share > 1 {
			differencesFound.Add(1)
			t.Errorf("%.2f%% of a budget is spent", 100*share)
		}
		if full == 0 {
			t.Error("no budget was used up: too few calls to prove anything")
		}
	})
	t.Run("verdicts", func(t *testing.T) { playBudgets(t, false, nil).worst(t) })
}
