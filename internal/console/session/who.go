package session

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/access"
)

// asker asks the aggregator whose a token is. It keeps the answers for a minute, so that the parts of
// a page are one question.
type asker struct {
	client *api.Client
	flight singleflight.Group

	mu    sync.Mutex
	known map[[sha256.Size]byte]answer
	down  time.Time // when it last did not answer
	cause error
}

type answer struct {
	access.Identity
	err error // a refusal
	at  time.Time
}

const (
	maxKnown = 10_000          // answers that are kept
	askAgain = 2 * time.Second // after the aggregator did not answer
)

func newAsker(client *api.Client) *asker {
	return &asker{client: client, known: map[[sha256.Size]byte]answer{}}
}

// refusedError is the aggregator's refusal of a token.
type refusedError struct {
	status int
	detail string
}

func (e *refusedError) Error() string { return e.detail }

// ask returns whose a token is; "" asks whether one is needed. The error is a *refusedError, or
// errNoAnswer if the aggregator does not say within some seconds.
func (a *asker) ask(ctx context.Context, token string) (access.Identity, error) {
	hash := sha256.Sum256([]byte(token))
	a.mu.Lock()
	known, ok := a.known[hash]
	down, cause := a.down, a.cause
	a.mu.Unlock()
	if ok && time.Since(known.at) < confirmEach {
		return known.Identity, known.err
	}
	if time.Since(down) < askAgain { // the parts of a page do not wait one after the other
		return access.Identity{}, cause
	}
	return a.afresh(ctx, token)
}

// afresh is ask without what is known.
func (a *asker) afresh(ctx context.Context, token string) (access.Identity, error) {
	hash := sha256.Sum256([]byte(token))
	v, err, _ := a.flight.Do(string(hash[:]), func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), askWithin) // it is for all who wait
		defer cancel()
		id, err := a.request(ctx, token)
		a.keep(hash, token, id, err)
		return id, err
	})
	id, _ := v.(access.Identity)
	return id, err
}

func (a *asker) request(ctx context.Context, token string) (access.Identity, error) {
	is, err := a.client.WithToken(token).Whoami(ctx)
	if refusal, ok := errors.AsType[*api.Refusal](err); ok && (refusal.Status == http.StatusUnauthorized || refusal.Status == http.StatusForbidden) {
		return access.Identity{}, &refusedError{refusal.Status, refusal.Detail}
	}
	if err != nil {
		return access.Identity{}, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	role, ok := access.ParseRole(is.Role)
	if !ok {
		return access.Identity{}, fmt.Errorf("%w: it gives a role that this console does not know; update the console", errNoAnswer)
	}
	by := access.Credential(is.Credential)
	if is.Credential == "none" {
		by = access.Nothing
	}
	return access.Identity{Name: is.Name, Role: role, By: by}, nil
}

// keep keeps what the aggregator said. Of refusals it keeps only that a token is needed: others end
// their session.
func (a *asker) keep(hash [sha256.Size]byte, token string, id access.Identity, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.Is(err, errNoAnswer) {
		a.down, a.cause = time.Now(), err
		return
	}
	a.down = time.Time{}
	if err != nil && token != "" {
		delete(a.known, hash)
		return
	}
	if len(a.known) >= maxKnown {
		for h, k := range a.known {
			if time.Since(k.at) >= confirmEach {
				delete(a.known, h)
			}
		}
	}
	if len(a.known) < maxKnown {
		a.known[hash] = answer{id, err, time.Now()}
	}
}
