package e2e

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// brokersFaults befall some of three brokers. Topics have three replicas, of which two must be in
// step.
func brokersFaults() []*fault {
	return []*fault{
		{kind: ofKafka, name: "a partition's leader killed", brokers: 3, strike: oneOf(leads)},
		{kind: ofKafka, name: "the group's coordinator killed", brokers: 3, strike: oneOf(coordinates)},
		{kind: ofKafka, name: "the controller killed", brokers: 3, strike: oneOf(controls)},
		{kind: ofKafka, name: "two of three brokers killed in turn", brokers: 3, strike: twoInTurn},
		{kind: ofKafka, name: "brokers restarted one by one", brokers: 3, strike: rollingBrokers},
		{kind: ofKafka, name: "two of three brokers killed at once, below min.insync.replicas", brokers: 3, strike: belowMinISR},
		{kind: ofKafka, name: "partitions reassigned to other brokers", brokers: 3, alone: true, strike: reassigned},
		{kind: ofKafka, name: "leaders moved while an aggregator is told to stop", brokers: 3, alone: true, strike: movedAtStop},
	}
}

// oneOf kills the broker that which finds, and leaves it dead for longer than a session timeout.
func oneOf(which func(s *stage, rnd *rand.Rand) (addr string, err error)) func(s *stage, rnd *rand.Rand) func() {
	return func(s *stage, rnd *rand.Rand) (heal func()) {
		s.t.Helper()
		addr, err := which(s, rnd)
		if err != nil {
			s.t.Errorf("which broker is to be killed: %v", err)
		}
		broker := s.broker(rnd)
		for _, b := range s.kafka {
			if b.Addr() == addr {
				broker = b
			}
		}
		broker.Kill()
		pause(rnd, sessionTimeout, 3*sessionTimeout)
		return broker.Start
	}
}

func leads(s *stage, rnd *rand.Rand) (string, error) {
	b, err := s.client.Leader(s.names.Events, rnd.Int32N(s.partitions))
	if err != nil {
		return "", err
	}
	return b.Addr(), nil
}

func coordinates(s *stage, _ *rand.Rand) (string, error) {
	if err := s.client.RefreshCoordinator(s.names.Group); err != nil {
		return "", err
	}
	b, err := s.client.Coordinator(s.names.Group)
	if err != nil {
		return "", err
	}
	return b.Addr(), nil
}

// controls finds the broker that clients take for the controller. The quorum's own leader is one
// of the three, too, so that every third time it is that one.
func controls(s *stage, _ *rand.Rand) (string, error) {
	b, err := s.client.RefreshController()
	if err != nil {
		return "", err
	}
	return b.Addr(), nil
}

func twoInTurn(s *stage, rnd *rand.Rand) (heal func()) {
	order := rnd.Perm(len(s.kafka))
	first, second := s.kafka[order[0]], s.kafka[order[1]]
	first.Kill()
	pause(rnd, 0, 2*sessionTimeout)
	first.Start()
	s.inSync()
	second.Kill()
	pause(rnd, 0, 2*sessionTimeout)
	return second.Start
}

// inSync waits until every partition has all its replicas in step: what is killed next may be the
// only one that has everything.
func (s *stage) inSync() {
	s.t.Helper()
	eventually(s.t, "all replicas are in step", func() bool {
		found, err := s.admin.DescribeTopics(s.names.All())
		if err != nil {
			return false
		}
		for _, topic := range found {
			for _, p := range topic.Partitions {
				if len(p.Isr) < len(p.Replicas) {
					return false
				}
			}
		}
		return true
	})
}

func rollingBrokers(s *stage, _ *rand.Rand) (heal func()) {
	for _, b := range s.kafka {
		b.Stop()
		b.Start()
		s.inSync()
	}
	return func() {}
}

func belowMinISR(s *stage, rnd *rand.Rand) (heal func()) {
	order := rnd.Perm(len(s.kafka))
	down := []*servers.KafkaProc{s.kafka[order[0]], s.kafka[order[1]]}
	for _, b := range down {
		b.Kill()
	}
	pause(rnd, 0, 3*sessionTimeout)
	// At once: the first one alone has no majority of controllers that it could join.
	return func() { (&servers.KafkaCluster{Nodes: s.kafka}).Start(down...) }
}

// reassigned moves every partition away from one of its brokers, then back to all of them in
// another order, so that leaders change too.
func reassigned(s *stage, rnd *rand.Rand) (heal func()) {
	return s.reassign(rnd, func() { pause(rnd, 0, 2*time.Second) })
}

// reassign is reassigned; then is called each time that leaders have moved.
func (s *stage) reassign(rnd *rand.Rand, then func()) (heal func()) {
	for _, size := range []int{len(s.kafka) - 1, len(s.kafka)} {
		for _, topic := range s.names.All() {
			n, err := s.client.Partitions(topic)
			if err != nil {
				s.t.Errorf("partitions of %s: %v", topic, err)
				continue
			}
			assignment := make([][]int32, len(n))
			for i := range assignment {
				for _, node := range rnd.Perm(len(s.kafka))[:size] {
					assignment[i] = append(assignment[i], int32(node+1))
				}
			}
			if err := s.admin.AlterPartitionReassignments(topic, assignment); err != nil {
				s.t.Errorf("reassign %s: %v", topic, err)
			}
		}
		s.inSync()
		s.electPreferred()
		then()
	}
	return func() {}
}

// movedAtStop moves leaders, and has an aggregator stop when it meets their new epochs: each asks
// for a checkpoint of its own.
func movedAtStop(s *stage, rnd *rand.Rand) (heal func()) {
	return s.reassign(rnd, func() {
		m := s.pick(rnd)
		pause(rnd, 0, 500*time.Millisecond)
		m.endsWell()
		m.starts()
	})
}

// electPreferred makes the first replica of each partition its leader.
func (s *stage) electPreferred() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.ctx, within)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := s.admin.ElectLeaders(sarama.PreferredElection, nil); err == nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.t.Error("preferred leaders are not elected")
}
