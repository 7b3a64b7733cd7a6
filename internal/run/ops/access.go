package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"
)

// Refusal is why a server refuses this program, or why the program does not trust the server.
// Waiting does not fix it; other files do.
type Refusal struct{ Err error }

// Error describes the refusal.
func (r *Refusal) Error() string { return r.Err.Error() }

// Unwrap returns Err.
func (r *Refusal) Unwrap() error { return r.Err }

// AsRefusal makes a Refusal of what TLS says about certificates; another error, such as of the
// network, stays what it is.
func AsRefusal(err error) error {
	var (
		alert   tls.AlertError
		record  tls.RecordHeaderError
		verify  *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		invalid x509.CertificateInvalidError
		host    x509.HostnameError
	)
	if errors.As(err, &alert) || errors.As(err, &record) || errors.As(err, &verify) || errors.As(err, &unknown) || errors.As(err, &invalid) || errors.As(err, &host) ||
		isRemoteAlert(err) {
		return &Refusal{err}
	}
	return err
}

// isRemoteAlert reports whether the other side ended TLS with an alert, as one does that does not
// take our certificate. crypto/tls has an unexported error for it.
func isRemoteAlert(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// Access tells whether a server admits this program. The zero value says that it does. Note is called with every
// attempt. While the last one was refused, Run retries by itself, because the caller may not try again.
type Access struct {
	mu    sync.Mutex
	since time.Time // of the first refusal since the last success; zero: there is none
	err   error
	wake  chan struct{}
}

// How often a refused program tries by itself and says so, and how long it may be refused before it
// is not ready: a secret that is changed at two places is wrong at one of them for a while.
const (
	accessTries = 2 * time.Second
	accessSays  = time.Minute
	accessGrace = 5 * time.Second
)

// Note records an attempt; nil is a success. An error that is not a Refusal changes nothing.
func (a *Access) Note(err error) {
	var refused *Refusal
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case err == nil:
		a.since, a.err = time.Time{}, nil
	case errors.As(err, &refused):
		if a.err = err; a.since.IsZero() {
			a.since = time.Now()
			close(a.woken())
			a.wake = nil
		}
	}
}

// Refused returns since when the server refuses the program, and why; a nil error if it does not.
func (a *Access) Refused() (since time.Time, why error) {
	since, _, why = a.refused()
	return since, why
}

func (a *Access) woken() chan struct{} {
	if a.wake == nil {
		a.wake = make(chan struct{})
	}
	return a.wake
}

func (a *Access) refused() (since time.Time, next <-chan struct{}, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.since, a.woken(), a.err
}

// Ready returns why the server refuses the program, once that has lasted.
func (a *Access) Ready(server string) error {
	since, _, err := a.refused()
	if err == nil || time.Since(since) < accessGrace {
		return nil
	}
	return fmt.Errorf("%s has refused us since %s: %w", server, since.UTC().Format(time.RFC3339), err)
}

// Run logs a refusal, at once and then every minute, retries meanwhile, and logs when it is over;
// until ctx ends.
func (a *Access) Run(ctx context.Context, server string, log *slog.Logger, try func(context.Context) error) {
	for {
		_, refused, err := a.refused()
		if err == nil {
			select {
			case <-refused:
			case <-ctx.Done():
				return
			}
		}
		a.wait(ctx, server, log, try)
		if ctx.Err() != nil {
			return
		}
	}
}

// wait returns when the server admits the program again.
func (a *Access) wait(ctx context.Context, server string, log *slog.Logger, try func(context.Context) error) {
	tick := time.NewTicker(accessTries)
	defer tick.Stop()
	var said, first time.Time
	for {
		since, _, err := a.refused()
		if err == nil {
			log.Info(server+" accepts us again", "took_seconds", time.Since(first).Seconds())
			return
		}
		first = since
		if time.Since(said) >= accessSays {
			said = time.Now()
			log.Error(server+" refuses us; check user, password and certificates; each attempt reads their files again", "error", err, "since", since)
		}
		select {
		case <-tick.C:
			a.Note(try(ctx))
		case <-ctx.Done():
			return
		}
	}
}
