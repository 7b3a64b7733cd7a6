// Package issuer checks tokens that an OpenID Connect provider signed, and logs readers in there. Only
// programs with options for it link it.
package issuer

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/go-jose/go-jose/v4"

	"github.com/tallygate/tallygate/internal/run/access"
)

// Config configures an Issuer.
type Config struct {
	URL         string       // as its tokens name it
	Audiences   []string     // a token has to be for one of these
	NameClaim   string       // who it is, for the audit; "" is email. A dot leads into an object
	GroupsClaim string       // a list of names, or one; "" is groups
	Client      *http.Client // nil is one that trusts the system's certificates
}

const (
	skew        = 30 * time.Second // by which clocks may differ
	fetchWithin = 3 * time.Second  // the issuer's answer; also how long a request waits for those of others
	keysLast    = 15 * time.Minute // then keys that the issuer has withdrawn are asked about
	documentFor = time.Hour        // the same of its addresses
	unknownEach = 10 * time.Second // how often an unknown key has the keys fetched: anyone can send one
	failedEach  = 2 * time.Second  // how often they are asked for while the issuer fails
	maxAnswer   = 1 << 20          // bytes
	maxName     = 256              // bytes, as in the file of tokens
)

// asymmetric are the algorithms of signatures that who checks them cannot make.
var asymmetric = []string{oidc.RS256, oidc.RS384, oidc.RS512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.EdDSA}

// Issuer is an OpenID Connect provider. It is asked for its addresses and keys when they are needed,
// by one request at a time; while it does not answer, those known before go on. Make it with New.
type Issuer struct {
	cfg  Config
	turn chan struct{} // who fetches has it

	mu         sync.Mutex
	provider   *oidc.Provider // nil: it never answered
	discovered time.Time
	keys       []jose.JSONWebKey
	fetched    time.Time // when it last gave its keys
	tried      time.Time // when it was last asked for them
	failed     error     // then
}

// New checks the configuration. It asks nobody.
func New(cfg Config) (*Issuer, error) {
	cfg.NameClaim, cfg.GroupsClaim = cmp.Or(cfg.NameClaim, "email"), cmp.Or(cfg.GroupsClaim, "groups")
	if err := checkURL(cfg.URL); err != nil {
		return nil, fmt.Errorf("--oidc-issuer %q: %w", cfg.URL, err)
	}
	if len(cfg.Audiences) == 0 || slices.Contains(cfg.Audiences, "") {
		return nil, errors.New("--oidc-issuer needs the audience of its tokens, which is the client's ID: --oidc-audience")
	}
	client := http.Client{Transport: http.DefaultTransport}
	if cfg.Client != nil {
		client = *cfg.Client
	}
	client.Timeout, client.Transport = fetchWithin, bounded{cmp.Or(client.Transport, http.DefaultTransport)}
	cfg.Client = &client
	return &Issuer{cfg: cfg, turn: make(chan struct{}, 1)}, nil
}

// checkURL wants TLS of everything but this machine: whoever answers for the issuer says who is who.
func checkURL(text string) error {
	u, err := url.Parse(text)
	if err != nil || u.Host == "" || u.User != nil || u.Fragment != "" {
		return errors.New("want a URL, such as https://login.example.com")
	}
	ip := net.ParseIP(u.Hostname())
	if u.Scheme != "https" && (u.Scheme != "http" || u.Hostname() != "localhost" && (ip == nil || !ip.IsLoopback())) {
		return errors.New("want https://, or http:// on loopback")
	}
	return nil
}

// bounded cuts off answers that are too long.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxAnswer), resp.Body}
	}
	return resp, err
}

// token is a checked one.
type token struct {
	*oidc.IDToken
	claims map[string]json.RawMessage
}

// check returns what a token says, if the issuer has signed it, for us, and it is valid now. An error
// says nothing that is in the token, unless the issuer has signed it.
func (i *Issuer) check(ctx context.Context, raw string) (*token, error) {
	keys := &signature{issuer: i, reason: errors.New("it is not a token with a signature of " + strings.Join(asymmetric, ", "))}
	verifier := oidc.NewVerifier(i.cfg.URL, keys, &oidc.Config{SkipClientIDCheck: true, SkipExpiryCheck: true, SupportedSigningAlgs: asymmetric})
	is, err := verifier.Verify(ctx, raw)
	switch {
	case keys.reason != nil:
		return nil, keys.reason
	case err != nil:
		return nil, err
	}
	t := &token{IDToken: is}
	if err := is.Claims(&t.claims); err != nil {
		return nil, fmt.Errorf("read the token's claims: %w", err)
	}
	if !slices.ContainsFunc(is.Audience, func(a string) bool { return slices.Contains(i.cfg.Audiences, a) }) {
		return nil, fmt.Errorf("it is for %q, and --oidc-audience is %q", is.Audience, i.cfg.Audiences)
	}
	return t, t.now(time.Now())
}

// now returns an error unless a token is valid at a time.
func (t *token) now(now time.Time) error {
	from := t.IssuedAt
	var before float64
	if raw, ok := t.claims["nbf"]; ok {
		if err := json.Unmarshal(raw, &before); err != nil {
			return errors.New("its nbf is not a number")
		}
		if nbf := time.Unix(int64(before), 0); nbf.After(from) {
			from = nbf
		}
	}
	switch {
	case t.Expiry.Unix() <= 0:
		return errors.New("it has no exp: it would never expire")
	case !now.Before(t.Expiry.Add(skew)):
		return fmt.Errorf("it expired at %s", t.Expiry.UTC().Format(time.RFC3339))
	case now.Add(skew).Before(from):
		return fmt.Errorf("it is valid from %s: compare this machine's clock with the issuer's", from.UTC().Format(time.RFC3339))
	}
	return nil
}

// Verify returns who a token names, and their groups.
func (i *Issuer) Verify(ctx context.Context, raw string) (access.Claims, error) {
	t, err := i.check(ctx, raw)
	if err != nil {
		return access.Claims{}, err
	}
	var name string
	if raw, ok := t.claim(i.cfg.NameClaim); !ok || json.Unmarshal(raw, &name) != nil || name == "" || len(name) > maxName {
		return access.Claims{}, fmt.Errorf("it has no claim %s that is a name of up to %d bytes, as --oidc-name-claim wants", i.cfg.NameClaim, maxName)
	}
	if strings.ContainsFunc(name, func(c rune) bool { return c < ' ' || c == 0x7f }) {
		return access.Claims{}, fmt.Errorf("its claim %s is not a name", i.cfg.NameClaim)
	}
	if i.cfg.NameClaim == "email" { // who has not verified it may give that of another
		if raw, ok := t.claims["email_verified"]; ok && !slices.Contains([]string{`true`, `"true"`}, string(raw)) {
			return access.Claims{}, errors.New("its e-mail address is not verified")
		}
	}
	groups, err := t.groups(i.cfg.GroupsClaim)
	return access.Claims{Name: name, Groups: groups}, err
}

// claim is one by its name, or else by the names of objects and a dot between them.
func (t *token) claim(name string) (json.RawMessage, bool) {
	in := t.claims
	for {
		if raw, ok := in[name]; ok {
			return raw, true
		}
		object, rest, ok := strings.Cut(name, ".")
		if !ok {
			return nil, false
		}
		var deeper map[string]json.RawMessage
		if json.Unmarshal(in[object], &deeper) != nil {
			return nil, false
		}
		in, name = deeper, rest
	}
}

func (t *token) groups(claim string) (groups []string, err error) {
	raw, ok := t.claim(claim)
	if !ok {
		return nil, nil
	}
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return []string{one}, nil
	}
	if json.Unmarshal(raw, &groups) != nil {
		return nil, fmt.Errorf("its claim %s is not a list of names, as --oidc-groups-claim wants", claim)
	}
	return groups, nil
}
