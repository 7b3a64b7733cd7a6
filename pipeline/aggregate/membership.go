package aggregate

import (
	"errors"
	"fmt"

	"github.com/IBM/sarama"
)

// membership is the client of the consumer group. It talks to the coordinator over
// connections of its own: sarama holds a connection from a request until its answer is decoded,
// so heartbeats would wait behind fetches, and a backlog of small batches takes longer to decode
// than a session lasts.
type membership struct {
	sarama.Client // fetches
	coordinating  sarama.Client
}

func newMembership(brokers []string, cfg *sarama.Config) (*membership, error) {
	fetching, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", brokers, err)
	}
	coordinating, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to Kafka at %v: %w", brokers, err), fetching.Close())
	}
	return &membership{fetching, coordinating}, nil
}

// Coordinator returns the group's coordinator, on its own connection.
func (m *membership) Coordinator(id string) (*sarama.Broker, error) {
	return m.coordinating.Coordinator(id)
}

// RefreshCoordinator finds the coordinator again.
func (m *membership) RefreshCoordinator(id string) error {
	return m.coordinating.RefreshCoordinator(id)
}

// Close closes both.
func (m *membership) Close() error { return errors.Join(m.Client.Close(), m.coordinating.Close()) }

// newGroup joins nothing yet: Consume does.
func (a *Aggregator) newGroup(brokers []string, id string, cfg *sarama.Config) (sarama.ConsumerGroup, error) {
	m, err := newMembership(brokers, cfg)
	if err != nil {
		return nil, err
	}
	g, err := sarama.NewConsumerGroupFromClient(id, m)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the consumer group: %w", err), m.Close())
	}
	return &group{ConsumerGroup: g, agg: a, client: m}, nil
}

// Close leaves the group and closes its connections.
func (g *group) Close() error { return errors.Join(g.ConsumerGroup.Close(), g.client.Close()) }
