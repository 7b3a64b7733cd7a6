// Package apiclient asks an aggregator's HTTP API, for the commands of tallygate, its console and its notifier.
package apiclient

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

	"github.com/tallygate/tallygate/internal/ops"
)

// Usual is where an aggregator listens, and is asked, when nothing says where.
const Usual = "127.0.0.1:8081"

// Options say where an aggregator is, and with which credentials to ask it.
type Options struct {
	*ops.Options
	addr, tokenFile, ca, cert, key string
}

// NewOptions adds the options to those of a command.
func NewOptions(o *ops.Options) *Options {
	a := &Options{Options: o}
	o.StringVar(&a.addr, "aggregator", Usual, "an aggregator's HTTP API, `HOST:PORT`, or https://HOST:PORT")
	o.StringVar(&a.tokenFile, "token-file", "", "`FILE` with the token to show; without it that in TALLYGATE_TOKEN, if any")
	o.StringVar(&a.ca, "ca", "", "`FILE` with the PEM certificates to trust instead of the system's")
	o.StringVar(&a.cert, "cert", "", "`FILE` with our certificate, where the aggregator asks for one")
	o.StringVar(&a.key, "key", "", "`FILE` with our certificate's key")
	return a
}

// Client is a client of an aggregator's HTTP API, or of several aggregators': then the one that answered last is
// asked, and when it cannot be reached, the next. Many goroutines may use it.
type Client struct {
	bases  []string
	at     *atomic.Int32 // the index in bases of the one that answered last
	token  func() string
	client *http.Client
}

// AtOnce is how many requests a caller should have under way at most: so many connections are kept.
const AtOnce = 4

const (
	askWithin     = 10 * time.Second
	commandWithin = 40 * time.Second // longer than aggregators wait

	// expectBytes is the size from which on a body waits for "100 Continue": the aggregator may refuse it
	// unread, and to close the connection during the transfer would lose the response.
	expectBytes = 64 << 10
)

// NewOptionsOfMany are options of which --aggregator takes several addresses: see OpenAll.
func NewOptionsOfMany(o *ops.Options) *Options {
	a := NewOptions(o)
	o.Lookup("aggregator").Usage = "the aggregators' HTTP APIs, `HOST:PORT,…`, or https://HOST:PORT; when one does not answer, the next is asked"
	return a
}

// OpenAll is Open for several addresses, separated by commas: a client of all of them.
func (o *Options) OpenAll() (*Client, error) {
	var all *Client
	var errs []error
	for addr := range strings.SplitSeq(o.addr, ",") {
		one := *o
		one.addr = strings.TrimSpace(addr)
		switch c, err := one.Open(); {
		case err != nil:
			errs = append(errs, err)
		case all == nil:
			all = c
		default:
			all.bases = append(all.bases, c.bases...)
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return all, nil
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

// Open reads the files; each request goes by what they hold then. It sends no request.
func (o *Options) Open() (*Client, error) {
	base := o.addr
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil {
		return nil, &ops.UsageError{Err: fmt.Errorf("--aggregator %q: HOST:PORT, http://HOST:PORT or https://HOST:PORT", o.addr)}
	}
	if u.Scheme == "http" && (o.ca != "" || o.cert != "" || o.key != "") {
		return nil, &ops.UsageError{Err: fmt.Errorf("--ca, --cert and --key are for TLS: --aggregator https://%s", u.Host)}
	}
	token, err := o.SecretNow("TALLYGATE_TOKEN", o.tokenFile)
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	files, err := ops.NewReread(ops.ClientFiles{CA: o.ca, Cert: o.cert, Key: o.key, Names: [3]string{"--ca", "--cert", "--key"}, Log: o.Logger},
		&http.Transport{Proxy: http.ProxyFromEnvironment, MaxIdleConnsPerHost: AtOnce, ExpectContinueTimeout: time.Second})
	if err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	a := New(base, &http.Client{Transport: files})
	a.token = token
	a.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // the token is for this host
	return a, nil
}

// Trusting returns a transport for other servers of the installation, such as enforcers: it trusts what --ca names,
// by what the file holds at each request, and shows nothing. Else it is like base.
func (o *Options) Trusting(base *http.Transport) (*ops.Reread, error) {
	return ops.NewReread(ops.ClientFiles{CA: o.ca, Names: [3]string{"--ca"}, Log: o.Logger}, base)
}

// HasAuthority reports whether --ca is given.
func (o *Options) HasAuthority() bool { return o.ca != "" }

// New is a client of the API at base, such as https://aggregator:8081, that shows no token. A nil
// *http.Client is http.DefaultClient.
func New(base string, client *http.Client) *Client {
	return &Client{bases: []string{strings.TrimSuffix(base, "/")}, at: new(atomic.Int32), client: cmp.Or(client, http.DefaultClient),
		token: func() string { return "" }}
}

// Base is the API's address, such as http://127.0.0.1:8081; of several, the one that is asked first now.
func (a *Client) Base() string { return a.bases[a.at.Load()] }

// Close ends the connections that wait for a further request.
func (a *Client) Close() { a.client.CloseIdleConnections() }

// WithToken is a client of the same API, over the same connections, that shows another token; "" is none.
func (a *Client) WithToken(token string) *Client {
	c := *a
	c.token = func() string { return token }
	return &c
}

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
	req, err := a.request(ctx, base, method, path, body)
	if err != nil {
		return nil, err
	}
	return readResponse(a.client.Do(req))
}

func (a *Client) request(ctx context.Context, base, method, path string, body []byte) (*http.Request, error) {
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
	return req, nil
}

// readResponse returns the body of a response with status 200; any other status is a refusal.
func readResponse(resp *http.Response, err error) ([]byte, error) {
	if err != nil {
		if at, ok := errors.AsType[*url.Error](err); ok { // a key is no text for logs
			at.URL, _, _ = strings.Cut(at.URL, "?")
		}
		return nil, fmt.Errorf("ask the aggregator (--aggregator): %w", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read the aggregator's response: %w", err)
	case resp.StatusCode == http.StatusOK:
		return body, nil
	}
	refused := &Refusal{Status: resp.StatusCode}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil {
		refused.After = time.Duration(seconds) * time.Second
	}
	var problem struct{ Detail string }
	switch {
	case resp.StatusCode == http.StatusUnauthorized:
		refused.Detail = "the aggregator requires a credential that it knows: a token in TALLYGATE_TOKEN or --token-file, or --cert and --key"
	case json.Unmarshal(body, &problem) == nil && problem.Detail != "":
		refused.Detail = problem.Detail
	default:
		refused.Detail = fmt.Sprintf("the aggregator responds %s: %.200s", resp.Status, body)
	}
	return nil, refused
}

// Refusal is a response that says what is wrong.
type Refusal struct {
	Status int
	After  time.Duration // how long to wait before another attempt; 0 if it does not say
	Detail string
}

func (r *Refusal) Error() string { return r.Detail }
