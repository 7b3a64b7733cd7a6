package console

import (
	"errors"
	"net/http"

	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// enforcerToken shows a token to enforcers. Their addresses come from Redis, and whoever can write there must
// not get it. So it goes over TLS only, to servers that the installation's own authority vouches for.
type enforcerToken struct {
	options *ops.Options
	file    string
	now     func() string
	next    *ops.Reread
}

// newEnforcerToken adds the token's option.
func newEnforcerToken(o *ops.Options) *enforcerToken {
	t := &enforcerToken{options: o}
	o.StringVar(&t.file, "enforcer-token-file", "", "`FILE` with a viewer's token of the enforcers, which is shown over TLS only, to whom --ca trusts; without it that in TALLYGATE_ENFORCER_TOKEN, if any")
	return t
}

// over returns a transport to the enforcers that is else like base. It shows the token, if there is one.
func (t *enforcerToken) over(api *apiclient.Options, base *http.Transport) (http.RoundTripper, error) {
	next, err := api.Trusting(base)
	if err != nil {
		return nil, err
	}
	t.now, err = t.options.SecretNow("TALLYGATE_ENFORCER_TOKEN", t.file)
	switch {
	case err != nil:
		return nil, err
	case t.now() == "":
		return next, nil
	case !api.HasAuthority():
		return nil, errors.New("--enforcer-token-file needs --ca: the token is shown to whom that authority trusts, and to nobody else")
	}
	t.next = next
	return t, nil
}

// RoundTrip shows the token that the file holds now; while it cannot be read, what it held last.
func (t *enforcerToken) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Scheme != "https" {
		return t.next.RoundTrip(req)
	}
	req = req.Clone(req.Context()) // a RoundTripper changes no request
	req.Header.Set("Authorization", "Bearer "+t.now())
	return t.next.RoundTrip(req)
}

// CloseIdleConnections ends the connections that wait for a further request.
func (t *enforcerToken) CloseIdleConnections() { t.next.CloseIdleConnections() }
