package issuer

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"
)

// Flow logs readers in at an issuer: the authorization code flow, with PKCE, state and nonce.
type Flow struct {
	issuer *Issuer
	client string
	secret func() (string, error)
	scopes []string
}

// NewFlow is the flow of a client that the issuer knows. secret is asked each time; "" is a client
// without one.
func NewFlow(i *Issuer, client string, secret func() (string, error), scopes []string) *Flow {
	return &Flow{issuer: i, client: client, secret: secret, scopes: scopes}
}

// Pending is the state of a login from its start to its end, to be kept out of the sight of others.
type Pending struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
}

// Grant is the result of a login.
type Grant struct {
	Token   string    // to show to the aggregator
	Refresh string    // for the next one; "" is none
	Until   time.Time // when the token expires
}

// ErrNoAnswer says that the issuer did not answer: try again.
var ErrNoAnswer = errors.New("the issuer does not answer")

// deniedError is the issuer's refusal, for its reader.
type deniedError struct{ code string }

func (e *deniedError) Error() string { return "the issuer says " + e.code }

// Said returns the text of an error of Finish for a reader; "" is nothing in particular.
func Said(err error) string {
	if denied, ok := errors.AsType[*deniedError](err); ok && denied.code == "access_denied" {
		return "The issuer did not let you in, or you turned back."
	}
	return ""
}

func (f *Flow) config(ctx context.Context, redirect string) (*oauth2.Config, error) {
	provider, err := f.issuer.addresses(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAnswer, err)
	}
	secret, err := f.secret()
	if err != nil {
		return nil, err
	}
	return &oauth2.Config{ClientID: f.client, ClientSecret: secret, Endpoint: provider.Endpoint(), RedirectURL: redirect, Scopes: f.scopes}, nil
}

// Start returns where to send the reader. The issuer sends them back to redirect.
func (f *Flow) Start(ctx context.Context, redirect string) (to string, p Pending, err error) {
	c, err := f.config(ctx, redirect)
	if err != nil {
		return "", p, err
	}
	p = Pending{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier()}
	return c.AuthCodeURL(p.State, oidc.Nonce(p.Nonce), oauth2.S256ChallengeOption(p.Verifier)), p, nil
}

// Finish takes what the issuer sent the reader back with.
func (f *Flow) Finish(ctx context.Context, redirect string, p Pending, back url.Values) (Grant, error) {
	if subtle.ConstantTimeCompare([]byte(p.State), []byte(back.Get("state"))) != 1 || p.State == "" {
		return Grant{}, errors.New("the state is not that of the login that was begun")
	}
	if by := back.Get("iss"); by != "" && by != f.issuer.cfg.URL {
		return Grant{}, errors.New("another issuer has answered")
	}
	if code := back.Get("error"); code != "" {
		return Grant{}, &deniedError{known(code)}
	}
	c, err := f.config(ctx, redirect)
	if err != nil {
		return Grant{}, err
	}
	got, err := c.Exchange(oidc.ClientContext(ctx, f.issuer.cfg.Client), back.Get("code"), oauth2.VerifierOption(p.Verifier))
	if err != nil {
		return Grant{}, told("exchange the issuer's code", err)
	}
	return f.grant(ctx, got, p.Nonce)
}

// Renew gets another token. Its nonce, if it has one, is that of the login, and proves nothing here.
func (f *Flow) Renew(ctx context.Context, refresh string) (Grant, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*fetchWithin)
	defer cancel()
	c, err := f.config(ctx, "")
	if err != nil {
		return Grant{}, err
	}
	got, err := c.TokenSource(oidc.ClientContext(ctx, f.issuer.cfg.Client), &oauth2.Token{RefreshToken: refresh}).Token()
	if err != nil {
		return Grant{}, told("renew the token", err)
	}
	return f.grant(ctx, got, "")
}

// grant checks the ID token of an answer. It is what is shown to the aggregator: an access token may
// be of any form.
func (f *Flow) grant(ctx context.Context, got *oauth2.Token, nonce string) (Grant, error) {
	raw, ok := got.Extra("id_token").(string)
	if !ok {
		return Grant{}, errors.New("the issuer gave no id_token; it does if the scope openid is allowed")
	}
	t, err := f.issuer.check(ctx, raw)
	if err != nil {
		return Grant{}, fmt.Errorf("check the issuer's token: %w", err)
	}
	if nonce != "" && subtle.ConstantTimeCompare([]byte(nonce), []byte(t.Nonce)) != 1 {
		return Grant{}, errors.New("the token's nonce is not that of the login that was begun")
	}
	return Grant{Token: raw, Refresh: got.RefreshToken, Until: t.Expiry}, nil
}

// told is an error of oauth2 without the answer's body, which may have secrets.
func told(doing string, err error) error {
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if !ok || refused.Response != nil && refused.Response.StatusCode >= 500 {
		if ok {
			return fmt.Errorf("%s: %w: %s", doing, ErrNoAnswer, refused.Response.Status)
		}
		return fmt.Errorf("%s: %w: %w", doing, ErrNoAnswer, err)
	}
	return fmt.Errorf("%s: the issuer refuses: %s", doing, cmp.Or(refused.ErrorCode, "without a reason"))
}

// known is a code of OpenID Connect's and OAuth's: others may be anything.
func known(code string) string {
	switch code {
	case "access_denied", "invalid_request", "unauthorized_client", "unsupported_response_type", "invalid_scope", "server_error",
		"temporarily_unavailable", "interaction_required", "login_required", "account_selection_required", "consent_required":
		return code
	}
	return "an unknown error"
}
