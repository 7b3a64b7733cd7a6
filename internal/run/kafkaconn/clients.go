package kafkaconn

import (
	"fmt"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// Transport is one of kafka-go's that connects by the options. The caller closes its idle
// connections.
func (k *Kafka) Transport() *kafka.Transport {
	return &kafka.Transport{ClientID: "tallygate", Dial: k.DialContext, DialTimeout: ops.DialWithin}
}

// Emitter makes an emitter that connects by the options. Brokers and Dial of cfg are filled in here. An
// error is an ops.UsageError if cfg is wrong; a file that has become unreadable since Build is none.
func (k *Kafka) Emitter(cfg emit.Config) (*emit.Emitter, error) {
	if _, err := k.tls.Build(); err != nil {
		return nil, err
	}
	if k.mechanism != "" {
		if _, err := k.sasl(); err != nil {
			return nil, fmt.Errorf("set up SASL: %w", err)
		}
	}
	cfg.Brokers, cfg.Dial = k.Brokers, k.DialContext
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
