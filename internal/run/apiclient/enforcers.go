package apiclient

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
)

// Enforcers asks decision servers. They announce their addresses in Redis, and whoever can write there must not
// send these questions elsewhere: of an address only scheme and host count, and no redirect is followed.
type Enforcers struct{ client *http.Client }

// NewEnforcers asks over a transport. nil is http.DefaultTransport.
func NewEnforcers(over http.RoundTripper) *Enforcers {
	return &Enforcers{&http.Client{Transport: over, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// ErrAddress is of an announced address that nobody is asked at.
var ErrAddress = errors.New("its address is not one of HTTP")

// Get requests a path of the enforcer that announced an address.
func (e *Enforcers) Get(ctx context.Context, announced, path string) ([]byte, error) {
	base, err := baseOf(announced)
	if err != nil {
		return nil, err
	}
	return New(base, e.client).Get(ctx, path)
}

func baseOf(announced string) (string, error) {
	u, err := url.Parse(announced)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" {
		return "", ErrAddress
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host}).String(), nil
}

// Do sends a request to a path of the enforcer that announced an address, and returns the response as it is.
func (e *Enforcers) Do(ctx context.Context, method, announced, path string, body []byte) (*http.Response, error) {
	base, err := baseOf(announced)
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAddress, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return e.client.Do(req)
}

// CloseIdleConnections ends the connections that wait for a further request.
func (e *Enforcers) CloseIdleConnections() { e.client.CloseIdleConnections() }
