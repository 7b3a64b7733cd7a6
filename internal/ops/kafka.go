package ops

import (
	"crypto/tls"
	"errors"
	"fmt"
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
	o                             *Options
	brokers                       *List
	tls                           tlsOptions
	mechanism, user, passwordFile string
}

const kafkaPassword = "TALLYGATE_KAFKA_PASSWORD"

// Kafka adds the Kafka options.
func (o *Options) Kafka() *KafkaOptions {
	k := &KafkaOptions{o: o}
	k.brokers = o.List("kafka", []string{"127.0.0.1:9092"}, "Kafka's bootstrap brokers, `HOST:PORT,…`")
	k.tls.add(o, "kafka")
	o.StringVar(&k.mechanism, "kafka-sasl", "", "SASL `mechanism`: plain, scram-sha-256 or scram-sha-512; the password is in "+kafkaPassword+" or in --kafka-password-file")
	o.StringVar(&k.user, "kafka-user", "", "SASL `user`")
	o.StringVar(&k.passwordFile, "kafka-password-file", "", "`FILE` with the SASL password")
	return k
}

// Build reads the files that the options name.
func (k *KafkaOptions) Build() (*Kafka, error) {
	out := &Kafka{Brokers: *k.brokers, mechanism: k.mechanism, user: k.user}
	var tlsErr, saslErr error
	out.TLS, tlsErr = k.tls.build()
	out.password, saslErr = k.sasl()
	return out, errors.Join(tlsErr, saslErr)
}

// sasl checks the SASL options, and returns the password.
func (k *KafkaOptions) sasl() (password string, err error) {
	switch k.mechanism {
	case "":
		if k.user != "" || k.passwordFile != "" {
			return "", errors.New("--kafka-user and --kafka-password-file need --kafka-sasl")
		}
		return "", nil
	case "plain", "scram-sha-256", "scram-sha-512":
	default:
		return "", fmt.Errorf("--kafka-sasl %q: plain, scram-sha-256 or scram-sha-512", k.mechanism)
	}
	password, err = k.o.Secret(kafkaPassword, k.passwordFile)
	if err == nil && (k.user == "" || password == "") {
		err = fmt.Errorf("--kafka-sasl needs --kafka-user, and the password in %s or in --kafka-password-file", kafkaPassword)
	}
	return password, err
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
