package aggregate

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// farBroker is a round trip from which on events are fetched over several connections to a broker: what waits
// for the request before it waits for less than that otherwise.
const farBroker = 2 * time.Millisecond

// fetching returns the settings for reading claims. They are those of sarama's connections and
// consumer, so that there is one place to set them.
func (c Config) fetching() (kafkalog.Config, error) {
	s := c.sarama()
	f := kafkalog.Config{
		Brokers:        c.Brokers,
		ClientID:       s.ClientID,
		DialTimeout:    s.Net.DialTimeout,
		ReadTimeout:    s.Net.ReadTimeout,
		Uncommitted:    s.Consumer.IsolationLevel == sarama.ReadUncommitted,
		MaxWait:        s.Consumer.MaxWaitTime,
		MinBytes:       s.Consumer.Fetch.Min,
		PartitionBytes: s.Consumer.Fetch.Default,
		LargestBatch:   s.Consumer.Fetch.Max,
		ResponseBytes:  s.Consumer.Fetch.MaxBytes,
		MaxResponse:    sarama.MaxResponseSize,
		MaxBatch:       c.MaxBatchBytes,
		Logger:         c.Logger,
	}
	if s.Net.TLS.Enable || s.Net.SASL.Enable {
		return f, errors.New("Config.Kafka sets Net.TLS or Net.SASL: set a Net.Proxy.Dialer that does both, since not only sarama connects")
	}
	if s.Net.Proxy.Enable || s.Net.LocalAddr != nil {
		dialer := dialerOf(s)
		f.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
			return dialer.Dial(network, address)
		}
	}
	return f, nil
}
