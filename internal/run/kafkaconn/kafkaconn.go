// Package kafkaconn is the one place where the options for Kafka become the settings of what
// connects: kafka-go and emitters; package clients has sarama, and what reads. Whatever opens a
// connection through it has TLS and SASL by what the files hold at that moment.
package kafkaconn

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/internal/run/kafkaconn/options"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// Kafka describes the connection to Kafka: the same for every client library. One that has nothing but Brokers
// connects in plain text.
type Kafka struct {
	Brokers []string

	tls       ops.ClientTLSOptions
	mechanism string // "", plain, scram-sha-256 or scram-sha-512
	user      string
	password  func() (string, error) // reads it again
	access    ops.Access             // whether the brokers let us in
}

// Usual is the default address of Kafka.
const Usual = options.Usual

// Options are the options that make a Kafka.
type Options struct{ *options.Options }

// NewOptions adds the options for Kafka to a command's.
func NewOptions(o *ops.Options) *Options { return &Options{options.New(o)} }

// Build checks the options, and reads the files that they name.
func (o *Options) Build() (*Kafka, error) {
	k := &Kafka{Brokers: *o.Brokers, tls: *o.TLS, mechanism: o.Mechanism, user: o.User, password: o.Password}
	_, tlsErr := o.TLS.Build()
	_, saslErr := o.Password()
	if saslErr == nil && o.Mechanism != "" {
		if _, saslErr = k.sasl(); saslErr != nil { // SCRAM does not allow every character
			saslErr = fmt.Errorf("--kafka-sasl %s: %w", o.Mechanism, saslErr)
		}
	}
	return k, errors.Join(tlsErr, saslErr)
}

// Secured reports whether connections have TLS, or say who we are.
func (k *Kafka) Secured() bool { return k.tls.On() || k.mechanism != "" }
