// Package receive sends messages to receivers: one file for each type. A Receiver makes one attempt; whoever
// calls it tries again. No error and no log has an address, which may be a secret.
package receive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
)

// Receiver is whom messages are sent to.
type Receiver interface {
	// Send makes one attempt. Its error is a *Failure.
	Send(ctx context.Context, m *note.Message) error
	Close()
}

// Failure is why an attempt failed.
type Failure struct {
	Err    error
	Reason string        // one of Reasons
	Lost   bool          // it refuses this message, and will each time
	After  time.Duration // when it wants the next attempt; 0: it does not say
}

func (f *Failure) Error() string { return f.Err.Error() }

// Unwrap returns Err.
func (f *Failure) Unwrap() error { return f.Err }

// Reasons are those of Failure, for metrics.
const (
	Unreachable = "unreachable" // no connection, or no answer in time
	Limited     = "limited"     // it wants fewer messages
	Denied      = "denied"      // it does not take our credential, or there is nobody at the address
	Refused     = "refused"     // it does not take the message
	Broken      = "broken"      // an error of its own
	Setup       = "setup"       // a secret cannot be read, or an address is none
)

// Reasons in order.
func Reasons() []string { return []string{Unreachable, Limited, Denied, Refused, Broken, Setup} }

// setup is a Failure before anything is sent.
func setup(err error) error { return &Failure{Err: err, Reason: Setup} }

// Failed is a Failure of any error.
func Failed(err error) *Failure {
	if f, ok := errors.AsType[*Failure](err); ok {
		return f
	}
	return &Failure{Err: err, Reason: Unreachable}
}

// New makes the receiver of a configuration. getenv looks into the environment, for secrets; now is the clock; log
// hears of a replaced file that cannot be used.
func New(c *config.Receiver, getenv func(string) string, now func() time.Time, log *slog.Logger) (Receiver, error) {
	if c.Type == "email" {
		return newEmail(c, getenv, now)
	}
	p, err := newPoster(c, getenv, log)
	if err != nil {
		return nil, err
	}
	switch c.Type {
	case "webhook":
		return &webhook{p, now}, nil
	case "slack":
		return &slack{p}, nil
	case "teams":
		return &teams{p}, nil
	case "alertmanager":
		return &alertmanager{p, now}, nil
	}
	return nil, fmt.Errorf("receiver %s: unknown type %q", c.Name, c.Type)
}
