package issuer

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/testing/oidctest"
)

// anIssuer accepts the provider's tokens.
func anIssuer(t *testing.T, p *oidctest.Provider, change ...func(*Config)) *Issuer {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	cfg := Config{URL: p.URL, Audiences: []string{"other", p.Client}, Client: &http.Client{Transport: transport}}
	for _, f := range change {
		f(&cfg)
	}
	i, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestWhoATokenNames(t *testing.T) {
	p := oidctest.New(t)
	for _, c := range []struct {
		about  string
		change map[string]any
		config func(*Config)
		name   string
		groups []string
	}{
		{"as most issuers", map[string]any{"groups": []string{"a", "b"}}, func(*Config) {}, "fay@example.com", []string{"a", "b"}},
		{"one group", map[string]any{"groups": "a"}, func(*Config) {}, "fay@example.com", []string{"a"}},
		{"no group", nil, func(*Config) {}, "fay@example.com", nil},
		{"several audiences", map[string]any{"aud": []string{"x", "console"}}, func(*Config) {}, "fay@example.com", nil},
		{"verified as a text", map[string]any{"email_verified": "true"}, func(*Config) {}, "fay@example.com", nil},
		{"another name", map[string]any{"preferred_username": "fay", "email_verified": false}, func(c *Config) { c.NameClaim = "preferred_username" }, "fay", nil},
		{"as Keycloak", map[string]any{"realm_access": map[string]any{"roles": []string{"r"}}}, func(c *Config) { c.GroupsClaim = "realm_access.roles" }, "fay@example.com", []string{"r"}},
		{"as Auth0", map[string]any{"https://example.com/groups": []string{"g"}}, func(c *Config) { c.GroupsClaim = "https://example.com/groups" }, "fay@example.com", []string{"g"}},
		{"a clock that is behind", map[string]any{"iat": time.Now().Add(20 * time.Second).Unix(), "nbf": time.Now().Add(20 * time.Second).Unix()}, func(*Config) {}, "fay@example.com", nil},
		{"a clock that is ahead", map[string]any{"exp": time.Now().Add(-20 * time.Second).Unix()}, func(*Config) {}, "fay@example.com", nil},
	} {
		got, err := anIssuer(t, p, c.config).Verify(t.Context(), p.Sign(p.Claims(c.change)))
		if err != nil || got.Name != c.name || !slices.Equal(got.Groups, c.groups) {
			t.Errorf("%s: %+v %v", c.about, got, err)
		}
	}
}

// Whatever is not the issuer's, for us, and valid now is refused, and the error has nothing of it that
// the issuer has not signed.
func TestTokensThatAreRefused(t *testing.T) {
	p := oidctest.New(t)
	i := anIssuer(t, p)
	key, kid := p.Key()
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	other, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	good := p.Sign(p.Claims(nil))
	parts := strings.Split(good, ".")
	part := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	with := func(name string, value any) string { return p.Sign(p.Claims(map[string]any{name: value})) }
	as := func(alg jose.SignatureAlgorithm, key any, kid string) string {
		return oidctest.Sign(t, alg, key, kid, p.Claims(map[string]any{"email": "s3cret"}))
	}
	for about, c := range map[string]struct{ token, want string }{
		"alg none":                {part(`{"alg":"none"}`) + "." + parts[1] + ".", "it is not a token"},
		"alg none, case":          {part(`{"alg":"nOnE"}`) + "." + parts[1] + "." + parts[2], "it is not a token"},
		"the public key as HMAC":  {as(jose.HS256, pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}), kid), "it is not a token"},
		"another key":             {as(jose.RS256, other, kid), "signature is not that of the issuer"},
		"another key's ID":        {as(jose.RS256, other, "s3cret"), "has no key of the ID"},
		"another key without one": {as(jose.RS256, other, ""), "signature is not that of the issuer"},
		"a key it brings along":   {jwk(t, other, p.Claims(nil)), "signature is not that of the issuer"},
		"changed claims":          {parts[0] + "." + part(`{"email":"s3cret"}`) + "." + parts[2], "signature is not that of the issuer"},
		"cut off":                 {good[:len(good)-8], "signature is not that of the issuer"},
		"another issuer":          {with("iss", "https://evil.example"), "issued by a different provider"},
		"the issuer with a slash": {with("iss", p.URL+"/"), "issued by a different provider"},
		"another audience":        {with("aud", "shop"), "it is for [\"shop\"]"},
		"no audience":             {with("aud", nil), "it is for []"},
		"expired":                 {with("exp", time.Now().Add(-time.Minute).Unix()), "it expired at"},
		"never expires":           {with("exp", nil), "it has no exp"},
		"not yet valid":           {with("nbf", time.Now().Add(time.Minute).Unix()), "it is valid from"},
		"issued in the future":    {with("iat", time.Now().Add(time.Minute).Unix()), "it is valid from"},
		"nbf is no number":        {with("nbf", "soon"), "invalid number"},
		"no name":                 {with("email", nil), "it has no claim email"},
		"an empty name":           {with("email", ""), "it has no claim email"},
		"a name that is a list":   {with("email", []string{"a"}), "it has no claim email"},
		"a long name":             {with("email", strings.Repeat("a", 257)), "it has no claim email"},
		"a name of two lines":     {with("email", "a\nb"), "is not a name"},
		"an unverified address":   {with("email_verified", false), "not verified"},
		"groups are no list":      {with("groups", map[string]any{"a": true}), "is not a list of names"},
		"empty":                   {"", "it is not a token"},
		"garbage":                 {"a.b.c", "it is not a token"},
		"four parts":              {good + ".x", "it is not a token"},
		"JSON":                    {`{"payload":"` + parts[1] + `","protected":"` + parts[0] + `","signature":"` + parts[2] + `"}`, "it is not a token"},
		"1 MB":                    {parts[0] + "." + strings.Repeat("a", 1<<20) + "." + parts[2], "signature is not that of the issuer"},
	} {
		got, err := i.Verify(t.Context(), c.token)
		if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "s3cret") || errors.Is(err, access.ErrUnavailable) {
			t.Errorf("%s: %+v %v, want %q", about, got, err, c.want)
		}
	}
	if got, err := i.Verify(t.Context(), good); err != nil || got.Name == "" {
		t.Errorf("after all these: %+v %v", got, err)
	}
}

