// Package oidctest is an OpenID Connect provider for tests: it has its own keys, and lets in whoever
// the test says.
package oidctest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

// Provider answers as an OpenID Connect provider. Its URL is the issuer.
type Provider struct {
	*httptest.Server
	t testing.TB

	// Client and Secret are those of the console; Secret may be "".
	Client, Secret string

	Asked atomic.Int32 // for the keys, how often
	Spent atomic.Int32 // codes and refresh tokens that came once more, or never were
	Down  atomic.Bool  // it answers 503
	Slow  atomic.Bool  // it answers when the test ends
	Held  atomic.Int32 // requests that it was too slow for, or is

	mu      sync.Mutex
	kid     string
	key     crypto.Signer
	alg     jose.SignatureAlgorithm
	user    map[string]any // claims of who is at the browser; nil: nobody is let in
	last    time.Duration  // how long tokens are valid
	renews  bool           // logins get refresh tokens
	codes   map[string]grant
	refresh map[string]grant
	end     chan struct{}
}

// grant is what a code or a refresh token stands for.
type grant struct {
	claims    map[string]any
	nonce     string
	challenge string
	redirect  string
}

// New starts a provider with an RSA key.
func New(t testing.TB) *Provider {
	t.Helper()
	return start(t, httptest.NewServer)
}

// NewTLS is New over TLS, with a certificate that nobody trusts yet.
func NewTLS(t testing.TB) *Provider {
	t.Helper()
	return start(t, httptest.NewTLSServer)
}

func start(t testing.TB, serve func(http.Handler) *httptest.Server) *Provider {
	t.Helper()
	p := &Provider{t: t, Client: "console", Secret: "c0ns0le", last: time.Hour, codes: map[string]grant{}, refresh: map[string]grant{}, end: make(chan struct{})}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p.key, p.kid, p.alg = key, "first", jose.RS256
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", p.serveDocument)
	mux.HandleFunc("GET /keys", p.serveKeys)
	mux.HandleFunc("GET /authorize", p.serveAuthorize)
	mux.HandleFunc("POST /token", p.serveToken)
	p.Server = serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if p.Slow.Load() {
			p.Held.Add(1)
			select {
			case <-p.end:
			case <-r.Context().Done():
			}
		}
		if p.Down.Load() {
			http.Error(w, "down", http.StatusServiceUnavailable)
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		close(p.end)
		p.Close()
	})
	return p
}

// User is who is at the browser from now on: its claims. nil is nobody whom the provider lets in.
func (p *Provider) User(claims map[string]any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.user = claims
}

// Lasting sets how long tokens are valid, and whether they can be renewed.
func (p *Provider) Lasting(d time.Duration, renews bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.renews = d, renews
}

// Rotate replaces the key by one of another kind.
func (p *Provider) Rotate() {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.key, p.kid, p.alg = key, rand.Text(), jose.ES256
}

// Claims are those of a token that is valid for the console now, with these in place of its own. A nil
// one is left out.
func (p *Provider) Claims(change map[string]any) map[string]any {
	now := time.Now()
	claims := map[string]any{
		"iss": p.URL, "aud": p.Client, "sub": "1", "email": "fay@example.com", "email_verified": true,
		"iat": now.Unix(), "nbf": now.Unix(), "exp": now.Add(time.Hour).Unix(),
	}
	maps.Copy(claims, change)
	maps.DeleteFunc(claims, func(_ string, v any) bool { return v == nil })
	return claims
}

// Sign is a token with these claims.
func (p *Provider) Sign(claims map[string]any) string {
	p.mu.Lock()
	key, kid, alg := p.key, p.kid, p.alg
	p.mu.Unlock()
	return Sign(p.t, alg, key, kid, claims)
}

// Key is the provider's key, and its ID.
func (p *Provider) Key() (key crypto.Signer, kid string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.key, p.kid
}

// Sign is a token that any key signs.
func Sign(t testing.TB, alg jose.SignatureAlgorithm, key any, kid string, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: key}, (&jose.SignerOptions{}).WithType("JWT").WithHeader("kid", kid))
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(claims)
	if err != nil {
		t.Fatal(err)
	}
	signed, err := signer.Sign(text)
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func reply(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body)
}

func (p *Provider) serveDocument(w http.ResponseWriter, _ *http.Request) {
	reply(w, http.StatusOK, map[string]any{
		"issuer": p.URL, "authorization_endpoint": p.URL + "/authorize", "token_endpoint": p.URL + "/token", "jwks_uri": p.URL + "/keys",
		"id_token_signing_alg_values_supported": []string{"RS256", "ES256"}, "response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"},
	})
}

func (p *Provider) serveKeys(w http.ResponseWriter, _ *http.Request) {
	p.Asked.Add(1)
	p.mu.Lock()
	defer p.mu.Unlock()
	reply(w, http.StatusOK, map[string]any{"keys": []any{
		map[string]any{"kty": "new", "kid": "future"},
		jose.JSONWebKey{Key: p.key.Public(), KeyID: p.kid, Algorithm: string(p.alg), Use: "sig"},
	}})
}

// serveAuthorize sends the browser back at once.
func (p *Provider) serveAuthorize(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	p.mu.Lock()
	defer p.mu.Unlock()
	back := url.Values{"state": {q.Get("state")}}
	switch {
	case q.Get("client_id") != p.Client || q.Get("response_type") != "code" || q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "":
		http.Error(w, "this is not a login of the console: "+r.URL.RawQuery, http.StatusBadRequest)
		return
	case p.user == nil:
		back.Set("error", "access_denied")
	default:
		code := rand.Text()
		p.codes[code] = grant{claims: p.user, nonce: q.Get("nonce"), challenge: q.Get("code_challenge"), redirect: q.Get("redirect_uri")}
		back.Set("code", code)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

// serveToken takes a code or a refresh token, each of them once.
func (p *Provider) serveToken(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	if !ok {
		id, secret = r.FormValue("client_id"), r.FormValue("client_secret")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if id != p.Client || secret != p.Secret {
		reply(w, http.StatusUnauthorized, map[string]any{"error": "invalid_client"})
		return
	}
	code, refresh := r.FormValue("code"), r.FormValue("refresh_token")
	g, found := p.codes[code]
	sum := sha256.Sum256([]byte(r.FormValue("code_verifier")))
	good := found && g.challenge == base64.RawURLEncoding.EncodeToString(sum[:]) && g.redirect == r.FormValue("redirect_uri")
	if r.FormValue("grant_type") == "refresh_token" {
		g, good = p.refresh[refresh]
		good = good && p.user != nil
		g.nonce = ""
	}
	delete(p.codes, code)
	delete(p.refresh, refresh)
	if !good {
		p.Spent.Add(1)
		reply(w, http.StatusBadRequest, map[string]any{"error": "invalid_grant"})
		return
	}
	now := time.Now()
	claims := p.Claims(g.claims)
	claims["iat"], claims["exp"] = now.Unix(), now.Add(p.last).Unix()
	if _, own := claims["nonce"]; !own && g.nonce != "" { // a test may have another one
		claims["nonce"] = g.nonce
	}
	answer := map[string]any{"access_token": "opaque", "token_type": "Bearer", "id_token": Sign(p.t, p.alg, p.key, p.kid, claims), "expires_in": int(p.last.Seconds())}
	if p.renews {
		next := rand.Text()
		p.refresh[next] = g
		answer["refresh_token"] = next
	}
	reply(w, http.StatusOK, answer)
}
