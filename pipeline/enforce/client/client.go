// Package client is the other side: an http.RoundTripper that does as it is told when a service says 429 or 503. It waits for
// Retry-After, or with exponential backoff and jitter, within a budget and the request's deadline, and can keep to a quota by itself,
// so that it isn't told. It links nothing but the standard library.
package client

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/retry"
)

// Config says how a Transport behaves. Its zero value is good.
type Config struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Tries is how often a request is sent at most; 0 is 4, 1 is never again.
	Tries int
	// Statuses are tried again; nil is 429 and 503. Others, and errors of the connection, are returned as they are. A 429 says that the
	// request was refused. After any other status it may have been carried out all the same, so it is sent again only if that
	// changes nothing: when its method is idempotent (GET, HEAD, OPTIONS, TRACE, PUT, DELETE), or it has an Idempotency-Key.
	Statuses []int
	// Backoff is the wait before the second try when the service named none; it doubles from try to try, up to MaxBackoff, and the wait
	// is a random part of it between a half and the whole. 0 is 200 ms.
	Backoff time.Duration
	// MaxBackoff bounds it; 0 is 30 s.
	MaxBackoff time.Duration
	// MaxRetryAfter is the longest Retry-After that is waited for; a response that names a longer one is returned. 0 is 1 minute.
	MaxRetryAfter time.Duration
	// Spread is up to how much a wait for Retry-After is made longer at random, so that not all who were told the same moment
	// come back in it; 0 is 100 ms, negative is none.
	Spread time.Duration
	// Budget bounds what all retries of this Transport add to its requests, so that they don't keep down a service that is
	// overloaded: each request adds so many of a retry, and each retry takes one. 0 is 0.1, negative is no bound. Saved are at
	// most 10, and as many are there at first.
	Budget float64
	// Quota is how many requests may be sent per Per, tries included; further ones wait. 0 is no bound. Burst of them may be sent
	// at once; 0 is Quota.
	Quota int
	Per   time.Duration
	Burst int
}

func (c *Config) setDefaults() {
	if c.Base == nil {
		c.Base = http.DefaultTransport
	}
	c.Tries = cmp.Or(c.Tries, 4)
	if c.Statuses == nil {
		c.Statuses = []int{http.StatusTooManyRequests, http.StatusServiceUnavailable}
	}
	c.Backoff = cmp.Or(c.Backoff, 200*time.Millisecond)
	c.MaxBackoff = cmp.Or(c.MaxBackoff, 30*time.Second)
	c.MaxRetryAfter = cmp.Or(c.MaxRetryAfter, time.Minute)
	c.Spread = cmp.Or(c.Spread, 100*time.Millisecond)
	c.Budget = cmp.Or(c.Budget, 0.1)
	c.Burst = cmp.Or(c.Burst, c.Quota)
}

func (c *Config) validate() error {
	var errs []error
	if c.Tries < 1 {
		errs = append(errs, fmt.Errorf("client: Tries is %d, want at least 1", c.Tries))
	}
	if c.Backoff < 0 || c.MaxBackoff < c.Backoff || c.MaxRetryAfter < 0 {
		errs = append(errs, fmt.Errorf("client: Backoff is %v, MaxBackoff %v and MaxRetryAfter %v, want none negative, and the first the least of two",
			c.Backoff, c.MaxBackoff, c.MaxRetryAfter))
	}
	if c.Quota < 0 || c.Burst < 0 || c.Quota > 0 && c.Per <= 0 {
		errs = append(errs, fmt.Errorf("client: Quota is %d per %v with a Burst of %d, want none negative, and a Per", c.Quota, c.Per, c.Burst))
	}
	return errors.Join(errs...)
}

// Transport is an http.RoundTripper. Make it with New. It may be used by many goroutines.
type Transport struct {
	cfg Config

	mu     sync.Mutex
	budget float64   // retries
	free   time.Time // when all of the quota is there again
}

const maxBudget = 10

// New checks the configuration.
func New(cfg Config) (*Transport, error) {
	cfg.setDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Transport{cfg: cfg, budget: maxBudget}, nil
}

