package issuer

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/testing/oidctest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// older makes what is known of the issuer older.
func (i *Issuer) older(by time.Duration) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tried, i.fetched, i.discovered = i.tried.Add(-by), i.fetched.Add(-by), i.discovered.Add(-by)
}

func accepted(t *testing.T, i *Issuer, about, token string) {
	t.Helper()
	if _, err := i.Verify(t.Context(), token); err != nil {
		t.Errorf("%s: %v", about, err)
	}
}

// Keys are fetched when the first token comes, and again when one names a new key; and not for each
// token that names one that is not there.
func TestKeysAreFetchedAndRotate(t *testing.T) {
	p := oidctest.New(t)
	i := anIssuer(t, p)
	if n := p.Asked.Load(); n != 0 {
		t.Errorf("the keys were fetched %d times before a token came", n)
	}
	old := p.Sign(p.Claims(nil))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() { accepted(t, i, "the first key", old) })
	}
	wg.Wait()
	if n := p.Asked.Load(); n != 1 {
		t.Errorf("20 first tokens fetched the keys %d times", n)
	}
	p.Rotate()
	i.older(unknownEach)
	rotated := p.Sign(p.Claims(nil))
	accepted(t, i, "a new key", rotated)
	if _, err := i.Verify(t.Context(), old); !errors.Is(err, errUnknownKey) {
		t.Errorf("a key that the issuer has withdrawn: %v", err)
	}
	for range 100 {
		_, _ = i.Verify(t.Context(), old)
	}
	if n := p.Asked.Load(); n != 2 {
		t.Errorf("tokens of an unknown key fetched the keys: %d times in all, want 2", n)
	}
}

// A key that the issuer withdraws is refused after a while, though no token names another one.
func TestAWithdrawnKeyIsForgotten(t *testing.T) {
	p := oidctest.New(t)
	i := anIssuer(t, p)
	old := p.Sign(p.Claims(nil))
	accepted(t, i, "the first key", old)
	p.Rotate()
	accepted(t, i, "at once", old)
	i.older(keysLast)
	if _, err := i.Verify(t.Context(), old); !errors.Is(err, errUnknownKey) {
		t.Errorf("after a while: %v", err)
	}
}

// While the issuer is down the keys that are known go on, and what cannot be checked is not the
// caller's fault.
func TestTheIssuerIsDown(t *testing.T) {
	p := oidctest.New(t)
	i := anIssuer(t, p)
	p.Down.Store(true)
	token := p.Sign(p.Claims(nil))
	if _, err := i.Verify(t.Context(), token); !errors.Is(err, access.ErrUnavailable) || !strings.Contains(err.Error(), "503") {
		t.Errorf("nothing is known: %v", err)
	}
	p.Down.Store(false)
	if _, err := i.Verify(t.Context(), token); !errors.Is(err, access.ErrUnavailable) {
		t.Errorf("it is asked again at once: %v", err)
	}
	i.older(failedEach)
	accepted(t, i, "it is there again", token)
	p.Down.Store(true)
	i.older(24 * time.Hour)
	for range 3 {
		accepted(t, i, "a known key", token)
	}
	p.Rotate()
	if _, err := i.Verify(t.Context(), p.Sign(p.Claims(nil))); !errors.Is(err, errUnknownKey) {
		t.Errorf("a key that cannot be fetched: %v", err)
	}
}

// An issuer that does not answer holds up one request for some seconds, and no other one whose key is
// known.
func TestTheIssuerHangs(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t)
	i := anIssuer(t, p)
	old := p.Sign(p.Claims(nil))
	accepted(t, i, "the first key", old)
	p.Rotate()
	p.Slow.Store(true)
	i.older(keysLast)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := i.Verify(t.Context(), p.Sign(p.Claims(nil))); !errors.Is(err, errUnknownKey) {
			t.Errorf("a key that cannot be fetched: %v", err)
		}
	})
	testrun.Eventually(t, "somebody asks the issuer", func() bool { return p.Held.Load() == 1 })
	for range 10 {
		accepted(t, i, "a known key, meanwhile", old)
	}
	if n := p.Held.Load(); n != 1 {
		t.Errorf("%d requests ask the issuer at once", n)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := i.Verify(ctx, p.Sign(p.Claims(nil))); err == nil {
		t.Error("a request that has ended got an answer")
	}
	wg.Wait() // the issuer answers when the test has ended
}
