package e2e

import (
	"math/rand/v2"
	"slices"
	"time"
)

func networkFaults() []*fault {
	return []*fault{
		{kind: ofNetwork, name: "Kafka cut off for everyone", strike: kafkaCut},
		{kind: ofNetwork, name: "Kafka slow for everyone", strike: kafkaSlow},
		{kind: ofNetwork, name: "one aggregator cut off from Kafka until it is replaced", members: 2, alone: true, strike: oneCut},
		{kind: ofNetwork, name: "one aggregator's packets held up until it is replaced", members: 2, alone: true, strike: oneStalled},
		{kind: ofNetwork, name: "producers cut off from Kafka", strike: producersCut},
		{kind: ofNetwork, name: "producers cut off from Kafka for longer than permits are held", strike: emittersCut},
		{kind: ofNetwork, name: "aggregators cut off from Redis", stores: []store{single}, strike: redisCut},
		{kind: ofNetwork, name: "aggregators' packets to Redis held up", stores: []store{single}, strike: redisStalled},
	}
}

// toKafka are all gates to Kafka.
func (s *stage) toKafka() gates {
	all := slices.Concat(s.apps, s.publisher.net)
	for _, m := range s.members {
		all = append(all, m.net...)
	}
	return all
}

// during does something to gates, until healed.
func during(rnd *rand.Rand, least, most time.Duration, do func(*gate), gates ...*gate) (heal func()) {
	for _, g := range gates {
		do(g)
	}
	pause(rnd, least, most)
	return func() {
		for _, g := range gates {
			g.Heal()
		}
	}
}

// repeatedly does so thrice, for moments.
func repeatedly(rnd *rand.Rand, do func(*gate), gates ...*gate) (heal func()) {
	for range 3 {
		during(rnd, 0, 1500*time.Millisecond, do, gates...)()
		pause(rnd, 0, time.Second)
	}
	return during(rnd, sessionTimeout/2, 2*sessionTimeout, do, gates...)
}

func kafkaCut(s *stage, rnd *rand.Rand) (heal func()) {
	return repeatedly(rnd, (*gate).Cut, s.toKafka()...)
}

func kafkaSlow(s *stage, rnd *rand.Rand) (heal func()) {
	by := time.Duration(5+rnd.IntN(150)) * time.Millisecond
	return during(rnd, 3*time.Second, 8*time.Second, func(g *gate) { g.Slow(by) }, s.toKafka()...)
}

func producersCut(s *stage, rnd *rand.Rand) (heal func()) {
	return repeatedly(rnd, (*gate).Cut, s.apps...)
}

func redisCut(s *stage, rnd *rand.Rand) (heal func()) {
	return repeatedly(rnd, (*gate).Cut, s.writers)
}

func redisStalled(s *stage, rnd *rand.Rand) (heal func()) {
	return repeatedly(rnd, (*gate).Stall, s.writers)
}

func oneCut(s *stage, rnd *rand.Rand) (heal func()) { return lonely(s, rnd, (*gate).Cut) }

// oneStalled delivers what the instance had sent when it is no longer the owner.
func oneStalled(s *stage, rnd *rand.Rand) (heal func()) { return lonely(s, rnd, (*gate).Stall) }

func lonely(s *stage, rnd *rand.Rand, do func(*gate)) (heal func()) {
	m := s.pick(rnd)
	for _, g := range m.net {
		do(g)
	}
	s.replaced(m)
	pause(rnd, 0, time.Second)
	return m.net.Heal
}
