package issuer

import (
	"errors"
	"net/http"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// Options name the issuer whose tokens a program accepts.
type Options struct {
	all                   *ops.Options
	url, ca, name, groups string
	audiences             *ops.List
}

// NewOptions adds the options to those of a program whose API accepts tokens.
func NewOptions(o *ops.Options) *Options {
	i := &Options{audiences: o.List("oidc-audience", nil, "`CLIENT,…` that the issuer's tokens have to be for: the client ID of the console, and any others")}
	i.common(o)
	o.StringVar(&i.name, "oidc-name-claim", "email", "`claim` of the issuer's tokens that is the name in the audit; OBJECT.CLAIM for one within an object")
	o.StringVar(&i.groups, "oidc-groups-claim", "groups", "`claim` of the issuer's tokens with the groups to which --tokens gives roles")
	return i
}

func (i *Options) common(o *ops.Options) {
	i.all = o
	o.StringVar(&i.url, "oidc-issuer", "", "`URL` of an OpenID Connect provider whose tokens are accepted, such as https://login.example.com")
	o.StringVar(&i.ca, "oidc-ca", "", "`FILE` with the PEM certificates to trust for the issuer instead of the system's")
}

// Build is nil if no issuer was given.
func (i *Options) Build() (access.Verifier, error) {
	if i.url == "" {
		if i.ca != "" || len(*i.audiences) > 0 {
			return nil, errors.New("--oidc-audience and --oidc-ca need --oidc-issuer")
		}
		return nil, nil //nolint:nilnil // no issuer is a choice
	}
	return i.issuer(*i.audiences)
}

func (i *Options) issuer(audiences []string) (*Issuer, error) {
	client, err := i.client()
	if err != nil {
		return nil, err
	}
	return New(Config{URL: i.url, Audiences: audiences, NameClaim: i.name, GroupsClaim: i.groups, Client: client})
}

// client speaks with the issuer alone: a redirect elsewhere is not followed.
func (i *Options) client() (*http.Client, error) {
	t, err := ops.NewReread(ops.ClientFiles{CA: i.ca, Names: [3]string{"--oidc-ca"}, Log: i.all.Logger},
		&http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: fetchWithin, MaxIdleConnsPerHost: 1, IdleConnTimeout: fetchWithin})
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}, nil
}

// LoginOptions name the issuer at which readers of the console log in.
type LoginOptions struct {
	Options
	client, secretFile string
	scopes             *ops.List
}

// NewLoginOptions adds the options to those of a program that readers log in to.
func NewLoginOptions(o *ops.Options) *LoginOptions {
	l := &LoginOptions{}
	l.common(o)
	o.StringVar(&l.client, "oidc-client-id", "", "`ID` of this program at the issuer; aggregators have it in --oidc-audience")
	o.StringVar(&l.secretFile, "oidc-client-secret-file", "", "`FILE` with the client's secret, read at each login; without it TALLYGATE_OIDC_CLIENT_SECRET, or a client without a secret")
	l.scopes = o.List("oidc-scopes", []string{"openid", "profile", "email"}, "`scopes` to ask the issuer for; many issuers need one more for groups, and offline_access to renew logins")
	return l
}

// Build is nil if no issuer was given.
func (l *LoginOptions) Build() (*Flow, error) {
	if l.url == "" {
		if l.client != "" || l.secretFile != "" || l.ca != "" {
			return nil, errors.New("--oidc-client-id, --oidc-client-secret-file and --oidc-ca need --oidc-issuer")
		}
		return nil, nil //nolint:nilnil // no issuer is a choice
	}
	if l.client == "" {
		return nil, errors.New("--oidc-issuer needs --oidc-client-id, this program's ID there")
	}
	secret := func() (string, error) { return l.all.Secret("TALLYGATE_OIDC_CLIENT_SECRET", l.secretFile) }
	if _, err := secret(); err != nil {
		return nil, err
	}
	i, err := l.issuer([]string{l.client})
	if err != nil {
		return nil, err
	}
	return NewFlow(i, l.client, secret, *l.scopes), nil
}
