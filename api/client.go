package api

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Client is a client of an aggregator's HTTP API, or of several aggregators': then the one that answered last is
// asked, and when it cannot be reached, the next. Many goroutines may use it. The *http.Client brings TLS and
// certificates.
type Client struct {
	bases  []string
	at     *atomic.Int32 // the index in bases of the one that answered last
	token  func() string
	hints  Hints
	client *http.Client
}

// Hints are added to what errors say, for those who configured the client.
type Hints struct {
	Address    string // where the aggregator's address comes from
	Credential string // which credentials there may be
}

const (
	askWithin     = 10 * time.Second
	commandWithin = 40 * time.Second // longer than aggregators wait

	// expectBytes is the size from which on a body waits for "100 Continue": the aggregator may refuse it
	// unread, and to close the connection during the transfer would lose the response.
	expectBytes = 64 << 10
)

// New is a client of the API at base, such as https://aggregator:8081, that shows no token. A nil
// *http.Client is http.DefaultClient. Redirects are not followed, whatever it says: a token is for base alone.
func New(base string, client *http.Client) *Client {
	stays := *cmp.Or(client, http.DefaultClient)
	stays.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{bases: []string{strings.TrimSuffix(base, "/")}, at: new(atomic.Int32), client: &stays, token: func() string { return "" }}
}

// And is a client of the APIs of both: where they differ in more than addresses, it is like the first.
func (a *Client) And(other *Client) *Client {
	c := *a
	c.bases, c.at = append(c.bases[:len(c.bases):len(c.bases)], other.bases...), new(atomic.Int32)
	return &c
}

// Each returns a client of each aggregator alone.
func (a *Client) Each() (all []*Client) {
	for _, base := range a.bases {
		c := *a
		c.bases, c.at = []string{base}, new(atomic.Int32)
		all = append(all, &c)
	}
	return all
}

// WithToken is a client of the same API, over the same connections, that shows another token; "" is none.
func (a *Client) WithToken(token string) *Client {
	return a.WithTokens(func() string { return token })
}

// WithTokens is WithToken for a token that changes: each request asks for it.
func (a *Client) WithTokens(token func() string) *Client {
	c := *a
	c.token = token
	return &c
}

// WithHints is the same client, whose errors say more.
func (a *Client) WithHints(hints Hints) *Client {
	c := *a
	c.hints = hints
	return &c
}

// Base is the API's address, such as http://127.0.0.1:8081; of several, the one that is asked first now.
func (a *Client) Base() string { return a.bases[a.at.Load()] }

// Close ends the connections that wait for a further request.
func (a *Client) Close() { a.client.CloseIdleConnections() }

// Get requests a path, and turns problem+json into an error, a *Refusal.
func (a *Client) Get(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, askWithin)
	defer cancel()
	return a.do(ctx, http.MethodGet, path, nil)
}

// Post sends a value as JSON.
func (a *Client) Post(ctx context.Context, path string, body any) ([]byte, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return a.PostRaw(ctx, path, text)
}

// PostRaw sends JSON text. A response that refuses it may come before all of it was sent.
func (a *Client) PostRaw(ctx context.Context, path string, text []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandWithin)
	defer cancel()
	return a.do(ctx, http.MethodPost, path, text)
}

// Decode decodes what Get, Post or PostRaw returns.
func Decode[T any](body []byte, err error) (*T, error) {
	if err != nil {
		return nil, err
	}
	var answer T
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("read the aggregator's response: %w", err)
	}
	return &answer, nil
}

// do asks, of several aggregators the one that answered last, and those after it while none can be reached. What
// may have arrived is sent to no other one, unless it only reads.
func (a *Client) do(ctx context.Context, method, path string, body []byte) (text []byte, err error) {
	first := a.at.Load()
	for i := range a.bases {
		at := (int(first) + i) % len(a.bases)
		text, err = a.ask(ctx, a.bases[at], method, path, body)
		if _, answered := errors.AsType[*Refusal](err); err == nil || answered {
			a.at.CompareAndSwap(first, int32(at)) //nolint:gosec // one of a few addresses
			return text, err
		}
		op, dialing := errors.AsType[*net.OpError](err)
		if ctx.Err() != nil || method != http.MethodGet && !(dialing && op.Op == "dial") {
			return nil, err
		}
	}
	return nil, err
}

func (a *Client) ask(ctx context.Context, base, method, path string, body []byte) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if len(body) > expectBytes {
		req.Header.Set("Expect", "100-continue")
	}
	if token := a.token(); token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := a.client.Do(req)
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok { // a key is no text for logs
			at.URL, _, _ = strings.Cut(at.URL, "?")
		}
		return nil, fmt.Errorf("ask the aggregator%s: %w", a.hints.Address, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the aggregator's response: %w", err)
	case resp.StatusCode == http.StatusOK:
		return text, nil
	}
	return nil, a.refusal(resp, text)
}

func (a *Client) refusal(resp *http.Response, body []byte) error {
	refused := &Refusal{Status: resp.StatusCode}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		refused.After = time.Duration(seconds) * time.Second
	}
	var problem Problem
	_ = json.Unmarshal(body, &problem) // what is no problem has no detail
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		refused.Detail = "the aggregator requires a credential that it knows" + a.hints.Credential
	case problem.Detail != "":
		refused.Detail = problem.Detail
	default:
		refused.Detail = fmt.Sprintf("the aggregator responds %s: %.200s", resp.Status, body)
	}
	return refused
}

// Refusal is a response that says what is wrong.
type Refusal struct {
	Status int
	After  time.Duration // how long to wait before another attempt; 0 if it does not say
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }
