package aggregate

import (
	"math"
	"time"

	"github.com/IBM/sarama"
	"github.com/lovoo/goka"
)

// membership is the client of the consumer group. sarama starts to read every partition that the
// group is given. membership names a broker without a connection as its leader, so that reading
// fails at once and costs nothing. Package kafkalog reads the claims.
type membership struct{ sarama.Client }

// unreachable is never connected. Only consumers ask for leaders, so that other requests do not
// meet it.
var unreachable = sarama.NewBroker("")

// LeaderAndEpoch tells a consumer which broker to read from.
func (membership) LeaderAndEpoch(string, int32) (*sarama.Broker, int32, error) {
	return unreachable, -1, nil
}

// GetOffset describes a log that has every offset: the partition itself knows where a claim starts.
func (membership) GetOffset(_ string, _ int32, at int64) (int64, error) {
	if at == sarama.OffsetNewest {
		return math.MaxInt64, nil
	}
	return 0, nil
}

// settledEnd is the end of every table in the words of goka's topic manager, which is where each storage is.
const settledEnd = 1

// settledTables makes goka's topic managers say that a table has nothing to load.
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

// Config returns the client's configuration, changed so that sarama does not retry reading before
// the claim ends.
func (m membership) Config() *sarama.Config {
	c := *m.Client.Config()
	c.Consumer.Retry.BackoffFunc = func(int) time.Duration { return noRetry }
	return &c
}

const noRetry = 1 << 62
