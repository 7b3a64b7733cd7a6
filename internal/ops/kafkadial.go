package ops

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// dialWithin bounds how long a connection takes, with TLS and SASL.
const dialWithin = 10 * time.Second

// DialContext opens a connection to a broker, with TLS and SASL by what the files hold now: so they are read again at each connection,
// by whichever library asks for it. The libraries themselves are told of neither. A broker that ends sessions after a while
// (connections.max.reauth.ms) closes the connection then, and the library opens another.
func (k *Kafka) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil || k.TLS == nil && k.mechanism == "" {
		return conn, err
	}
	conn, err = k.secure(ctx, conn, address)
	k.access.Note(err)
	return conn, err
}

// Dial is DialContext, for sarama.
func (k *Kafka) Dial(network, address string) (net.Conn, error) {
	return k.DialContext(context.Background(), network, address)
}

// secure closes the connection when it fails.
func (k *Kafka) secure(ctx context.Context, conn net.Conn, address string) (_ net.Conn, err error) {
	if k.TLS != nil {
		if conn, err = k.tls.handshake(ctx, conn, address); err != nil {
			return nil, err
		}
	}
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if k.mechanism != "" {
		err = k.authenticate(conn)
	} else {
		// With TLS 1.3 a broker tells in its first answer whether it takes our certificate.
		_, err = ask(conn, 0, &apiversions.Request{})
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		_ = conn.Close()
		return nil, asRefusal(fmt.Errorf("authenticate at %s: %w", address, err))
	}
	return conn, nil
}

// authenticate is SASL by Kafka's protocol: SaslHandshake 1, then SaslAuthenticate 0.
// https://kafka.apache.org/protocol#sasl_handshake
func (k *Kafka) authenticate(conn net.Conn) error {
	password, err := k.password()
	if err != nil {
		return &Refusal{err}
	}
	name := strings.ToUpper(k.mechanism)
	answer, err := ask(conn, 1, &saslhandshake.Request{Mechanism: name})
	if err != nil {
		return err
	}
	if hello := answer.(*saslhandshake.Response); hello.ErrorCode != 0 {
		return &Refusal{fmt.Errorf("SASL %s: %w (it has %s)", name, kafka.Error(hello.ErrorCode), strings.Join(hello.Mechanisms, ", "))}
	}
	if k.mechanism == "plain" {
		_, err := authRound(conn, []byte("\x00"+k.user+"\x00"+password))
		return err
	}
	c := &scramClient{hash: scramHashes[k.mechanism]}
	if err := c.Begin(k.user, password, ""); err != nil {
		return &Refusal{err}
	}
	challenge := ""
	for !c.Done() {
		text, err := c.Step(challenge)
		if err != nil {
			return &Refusal{fmt.Errorf("SASL %s: %w", name, err)}
		}
		if c.Done() {
			return nil
		}
		said, err := authRound(conn, []byte(text))
		if err != nil {
			return err
		}
		challenge = string(said)
	}
	return nil
}

// authRound sends one part of the conversation, and returns the broker's.
func authRound(conn net.Conn, part []byte) ([]byte, error) {
	answer, err := ask(conn, 0, &saslauthenticate.Request{AuthBytes: part})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &Refusal{fmt.Errorf("the broker closed the connection, as some do for a wrong user or password: %w", err)}
	case err != nil:
		return nil, err
	}
	said := answer.(*saslauthenticate.Response)
	if said.ErrorCode == 0 {
		return said.AuthBytes, nil
	}
	return nil, &Refusal{fmt.Errorf("%w: %s", kafka.Error(said.ErrorCode), said.ErrorMessage)}
}

// maxAuthAnswer bounds what an answer may have: whoever answers has not proved anything yet.
const maxAuthAnswer = 64 << 10

// ask sends a request on a connection that nothing else uses yet, and reads the response.
func ask(conn net.Conn, version int16, req protocol.Message) (protocol.Message, error) {
	return protocol.RoundTrip(struct {
		io.Reader
		io.Writer
	}{io.LimitReader(conn, maxAuthAnswer), conn}, version, 1, "tallygate", req)
}

// Ready returns why the brokers don't let us in, once that has lasted.
func (k *Kafka) Ready() error { return k.access.Ready("Kafka") }

// WatchAccess says when Kafka refuses us, and tries again meanwhile, until ctx ends.
func (k *Kafka) WatchAccess(ctx context.Context, log *slog.Logger) {
	k.access.Run(ctx, "Kafka", log, func(ctx context.Context) (err error) {
		for _, broker := range k.Brokers {
			var conn net.Conn
			if conn, err = k.DialContext(ctx, "tcp", broker); err == nil {
				return conn.Close()
			}
		}
		return err
	})
}
