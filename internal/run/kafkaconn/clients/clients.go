// Package clients makes settings of the client libraries that only programs which read Kafka link: the
// decision server, which at most emits, carries neither of them.
package clients

import (
	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Sarama returns what changes how a sarama configuration connects. Sarama itself is told of neither TLS
// nor SASL: both are done when a connection is handed to it.
func Sarama(k *kafkaconn.Kafka) func(*sarama.Config) {
	return func(s *sarama.Config) { s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, k }
}

// Log is what reads partitions by the options. Its name is for the brokers' logs.
func Log(k *kafkaconn.Kafka, clientID string) kafkalog.Config {
	const atOnce = 2 << 20 // of a partition: a topic may have many
	return kafkalog.Config{Brokers: k.Brokers, ClientID: clientID, Dial: k.DialContext, PartitionBytes: atOnce}
}
