package ops

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	kscram "github.com/segmentio/kafka-go/sasl/scram"
	"github.com/xdg-go/scram"
)

// Kafka is how to reach Kafka: the same for every client library.
type Kafka struct {
	Brokers []string
	TLS     *tls.Config // nil: no TLS

	mechanism      string // "", plain, scram-sha-256 or scram-sha-512
	user, password string
}

// KafkaOptions are the options that make a Kafka.
type KafkaOptions struct {
	o                                  *Options
	brokers                            *List
	tls                                tlsOptions
	mechanism, user, passwordFile, env string
}

// Kafka adds the Kafka options.
func (o *Options) Kafka() *KafkaOptions {
	k := &KafkaOptions{o: o, env: "TALLYGATE_KAFKA_PASSWORD"}
	k.brokers = o.List("kafka", []string{"127.0.0.1:9092"}, "Kafka's bootstrap brokers, `HOST:PORT,…`")
	k.tls.add(o, "kafka")
	o.StringVar(&k.mechanism, "kafka-sasl", "", "SASL `mechanism`: plain, scram-sha-256 or scram-sha-512; the password is in "+k.env+" or in --kafka-password-file")
	o.StringVar(&k.user, "kafka-user", "", "SASL `user`")
	o.StringVar(&k.passwordFile, "kafka-password-file", "", "`FILE` with the SASL password")
	return k
}

// Build reads the files that the options name.
func (k *KafkaOptions) Build() (*Kafka, error) {
	out := &Kafka{Brokers: *k.brokers, mechanism: k.mechanism, user: k.user}
	var errs []error
	var err error
	if out.TLS, err = k.tls.build(); err != nil {
		errs = append(errs, err)
	}
	switch k.mechanism {
	case "", "plain", "scram-sha-256", "scram-sha-512":
	default:
		errs = append(errs, fmt.Errorf("--kafka-sasl %q: plain, scram-sha-256 or scram-sha-512", k.mechanism))
	}
	if k.mechanism != "" {
		if out.password, err = k.o.Secret(k.env, k.passwordFile); err != nil {
			errs = append(errs, err)
		}
		if k.user == "" || out.password == "" && err == nil {
			errs = append(errs, fmt.Errorf("--kafka-sasl needs --kafka-user, and the password in %s or in --kafka-password-file", k.env))
		}
	}
	return out, errors.Join(errs...)
}

// Sarama puts the connection's settings into a sarama configuration.
func (k *Kafka) Sarama(s *sarama.Config) {
	s.Net.TLS.Enable, s.Net.TLS.Config = k.TLS != nil, k.TLS
	if k.mechanism == "" {
		return
	}
	s.Net.SASL.Enable, s.Net.SASL.User, s.Net.SASL.Password = true, k.user, k.password
	switch k.mechanism {
	case "plain":
		s.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	case "scram-sha-256":
		s.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		s.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case "scram-sha-512":
		s.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		s.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	}
}

// Mechanism is the SASL mechanism for kafka-go; nil without SASL.
func (k *Kafka) Mechanism() (sasl.Mechanism, error) {
	switch k.mechanism {
	case "plain":
		return plain.Mechanism{Username: k.user, Password: k.password}, nil
	case "scram-sha-256":
		return kscram.Mechanism(kscram.SHA256, k.user, k.password)
	case "scram-sha-512":
		return kscram.Mechanism(kscram.SHA512, k.user, k.password)
	}
	return nil, nil //nolint:nilnil // no mechanism is a choice
}

// Transport is kafka-go's, with the connection's settings.
func (k *Kafka) Transport() (*kafka.Transport, error) {
	m, err := k.Mechanism()
	if err != nil {
		return nil, fmt.Errorf("set up SASL: %w", err)
	}
	return &kafka.Transport{ClientID: "tallygate", TLS: k.TLS, SASL: m, DialTimeout: 10 * time.Second}, nil
}

// scramClient is RFC 5802 for sarama, which leaves it to its users.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

func (c *scramClient) Begin(user, password, authzID string) error {
	client, err := c.hash.NewClient(user, password, authzID)
	if err != nil {
		return err
	}
	c.conversation = client.NewConversation()
	return nil
}

func (c *scramClient) Step(challenge string) (string, error) { return c.conversation.Step(challenge) }
func (c *scramClient) Done() bool                            { return c.conversation.Done() }

// tlsOptions are the TLS options of one kind of connection.
type tlsOptions struct {
	on            bool
	name          string
	ca, cert, key string
}

func (t *tlsOptions) add(o *Options, name string) {
	t.name = name
	o.BoolVar(&t.on, name+"-tls", false, "connect with TLS")
	o.StringVar(&t.ca, name+"-ca", "", "`FILE` with the PEM certificates to trust instead of the system's")
	o.StringVar(&t.cert, name+"-cert", "", "`FILE` with our certificate, for mutual TLS")
	o.StringVar(&t.key, name+"-key", "", "`FILE` with our certificate's key")
}

func (t *tlsOptions) build() (*tls.Config, error) {
	if !t.on {
		if f := cmp.Or(t.ca, t.cert, t.key); f != "" {
			return nil, fmt.Errorf("--%s-ca, -cert and -key need --%s-tls", t.name, t.name)
		}
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("read --%s-ca: %w", t.name, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--%s-ca %s: no PEM certificate in it", t.name, t.ca)
		}
	}
	if t.cert != "" || t.key != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("read --%s-cert and --%s-key: %w", t.name, t.name, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
