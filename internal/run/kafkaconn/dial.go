package kafkaconn

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

	"github.com/tallygate/tallygate/internal/run/ops"
)

// DialContext opens a connection to a broker, with TLS and SASL by what the files hold now: so they
// are read again at each connection, by whichever library asks for it. The libraries themselves are
// told of neither. A broker that ends sessions after a while (connections.max.reauth.ms) closes the
// connection then, and the library opens another.
func (k *Kafka) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, ops.DialWithin)
	defer cancel()
	conn, err := k.tls.Dial(ctx, new(net.Dialer), network, address)
	if err == nil {
		if err = k.introduce(ctx, conn); err != nil {
			_ = conn.Close()
			conn, err = nil, ops.AsRefusal(fmt.Errorf("authenticate at %s: %w", address, err))
		}
	}
	k.access.Note(err)
	return conn, err
}

// Dial is DialContext, for sarama.
func (k *Kafka) Dial(network, address string) (net.Conn, error) {
	return k.DialContext(context.Background(), network, address)
}

// introduce returns when the broker knows us, or why it does not take us.
func (k *Kafka) introduce(ctx context.Context, conn net.Conn) (err error) {
	if !k.tls.On() && k.mechanism == "" {
		return nil
	}
	end, _ := ctx.Deadline()
	_ = conn.SetDeadline(end)
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	if k.mechanism != "" {
		err = k.authenticate(ctx, conn)
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
	return err
}

// authenticate is SASL by Kafka's protocol: SaslHandshake 1, then SaslAuthenticate 0.
// https://kafka.apache.org/protocol#sasl_handshake
func (k *Kafka) authenticate(ctx context.Context, conn net.Conn) error {
	mechanism, err := k.sasl()
	if err != nil {
		return &ops.Refusal{Err: err}
	}
	name := mechanism.Name()
	answer, err := ask(conn, 1, &saslhandshake.Request{Mechanism: name})
	if err != nil {
		return err
	}
	if hello := answer.(*saslhandshake.Response); hello.ErrorCode != 0 {
		return &ops.Refusal{Err: fmt.Errorf("SASL %s: %w (it has %s)", name, kafka.Error(hello.ErrorCode), strings.Join(hello.Mechanisms, ", "))}
	}
	conversation, part, err := mechanism.Start(ctx)
	for done := false; err == nil && !done; {
		var said []byte
		if said, err = authRound(conn, part); err != nil {
			return err
		}
		done, part, err = conversation.Next(ctx, said)
	}
	if err != nil {
		return &ops.Refusal{Err: fmt.Errorf("SASL %s: %w", name, err)}
	}
	return nil
}

// authRound sends one part of the conversation, and returns the broker's.
func authRound(conn net.Conn, part []byte) ([]byte, error) {
	answer, err := ask(conn, 0, &saslauthenticate.Request{AuthBytes: part})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return nil, &ops.Refusal{Err: fmt.Errorf("the broker closed the connection, as some do for a wrong user or password: %w", err)}
	case err != nil:
		return nil, err
	}
	said := answer.(*saslauthenticate.Response)
	if said.ErrorCode == 0 {
		return said.AuthBytes, nil
	}
	return nil, &ops.Refusal{Err: fmt.Errorf("%w: %s", kafka.Error(said.ErrorCode), said.ErrorMessage)}
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

// Refused returns since when the brokers do not let us in, and why; a nil error if they do.
func (k *Kafka) Refused() (since time.Time, why error) { return k.access.Refused() }

// WatchAccess logs when Kafka refuses us, and tries again meanwhile, until ctx ends.
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