// RoundTrip sends a request, and sends it again as long as the service asks for that, and everything allows it: the tries, the budget,
// the request's deadline, its method, and its body, which must have a GetBody (http.NewRequest sets it for those in memory). Else it
// returns the response as it came, so the caller sees the 429.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.save()
	for try := 1; ; try++ {
		if err := t.take(r); err != nil {
			if r.Body != nil {
				_ = r.Body.Close() // a RoundTripper always does
			}
			return nil, err
		}
		resp, err := t.cfg.Base.RoundTrip(r)
		if err != nil || !slices.Contains(t.cfg.Statuses, resp.StatusCode) {
			return resp, err
		}
		wait, ok := t.wait(resp, try)
		if !ok || try == t.cfg.Tries || !inTime(r, wait) || !repeatable(r, resp.StatusCode) || !t.spend() {
			return resp, nil
		}
		next, err := again(r)
		if err != nil {
			return resp, nil //nolint:nilerr // the response is the better answer
		}
		drain(resp.Body)
		if !retry.Sleep(r.Context(), wait) {
			if next.Body != nil {
				_ = next.Body.Close()
			}
			return nil, r.Context().Err()
		}
		r = next
	}
}

// wait returns how long to wait after a response; ok is false when that is too long.
func (t *Transport) wait(resp *http.Response, try int) (d time.Duration, ok bool) {
	if after, found := retryAfter(resp); found {
		if after > t.cfg.MaxRetryAfter {
			return 0, false
		}
		return after + upTo(t.cfg.Spread), true
	}
	return retry.Spread(retry.After(try, t.cfg.Backoff, t.cfg.MaxBackoff)), true
}

func upTo(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d + 1)
}

// retryAfter reads Retry-After: seconds, or a date.
func retryAfter(resp *http.Response) (time.Duration, bool) {
	text := resp.Header.Get("Retry-After")
	if seconds, err := strconv.ParseUint(text, 10, 32); err == nil {
		return time.Duration(seconds) * time.Second, true
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), 0), true
	}
	return 0, false
}

// inTime reports whether the request's deadline lets it wait so long.
func inTime(r *http.Request, wait time.Duration) bool {
	deadline, ok := r.Context().Deadline()
	return !ok || time.Until(deadline) > wait
}

// repeatable reports whether a request that was answered with this status can be sent again, and may be.
func repeatable(r *http.Request, status int) bool {
	if r.Body != nil && r.Body != http.NoBody && r.GetBody == nil {
		return false
	}
	if status == http.StatusTooManyRequests || r.Header.Get("Idempotency-Key") != "" || r.Header.Get("X-Idempotency-Key") != "" {
		return true
	}
	switch r.Method {
	case "", http.MethodGet, http.MethodHead, http.MethodOptions, http.MethodTrace, http.MethodPut, http.MethodDelete: // RFC 9110, section 9.2.2
		return true
	}
	return false
}

// again is the request anew, with its body from the beginning.
func again(r *http.Request) (*http.Request, error) {
	next := r.Clone(r.Context())
	if r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		next.Body = body
	}
	return next, nil
}

// drain reads what is left of a short body, so that the connection can be used again.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// save adds to the budget what a request is worth.
func (t *Transport) save() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.budget = min(t.budget+t.cfg.Budget, maxBudget)
}

// spend takes a retry out of the budget, if there is one.
func (t *Transport) spend() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cfg.Budget < 0 {
		return true
	}
	if t.budget < 1 {
		return false
	}
	t.budget--
	return true
}

// ErrQuota says that a request would have had to wait for the Transport's own quota until after its deadline.
var ErrQuota = errors.New("client: the quota leaves no room before the request's deadline")

// take waits until the quota has room, as GCRA does.
func (t *Transport) take(r *http.Request) error {
	if t.cfg.Quota == 0 {
		return r.Context().Err()
	}
	wait, ok := t.reserve(r)
	if !ok {
		return ErrQuota
	}
	if !retry.Sleep(r.Context(), wait) {
		return r.Context().Err()
	}
	return nil
}

// reserve takes room in the quota, and returns how long to wait for it.
func (t *Transport) reserve(r *http.Request) (wait time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	every := t.cfg.Per / time.Duration(t.cfg.Quota)
	now := time.Now()
	free := t.free
	if free.Before(now) {
		free = now
	}
	free = free.Add(every)
	if wait = free.Sub(now) - time.Duration(t.cfg.Burst)*every; wait > 0 && !inTime(r, wait) {
		return 0, false
	}
	t.free = free
	return wait, true
}
