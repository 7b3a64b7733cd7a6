// Package kafkaconn is the one place where the options for Kafka become the settings of what
// connects: kafka-go and emitters; package clients has sarama, and what reads. Whatever opens a
// connection through it has TLS and SASL by what the files hold at that moment.
package kafkaconn

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/internal/ops"
)

// Kafka is how to reach Kafka: the same for every client library. One that has nothing but Brokers
// connects in plain text.
type Kafka struct {
	Brokers []string

	tls       ops.ClientTLSOptions
	mechanism string // "", plain, scram-sha-256 or scram-sha-512
	user      string
	password  func() (string, error) // reads it again
	access    ops.Access             // whether the brokers let us in
}

// Options are the options that make a Kafka.
type Options struct {
	o                             *ops.Options
	brokers                       *ops.List
	tls                           *ops.ClientTLSOptions
	mechanism, user, passwordFile string
}

const passwordVariable = "TALLYGATE_KAFKA_PASSWORD"

// Usual is where programs look for Kafka when nothing says where it is.
const Usual = "127.0.0.1:9092"

// NewOptions adds the options for Kafka to a command's.
func NewOptions(o *ops.Options) *Options {
	k := &Options{o: o}
	k.brokers = o.List("kafka", []string{Usual}, "Kafka's bootstrap brokers, `HOST:PORT,…`")
	k.tls = o.ClientTLS("kafka")
	o.StringVar(&k.mechanism, "kafka-sasl", "", "SASL `mechanism`: plain, scram-sha-256 or scram-sha-512; the password is in "+passwordVariable+" or in --kafka-password-file")
	o.StringVar(&k.user, "kafka-user", "", "SASL `user`")
	o.StringVar(&k.passwordFile, "kafka-password-file", "", "`FILE` with the SASL password")
	return k
}

// Build checks the options, and reads the files that they name.
func (o *Options) Build() (*Kafka, error) {
	k := &Kafka{Brokers: *o.brokers, tls: *o.tls, mechanism: o.mechanism, user: o.user, password: o.password}
	_, tlsErr := o.tls.Build()
	_, saslErr := o.password()
	if saslErr == nil && o.mechanism != "" {
		if _, saslErr = k.sasl(); saslErr != nil { // SCRAM does not allow every character
			saslErr = fmt.Errorf("--kafka-sasl %s: %w", o.mechanism, saslErr)
		}
	}
	return k, errors.Join(tlsErr, saslErr)
}

// password checks the SASL options, and reads the password.
func (o *Options) password() (password string, err error) {
	switch o.mechanism {
	case "":
		if o.user != "" || o.passwordFile != "" {
			return "", errors.New("--kafka-user and --kafka-password-file need --kafka-sasl")
		}
		return "", nil
	case "plain", "scram-sha-256", "scram-sha-512":
	default:
		return "", fmt.Errorf("--kafka-sasl %q: plain, scram-sha-256 or scram-sha-512", o.mechanism)
	}
	password, err = o.o.Secret(passwordVariable, o.passwordFile)
	if err == nil && (o.user == "" || password == "") {
		err = fmt.Errorf("--kafka-sasl needs --kafka-user, and the password in %s or in --kafka-password-file", passwordVariable)
	}
	return password, err
}

// Secured reports whether connections have TLS, or say who we are.
func (k *Kafka) Secured() bool { return k.tls.On() || k.mechanism != "" }
