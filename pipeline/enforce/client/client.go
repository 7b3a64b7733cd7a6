// Package client is an http.RoundTripper that honors Retry-After. After a 429 or 503 it waits for
// that time, or backs off exponentially with jitter, within a budget and the request's deadline. It
// can also keep to a quota, so that requests are not denied at all. It links only the standard
// library.
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

	"github.com/tallygate/tallygate/internal/base/retry"
)

// Config configures a Transport. The zero value is ready to use.
type Config struct {
	// Base sends the requests; nil is http.DefaultTransport.
	Base http.RoundTripper
	// Tries bounds the attempts of a request; 0 is 4, and 1 never retries.
	Tries int
	// Statuses are retried; nil is 429 and 503. Others, and errors of the connection, are returned.
	// A 429 means that the request was refused. After any other status it may have been carried
	// out, so it is retried only if its method is idempotent (GET, HEAD, OPTIONS, TRACE, PUT,
	// DELETE) or it has an Idempotency-Key.
	Statuses []int
	// Backoff is the wait before the first retry without a Retry-After; 0 is 200 ms. It doubles
	// with each retry, up to MaxBackoff. The actual wait is random, from half of it to all of it.
	Backoff time.Duration
	// MaxBackoff bounds it; 0 is 30 s.
	MaxBackoff time.Duration
	// MaxRetryAfter is the longest Retry-After to wait for; 0 is 1 minute. A response with a longer
	// one is returned.
	MaxRetryAfter time.Duration
	// Spread is the greatest random addition to a Retry-After, so that not all clients return at
	// the same moment; 0 is 100 ms, and a negative value adds nothing.
	Spread time.Duration
	// Budget bounds the retries of this Transport per request, so that they don't overload a
	// service further: each request adds this part of a retry, and each retry takes one. 0 is 0.1,
	// and a negative value is no bound. It holds 10 at most, and 10 at the start.
	Budget float64
	// Quota bounds the requests, retries included, per Per; more of them wait. 0 is no bound. Burst of them may be
	// sent at once; 0 is Quota.
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

// RoundTrip sends a request, and retries it as long as the service asks for that and everything
// allows it: the tries, the budget, the request's deadline, its method and its body. A body must
// have a GetBody, which http.NewRequest sets for bodies in memory. Otherwise it returns the last
// response.
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

// inTime reports whether the request's deadline allows the wait.
func inTime(r *http.Request, wait time.Duration) bool {
	deadline, ok := r.Context().Deadline()
	return !ok || time.Until(deadline) > wait
}

// repeatable reports whether a request can be sent again after this status.
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

// again returns a copy of the request with its body from the beginning.
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

// drain reads the rest of a short body, so that the connection can be reused.
func drain(body io.ReadCloser) {
	_, _ = io.CopyN(io.Discard, body, 64<<10)
	_ = body.Close()
}

// save adds a request's part to the budget.
func (t *Transport) save() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.budget = min(t.budget+t.cfg.Budget, maxBudget)
}

// spend takes a retry from the budget, if it has one.
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

// ErrQuota is returned when a request would wait for the Transport's quota beyond its deadline.
var ErrQuota = errors.New("client: the quota leaves no room before the request's deadline")

// take waits for room in the quota, by GCRA.
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
