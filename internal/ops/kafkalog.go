package ops

import "github.com/tallygate/tallygate/pipeline/kafkalog"

// Log is what reads partitions with the connection's settings, under a name for the brokers' logs. TLS and SASL are Dial's.
func (k *Kafka) Log(clientID string) kafkalog.Config {
	const atOnce = 2 << 20 // of a partition: a topic may have many
	return kafkalog.Config{Brokers: k.Brokers, ClientID: clientID, Dial: k.DialContext, PartitionBytes: atOnce}
}
