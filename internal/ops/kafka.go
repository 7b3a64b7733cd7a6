package ops

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strings"

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

	mechanism string // "", plain, scram-sha-256 or scram-sha-512
	user      string
	password  func() (string, error) // reads it again
	tls       tlsOptions
	access    Access // whether the brokers let us in
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
	out := &Kafka{Brokers: *k.brokers, mechanism: k.mechanism, user: k.user, tls: k.tls, password: k.sasl}
	var tlsErr error
	out.TLS, tlsErr = k.tls.build()
	_, saslErr := k.sasl()
	return out, errors.Join(tlsErr, saslErr)
}

// sasl checks the SASL options, and reads the password.
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

// Sarama puts the connection's settings into a sarama configuration: how it connects. TLS and SASL are done then.
func (k *Kafka) Sarama(s *sarama.Config) { s.Net.Proxy.Enable, s.Net.Proxy.Dialer = true, k }

// Mechanism is the SASL mechanism for kafka-go's emitters; nil without SASL. It reads the password again at each connection.
func (k *Kafka) Mechanism() (sasl.Mechanism, error) {
	if k.mechanism == "" {
		return nil, nil //nolint:nilnil // no mechanism is a choice
	}
	_, err := k.current()
	return freshMechanism{k}, err
}

// current is the mechanism with the password as it is now.
func (k *Kafka) current() (sasl.Mechanism, error) {
	password, err := k.password()
	if err != nil {
		return nil, err
	}
	switch k.mechanism {
	case "scram-sha-256":
		return kscram.Mechanism(kscram.SHA256, k.user, password)
	case "scram-sha-512":
		return kscram.Mechanism(kscram.SHA512, k.user, password)
	}
	return plain.Mechanism{Username: k.user, Password: password}, nil
}

// freshMechanism begins each conversation with the password as it is then.
type freshMechanism struct{ k *Kafka }

// Name is the mechanism's.
func (m freshMechanism) Name() string { return strings.ToUpper(m.k.mechanism) }

// Start begins a conversation.
func (m freshMechanism) Start(ctx context.Context) (sasl.StateMachine, []byte, error) {
	now, err := m.k.current()
	if err != nil {
		return nil, nil, err
	}
	return now.Start(ctx)
}

// CurrentTLS is the TLS configuration by what the files hold now; nil without TLS. It is for what connects by itself, such as an emitter
// that is made while the program runs.
func (k *Kafka) CurrentTLS() (*tls.Config, error) {
	if k.TLS == nil {
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
	return k.tls.build()
}

// Transport is kafka-go's, with the connection's settings.
func (k *Kafka) Transport() (*kafka.Transport, error) {
	return &kafka.Transport{ClientID: "tallygate", Dial: k.DialContext, DialTimeout: dialWithin}, nil
}

// scramHashes are those of the mechanisms.
var scramHashes = map[string]scram.HashGeneratorFcn{"scram-sha-256": scram.SHA256, "scram-sha-512": scram.SHA512}

// scramClient is RFC 5802.
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
