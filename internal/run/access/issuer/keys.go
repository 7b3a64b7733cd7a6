package issuer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/tallygate/tallygate/internal/run/access"
)

// signature checks that of one token. Unlike go-oidc's own set of keys it keeps apart why it cannot,
// and an unknown key does not have each request ask the issuer.
type signature struct {
	issuer *Issuer
	reason error // why it is not good; nil if it is
}

func (s *signature) VerifySignature(ctx context.Context, raw string) (payload []byte, err error) {
	var algorithms []jose.SignatureAlgorithm
	for _, a := range asymmetric {
		algorithms = append(algorithms, jose.SignatureAlgorithm(a))
	}
	parsed, err := jose.ParseSignedCompact(raw, algorithms)
	if err != nil {
		return nil, err
	}
	payload, s.reason = s.issuer.verify(ctx, parsed)
	return payload, s.reason
}

var (
	errSignature  = errors.New("its signature is not that of the issuer")
	errUnknownKey = errors.New("the issuer has no key of the ID that it names")
)

// verify checks a signature with the keys that are known, or else with those of now.
func (i *Issuer) verify(ctx context.Context, parsed *jose.JSONWebSignature) ([]byte, error) {
	id := parsed.Signatures[0].Header.KeyID
	keys, fetched := i.known()
	if len(keys) > 0 && time.Since(fetched) >= keysLast {
		i.fetch(ctx, keysLast, false) // as it fails, the old ones go on
		keys, _ = i.known()
	}
	payload, found := signedBy(parsed, keys, id)
	if payload == nil && (!found || id == "") {
		i.fetch(ctx, unknownEach, true)
		keys, _ = i.known()
		payload, found = signedBy(parsed, keys, id)
	}
	switch {
	case payload != nil:
		return payload, nil
	case len(keys) == 0:
		return nil, i.unavailable()
	case !found:
		return nil, errUnknownKey
	}
	return nil, errSignature
}

func signedBy(parsed *jose.JSONWebSignature, keys []jose.JSONWebKey, id string) (payload []byte, found bool) {
	for _, key := range keys {
		if id != "" && key.KeyID != id {
			continue
		}
		found = true
		if payload, err := parsed.Verify(&key); err == nil {
			return payload, true
		}
	}
	return nil, found
}

func (i *Issuer) known() ([]jose.JSONWebKey, time.Time) {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.keys, i.fetched
}

func (i *Issuer) unavailable() error {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.failed == nil {
		return access.ErrUnavailable
	}
	return fmt.Errorf("%w: %w", access.ErrUnavailable, i.failed)
}

// fetch gets the keys, unless that was done or tried within a time. A request that needs them waits
// for its turn; another one leaves it to who has it. None waits long.
func (i *Issuer) fetch(ctx context.Context, every time.Duration, wait bool) {
	began := time.Now()
	if !i.takeTurn(ctx, wait) {
		return
	}
	defer func() { <-i.turn }()
	i.mu.Lock()
	if i.failed != nil {
		every = failedEach
	}
	done := i.tried.After(began) || !i.tried.IsZero() && time.Since(i.tried) < every
	i.mu.Unlock()
	if done {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), fetchWithin) // it is for others, too
	defer cancel()
	keys, err := i.load(ctx)
	i.mu.Lock()
	defer i.mu.Unlock()
	i.tried, i.failed = time.Now(), err
	if err == nil {
		i.keys, i.fetched = keys, i.tried
	}
}

// takeTurn reports whether it is this request's turn to fetch.
func (i *Issuer) takeTurn(ctx context.Context, wait bool) bool {
	select {
	case i.turn <- struct{}{}:
		return true
	default:
	}
	if !wait {
		return false
	}
	limit := time.NewTimer(fetchWithin)
	defer limit.Stop()
	select {
	case i.turn <- struct{}{}:
		return true
	case <-limit.C:
	case <-ctx.Done():
	}
	return false
}

// load asks the issuer for its keys.
func (i *Issuer) load(ctx context.Context) ([]jose.JSONWebKey, error) {
	provider, err := i.discover(ctx)
	if err != nil {
		return nil, err
	}
	var at struct {
		Keys string `json:"jwks_uri"`
	}
	if err := provider.Claims(&at); err != nil {
		return nil, err
	}
	if err := checkURL(at.Keys); err != nil {
		return nil, fmt.Errorf("the issuer's jwks_uri: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Keys, nil)
	if err != nil {
		return nil, err
	}
	resp, err := i.cfg.Client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch the issuer's keys: %w", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("fetch the issuer's keys: it answers %s", resp.Status)
	}
	return readKeys(resp)
}

// readKeys leaves out keys that are of no use here, such as those of newer kinds.
func readKeys(resp *http.Response) ([]jose.JSONWebKey, error) {
	var set struct{ Keys []json.RawMessage }
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil {
		return nil, fmt.Errorf("read the issuer's keys: %w", err)
	}
	var keys []jose.JSONWebKey
	for _, raw := range set.Keys {
		var key jose.JSONWebKey
		if key.UnmarshalJSON(raw) == nil && key.Valid() && key.IsPublic() && (key.Use == "" || key.Use == "sig") {
			keys = append(keys, key)
		}
	}
	if len(keys) == 0 {
		return nil, errors.New("read the issuer's keys: none of them is one of signatures")
	}
	return keys, nil
}

// addresses are those of the issuer, for a login.
func (i *Issuer) addresses(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	known, at := i.provider, i.discovered
	i.mu.Unlock()
	if known != nil && time.Since(at) < documentFor {
		return known, nil
	}
	if !i.takeTurn(ctx, true) {
		return nil, errors.New("others wait for it, too")
	}
	defer func() { <-i.turn }()
	return i.discover(ctx)
}

// discover returns the issuer's addresses; the old ones, if it does not answer. Its caller has the turn.
func (i *Issuer) discover(ctx context.Context) (*oidc.Provider, error) {
	i.mu.Lock()
	known, at := i.provider, i.discovered
	i.mu.Unlock()
	if known != nil && time.Since(at) < documentFor {
		return known, nil
	}
	provider, err := oidc.NewProvider(oidc.ClientContext(ctx, i.cfg.Client), i.cfg.URL)
	if err != nil {
		if known != nil {
			return known, nil
		}
		return nil, fmt.Errorf("ask the issuer for its addresses: %w", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	i.provider, i.discovered = provider, time.Now()
	return provider, nil
}
