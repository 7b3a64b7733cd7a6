// Package options has the options for Kafka without a client of it, for programs that don't connect themselves.
package options

import (
	"errors"
	"fmt"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// Options are the options for Kafka of one command.
type Options struct {
	Brokers         *ops.List
	TLS             *ops.ClientTLSOptions
	Mechanism, User string

	o            *ops.Options
	passwordFile string
}

const passwordVariable = "TALLYGATE_KAFKA_PASSWORD"

// Usual is the default address of Kafka.
const Usual = "127.0.0.1:9092"

// New adds the options for Kafka to a command's.
func New(o *ops.Options) *Options {
	k := &Options{o: o}
	k.Brokers = o.List("kafka", []string{Usual}, "Kafka's bootstrap brokers, `HOST:PORT,…`")
	k.TLS = o.ClientTLS("kafka")
	o.StringVar(&k.Mechanism, "kafka-sasl", "",
		"SASL `mechanism`: plain, scram-sha-256 or scram-sha-512; the password is in "+passwordVariable+" or in --kafka-password-file")
	o.StringVar(&k.User, "kafka-user", "", "SASL `user`")
	o.StringVar(&k.passwordFile, "kafka-password-file", "", "`FILE` with the SASL password")
	return k
}

// Password checks the SASL options, and reads the password.
func (o *Options) Password() (password string, err error) {
	switch o.Mechanism {
	case "":
		if o.User != "" || o.passwordFile != "" {
			return "", errors.New("--kafka-user and --kafka-password-file need --kafka-sasl")
		}
		return "", nil
	case "plain", "scram-sha-256", "scram-sha-512":
	default:
		return "", fmt.Errorf("--kafka-sasl %q: plain, scram-sha-256 or scram-sha-512", o.Mechanism)
	}
	password, err = o.o.Secret(passwordVariable, o.passwordFile)
	if err == nil && (o.User == "" || password == "") {
		err = fmt.Errorf("--kafka-sasl needs --kafka-user, and the password in %s or in --kafka-password-file", passwordVariable)
	}
	return password, err
}
