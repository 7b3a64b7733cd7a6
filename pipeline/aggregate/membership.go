package aggregate

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
)

// membership is the client of the consumer group. sarama reads every partition that the group is
// given, as soon as it is; membership has it read from a broker to which there is no connection, so
// that it fails at once and brings nothing. The group's claims are read by package fetch.
type membership struct{ sarama.Client }

// nobody is never connected. It is not there for questions: only consumers ask who leads.
var nobody = sarama.NewBroker("")

// LeaderAndEpoch tells a consumer whom to read from.
func (membership) LeaderAndEpoch(string, int32) (*sarama.Broker, int32, error) {
	return nobody, -1, nil
}

// GetOffset tells a consumer of a log that has all offsets: where a claim starts its partition knows.
func (membership) GetOffset(_ string, _ int32, at int64) (int64, error) {
	if at == sarama.OffsetNewest {
		return math.MaxInt64, nil
	}
	return 0, nil
}

// settledEnd is where goka's topic manager says that every table ends: where their storages are.
const settledEnd = 1

// settledTables makes goka's topic managers say that there is nothing of a table to load.
func settledTables(build goka.TopicManagerBuilder) goka.TopicManagerBuilder {
	return func(brokers []string) (goka.TopicManager, error) {
		m, err := build(brokers)
		return settled{m}, err
	}
}

type settled struct{ goka.TopicManager }

func (settled) GetOffset(_ string, _ int32, at int64) (int64, error) {
	if at == sarama.OffsetNewest {
		return settledEnd, nil
	}
	return 0, nil
}

// Config is the client's, but sarama gives up reading until the claim ends.
func (m membership) Config() *sarama.Config {
	c := *m.Client.Config()
	c.Consumer.Retry.BackoffFunc = func(int) time.Duration { return forever }
	return &c
}

const forever = 1 << 62

// newGroup joins nothing yet: Consume does.
func (a *instance) newGroup(brokers []string, id string, cfg *sarama.Config) (sarama.ConsumerGroup, error) {
	client, err := sarama.NewClient(brokers, cfg)
	if err != nil {
		return nil, fmt.Errorf("connect to Kafka at %v: %w", brokers, err)
	}
	g, err := sarama.NewConsumerGroupFromClient(id, membership{client})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("set up the consumer group: %w", err), client.Close())
	}
	return &group{ConsumerGroup: g, agg: a, client: client}, nil
}

// Close leaves the group and closes its connections.
func (g *group) Close() error { return errors.Join(g.ConsumerGroup.Close(), g.client.Close()) }