// jwk is a token with its own key in the header, which checks of JWTs have once believed.
func jwk(t *testing.T, key *rsa.PrivateKey, claims map[string]any) string {
	t.Helper()
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.RS256, Key: jose.JSONWebKey{Key: key, KeyID: "own"}}, &jose.SignerOptions{EmbedJWK: true})
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	text.WriteString(`{"iss":"` + claims["iss"].(string) + `"}`)
	signed, err := signer.Sign(text.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	token, err := signed.CompactSerialize()
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func TestMistakesInTheConfiguration(t *testing.T) {
	for _, url := range []string{"", "login.example.com", "http://login.example.com", "ftp://x", "https://a:b@x", "https://x#y"} {
		if _, err := New(Config{URL: url, Audiences: []string{"a"}}); err == nil || !strings.Contains(err.Error(), "--oidc-issuer") {
			t.Errorf("%q: %v", url, err)
		}
	}
	for _, url := range []string{"https://login.example.com/realms/x", "http://127.0.0.1:8080", "http://localhost:8080", "http://[::1]:1"} {
		if _, err := New(Config{URL: url, Audiences: []string{"a"}}); err != nil {
			t.Errorf("%q: %v", url, err)
		}
	}
	if _, err := New(Config{URL: "https://x"}); err == nil || !strings.Contains(err.Error(), "--oidc-audience") {
		t.Errorf("no audience: %v", err)
	}
}
