// Package receive sends messages to receivers: one file for each type. A Receiver makes one attempt; whoever
// calls it tries again. No error and no log has an address, which may be a secret.
package receive

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/rules/document"
)

// Receiver sends messages to one place.
type Receiver interface {
	// Send makes one attempt. Its error is a *Failure.
	Send(ctx context.Context, m *note.Message) error
	Close()
}

// Failure is the error of an attempt.
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

// Type is a kind of receivers: its fields in the file, and what sends to one.
type Type struct {
	Name     string
	Fields   []string          // a plain url is for those whose address is no secret
	Synonyms map[string]string // words that people write, and what they mean
	title    string            // its name in a sentence
	read     func(*Fields, *document.Object, *Config)
	open     func(c *Config, getenv func(string) string, now func() time.Time, log *slog.Logger) (Receiver, error)
}

// Types are in the order in which messages and help list them. A new one is a file like slack.go, and its row here:
// messages, help, synonyms and what is masked in the log as a secret's place come from the row.
var Types = []*Type{webhookType, slackType, teamsType, alertmanagerType, emailType}

// Names returns those of Types.
func Names() (names []string) {
	for _, t := range Types {
		names = append(names, t.Name)
	}
	return names
}

// Titles lists Types for a sentence.
func Titles() string {
	names := make([]string, len(Types))
	for i, t := range Types {
		names[i] = t.title
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// Read reads the fields of a receiver of the type; n may be nil.
func (t *Type) Read(r *Fields, n *yaml.Node, to *Config) {
	to.Type, to.Repeat, to.Keep = t.Name, time.Minute, 5*time.Minute
	if n == nil {
		return
	}
	if o, ok := r.Object(n, t.Name, t.Fields...); ok {
		r.textIf(o, "ca", &to.CA)
		t.read(r, o, to)
	}
}

// New makes the receiver of a configuration. getenv looks into the environment, for secrets; now is the clock; log
// hears of a replaced file that cannot be used.
func New(c *Config, getenv func(string) string, now func() time.Time, log *slog.Logger) (Receiver, error) {
	for _, t := range Types {
		if t.Name == c.Type {
			return t.open(c, getenv, now, log)
		}
	}
	return nil, fmt.Errorf("receiver %s: unknown type %q", c.Name, c.Type)
}

// posting opens a receiver that is posted to.
func posting(to func(*poster, func() time.Time) Receiver) func(*Config, func(string) string, func() time.Time, *slog.Logger) (Receiver, error) {
	return func(c *Config, getenv func(string) string, now func() time.Time, log *slog.Logger) (Receiver, error) {
		p, err := newPoster(c, getenv, log)
		if err != nil {
			return nil, err
		}
		return to(p, now), nil
	}
}
