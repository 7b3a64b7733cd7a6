package e2e

import (
	"flag"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// strictMost is how many of its faults each of the tests below draws.
var strictMost = flag.Int("strict.faults", 0, "how many faults each TestStrictLimits… draws, each as often as any other; 0 is few, for CI")

// TestStrictLimits: 32 clients want ten times as much as strict limits allow, while all that takes part
// is killed, paused and cut off. By the clients' own log no limit was ever exceeded, and each action is
// counted once.
func TestStrictLimits(t *testing.T) {
	t.Parallel()
	servers.Nightly(t, "strict")
	playStrict(t, &plan{brokers: 1, store: single, aggregators: make([]bool, 1)}, 2, []*fault{
		{name: "the aggregator is killed", strike: killed},
		{name: "the aggregator stands still", strike: aggregatorPaused},
		{name: "Redis is flushed", strike: redisFlushed},
		{name: "Redis is killed", strike: redisKilled},
		{name: "Redis stands still", strike: redisPaused},
		{name: "Redis is restored from an old snapshot", strike: strictRestored},
		{name: "enforcers are cut off from Redis", strike: enforcersCut},
		{name: "enforcers' packets to Redis are held up", strike: enforcersStalled},
		{name: "an enforcer is replaced", strike: enforcerReplaced},
		{name: "clients are cut off from Kafka for longer than hold", strike: emittersCut},
		{name: "rules are reloaded in which a limit crosses 64", strike: limitCrossed},
	})
}

// Of two servers that take themselves for the primary only one grants permits.
func TestStrictLimitsWithSentinel(t *testing.T) {
	t.Parallel()
	servers.Nightly(t, "strict")
	playStrict(t, &plan{brokers: 1, store: sentinel, aggregators: make([]bool, 1)}, 1, []*fault{
		{name: "the primary is killed", strike: primaryKilled},
		{name: "the primary stands still until it is replaced", strike: primaryPaused},
		{name: "the replica, which is behind, becomes the primary while both are written to", strike: primarySplit},
	})
}

// Shards of several nodes fail one by one: requests for keys of two of them need both.
func TestStrictLimitsInACluster(t *testing.T) {
	t.Parallel()
	servers.Nightly(t, "strict")
	playStrict(t, &plan{brokers: 1, store: replicated, aggregators: make([]bool, 2)}, 1, []*fault{
		{name: "a shard's primary is killed", strike: shardKilled},
		{name: "a shard's primary stands still until it is replaced", strike: shardPaused},
		{name: "a shard's slot is migrated", strike: slotMigrated},
		{name: "an aggregator stands still until it is replaced", strike: replaced},
	})
}

// One broker of three fails. No memory is lost, but owners, groups and events are held up.
func TestStrictLimitsOnThreeBrokers(t *testing.T) {
	servers.Nightly(t, "brokers")
	t.Parallel()
	playStrict(t, &plan{brokers: 3, store: single, aggregators: make([]bool, 2)}, 1, []*fault{
		{name: "a partition's leader is killed", strike: oneOf(leads)},
		{name: "the group's coordinator is killed", strike: oneOf(coordinates)},
		{name: "the controller is killed", strike: oneOf(controls)},
		{name: "two are killed in turn", strike: twoInTurn},
		{name: "a broker stands still", strike: brokerPaused},
		{name: "two are killed at once, and nothing is written", strike: belowMinISR},
	})
}

// playStrict draws some of the faults, plays them one after the other, and checks the clients' log.
func playStrict(t *testing.T, p *plan, few int, from []*fault) {
	t.Helper()
	servers.Kafka(t) // skipped without
	servers.Redis(t)
	rnd := newRand(t)
	p.rules, p.partitions = strictRules, 4
	s := newStage(t, p)
	s.start()
	hammer(s, rnd.Uint64())
	s.strict.flows(200)
	most := *strictMost
	if most == 0 {
		most = few
	}
	var deck []int
	for range most {
		if len(deck) == 0 {
			deck = rnd.Perm(len(from))
		}
		f := from[deck[0]]
		deck = deck[1:]
		began := time.Now()
		f.strike(s, rnd)()
		lasted := time.Since(began)
		s.allReady()
		if p.store == sentinel {
			s.primary() // else the one that was replaced may still grant
		}
		ready := time.Since(began)
		s.strict.flows(300)
		t.Logf("%s: it lasted %v, all were ready after %v, requests are admitted after %v", f.name,
			lasted.Round(time.Millisecond), ready.Round(time.Millisecond), time.Since(began).Round(time.Millisecond))
	}
	s.strict.end()
	s.caughtUp()
	if full, ahead := s.strict.check(); full == 0 || ahead == 0 {
		t.Errorf("limits were reached %d times, and %d requests were admitted ahead: too few to prove anything", full, ahead)
	}
	s.strict.counted(s.members[0].Process)
}

// hammer starts the clients of strict limits on a stage.
func hammer(s *stage, seed uint64) {
	e := s.emitter(func(c *emit.Config) { c.Brokers = strings.Split(s.apps.addrs(), ",") })
	s.asks = newGate(s.t, false)
	if s.plan.store == single {
		s.asks.lead(s.store.addr())
	}
	s.strict = newStrictClients(s.t, s.prefix, func() redis.UniversalClient { return s.store.dial(s.asks) }, e)
	s.strict.hammer(s.ctx, seed)
}
