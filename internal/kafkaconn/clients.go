package kafkaconn

import (
	"context"
	"fmt"
	"strings"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// Sarama changes how a sarama configuration connects. Sarama itself is told of neither TLS nor
// SASL: both are done when a connection is handed to it.
func (k *Kafka) Sarama(s *sarama.Config) { s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, k }

// Transport is one of kafka-go's that connects by the options. The caller closes its idle
// connections.
func (k *Kafka) Transport() *kafka.Transport {
	return &kafka.Transport{ClientID: "tallygate", Dial: k.DialContext, DialTimeout: ops.DialWithin}
}

// Log is what reads partitions by the options. Its name is for the brokers' logs.
func (k *Kafka) Log(clientID string) kafkalog.Config {
	const atOnce = 2 << 20 // of a partition: a topic may have many
	return kafkalog.Config{Brokers: k.Brokers, ClientID: clientID, Dial: k.DialContext, PartitionBytes: atOnce}
}

// Emitter makes an emitter that connects by the options. Brokers, TLS and SASL of cfg are filled in
// here. An error is an ops.UsageError if cfg is wrong; a file that has become unreadable since
// Build is none.
func (k *Kafka) Emitter(cfg emit.Config) (*emit.Emitter, error) {
	cfg.Brokers = k.Brokers
	var err error
	if cfg.TLS, err = k.tls.Build(); err != nil {
		return nil, err
	}
	if k.mechanism != "" {
		if _, err := k.sasl(); err != nil {
			return nil, fmt.Errorf("set up SASL: %w", err)
		}
		cfg.SASL = freshMechanism{k}
	}
	e, err := emit.New(cfg)
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return e, nil
}

// sasl is the mechanism with the password as it is now.
func (k *Kafka) sasl() (sasl.Mechanism, error) {
	password, err := k.password()
	if err != nil {
		return nil, err
	}
	switch k.mechanism {
	case "scram-sha-256":
		return scram.Mechanism(scram.SHA256, k.user, password)
	case "scram-sha-512":
		return scram.Mechanism(scram.SHA512, k.user, password)
	}
	return plain.Mechanism{Username: k.user, Password: password}, nil
}

// freshMechanism begins each conversation with the password as it is then. Emitters have it, since
// they open connections by themselves.
type freshMechanism struct{ k *Kafka }

// Name is the mechanism's.
func (m freshMechanism) Name() string { return strings.ToUpper(m.k.mechanism) }

// Start begins a conversation.
func (m freshMechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	now, err := m.k.sasl()
	if err != nil {
		return nil, nil, err
	}
	return now.Start(ctx)
}
