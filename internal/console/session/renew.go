package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tallygate/tallygate/internal/run/access/issuer"
)

const (
	renewBefore = 2 * time.Minute  // a token's expiry
	renewAgain  = 30 * time.Second // after it failed
	renewedKept = 2 * time.Minute  // for requests that the browser sent with the cookie from before
)

// renewals get new tokens from the issuer. Many issuers take a refresh token once only: requests that
// come with the same one get the same answer.
type renewals struct {
	flight singleflight.Group

	mu   sync.Mutex
	made map[[sha256.Size]byte]renewal
}

type renewal struct {
	issuer.Grant
	err error
	at  time.Time
}

func newRenewals() *renewals { return &renewals{made: map[[sha256.Size]byte]renewal{}} }

// renew is a ticket with a new token if its token expires soon, or errNoSession if it has expired.
func (m *Manager) renew(ctx context.Context, t ticket, now time.Time) (_ ticket, changed bool, err error) {
	if t.Until.IsZero() || now.Before(t.Until.Add(-renewBefore)) {
		return t, false, nil
	}
	if t.Refresh == "" || m.cfg.Login == nil {
		if now.Before(t.Until) {
			return t, false, nil
		}
		return t, false, errNoSession
	}
	grant, err := m.renewed.get(ctx, m.cfg.Login, t.Refresh)
	switch {
	case err == nil:
		t.Token, t.Until = grant.Token, grant.Until
		if grant.Refresh != "" {
			t.Refresh = grant.Refresh
		}
		return t, true, nil
	case now.Before(t.Until):
		return t, false, nil // it is good for a moment yet
	case errors.Is(err, issuer.ErrNoAnswer):
		if leftOut, due := m.noIssuer.Due(); due {
			m.cfg.Logger.Warn("the issuer of logins does not renew them; this is not logged again for a minute", "error", err, "left_out", leftOut)
		}
		return t, false, errNoAnswer
	}
	return t, false, errNoSession
}

// get uses a refresh token once.
func (r *renewals) get(ctx context.Context, flow *issuer.Flow, refresh string) (issuer.Grant, error) {
	hash := sha256.Sum256([]byte(refresh))
	v, err, _ := r.flight.Do(string(hash[:]), func() (any, error) {
		if known, ok := r.kept(hash); ok {
			return known.Grant, known.err
		}
		grant, err := flow.Renew(context.WithoutCancel(ctx), refresh)
		r.mu.Lock()
		defer r.mu.Unlock()
		r.made[hash] = renewal{grant, err, time.Now()}
		return grant, err
	})
	grant, _ := v.(issuer.Grant)
	return grant, err
}

// kept returns the recent answer to a refresh token. It forgets those of before.
func (r *renewals) kept(hash [sha256.Size]byte) (renewal, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for h, k := range r.made {
		keep := renewedKept
		if k.err != nil {
			keep = renewAgain
		}
		if time.Since(k.at) >= keep {
			delete(r.made, h)
		}
	}
	k, ok := r.made[hash]
	return k, ok
}
