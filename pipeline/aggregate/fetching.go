package aggregate

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"

	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// fetching are the settings of what reads the claims: those of sarama's connections and consumer,
// so that there is one place to set them.
func (c Config) fetching() (kafkalog.Config, error) {
	s := c.sarama()
	f := kafkalog.Config{
		Brokers:        c.Brokers,
		ClientID:       s.ClientID,
		DialTimeout:    s.Net.DialTimeout,
		ReadTimeout:    s.Net.ReadTimeout,
		Uncommitted:    s.Consumer.IsolationLevel == sarama.ReadUncommitted,
		MaxWait:        s.Consumer.MaxWaitTime,
		MinBytes:       s.Consumer.Fetch.Min,
		PartitionBytes: s.Consumer.Fetch.Default,
		LargestBatch:   s.Consumer.Fetch.Max,
		ResponseBytes:  s.Consumer.Fetch.MaxBytes,
		MaxResponse:    sarama.MaxResponseSize,
		MaxBatch:       c.MaxBatchBytes,
		Logger:         c.Logger,
	}
	if s.Net.TLS.Enable {
		f.TLS = s.Net.TLS.Config
		if f.TLS == nil {
			f.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
		}
	}
	if s.Net.Proxy.Enable {
		dialer := s.Net.Proxy.Dialer
		f.Dial = func(_ context.Context, network, address string) (net.Conn, error) {
			return dialer.Dial(network, address)
		}
	}
	var err error
	if s.Net.SASL.Enable {
		f.SASL, err = mechanism(s)
	}
	return f, err
}

// mechanism is SASL as sarama is told to do it.
func mechanism(s *sarama.Config) (sasl.Mechanism, error) {
	c := s.Net.SASL
	switch c.Mechanism {
	case sarama.SASLTypePlaintext, "":
		return plain.Auth{Zid: c.AuthIdentity, User: c.User, Pass: c.Password}.AsMechanism(), nil
	case sarama.SASLTypeSCRAMSHA256:
		return scram.Auth{Zid: c.SCRAMAuthzID, User: c.User, Pass: c.Password}.AsSha256Mechanism(), nil
	case sarama.SASLTypeSCRAMSHA512:
		return scram.Auth{Zid: c.SCRAMAuthzID, User: c.User, Pass: c.Password}.AsSha512Mechanism(), nil
	case sarama.SASLTypeOAuth:
		if c.TokenProvider == nil {
			return nil, errors.New("SASL by OAUTHBEARER: no token provider")
		}
		return oauth.Oauth(func(context.Context) (oauth.Auth, error) {
			token, err := c.TokenProvider.Token()
			if err != nil {
				return oauth.Auth{}, fmt.Errorf("get a token for Kafka: %w", err)
			}
			return oauth.Auth{Zid: c.AuthIdentity, Token: token.Token, Extensions: token.Extensions}, nil
		}), nil
	default:
		return nil, fmt.Errorf("SASL mechanism %s: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER", c.Mechanism)
	}
}
