package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// service answers with these statuses, one after the other, and then with 200. It notes when it was asked, and with what body.
type service struct {
	began    time.Time
	statuses []int
	after    string // Retry-After
	asked    []time.Duration
	bodies   []string
	closed   int
}

type body struct {
	io.Reader
	close func()
}

func (b body) Close() error { b.close(); return nil }

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	s.asked = append(s.asked, time.Since(s.began))
	if r.Body != nil {
		text, _ := io.ReadAll(r.Body)
		_ = r.Body.Close()
		s.bodies = append(s.bodies, string(text))
	}
	status := 200
	if len(s.statuses) > 0 {
		status, s.statuses = s.statuses[0], s.statuses[1:]
	}
	h := http.Header{}
	if s.after != "" && status != 200 {
		h.Set("Retry-After", s.after)
	}
	return &http.Response{StatusCode: status, Header: h, Request: r, Body: body{strings.NewReader("why"), func() { s.closed++ }}}, nil
}

// run is a story with a service and a client, at a time that doesn't pass by itself.
func run(t *testing.T, cfg Config, s *service, story func(t *testing.T, send func(*http.Request) int)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s.began = time.Now()
		cfg.Base = s
		transport, err := New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		client := &http.Client{Transport: transport}
		story(t, func(r *http.Request) int {
			resp, err := client.Do(r)
			switch {
			case errors.Is(err, ErrQuota):
				return -2
			case err != nil:
				return -1
			}
			_ = resp.Body.Close()
			return resp.StatusCode
		})
	})
}

func request(ctx context.Context, t *testing.T, content io.Reader) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, "PUT", "http://service/", content)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// A 503 doesn't tell whether the request was carried out before: a second POST could be a second order. A 429 does: it was refused.
func TestOnlyWhatMayHappenTwiceIsSentAgain(t *testing.T) {
	for _, c := range []struct {
		method, key string
		status      int
		again       bool
	}{
		{"GET", "", 503, true}, {"HEAD", "", 503, true}, {"OPTIONS", "", 503, true}, {"PUT", "", 503, true}, {"DELETE", "", 503, true},
		{"", "", 503, true}, // is GET
		{"POST", "", 503, false}, {"PATCH", "", 503, false}, {"CONNECT", "", 503, false}, {"PURGE", "", 503, false},
		{"POST", "Idempotency-Key", 503, true}, {"PATCH", "Idempotency-Key", 503, true}, {"POST", "X-Idempotency-Key", 503, true},
		{"POST", "", 429, true}, {"PATCH", "", 429, true},
	} {
		s := &service{statuses: []int{c.status}, after: "1"}
		run(t, Config{Spread: -1}, s, func(t *testing.T, send func(*http.Request) int) {
			r := request(t.Context(), t, strings.NewReader("hello"))
			if r.Method = c.method; c.key != "" {
				r.Header.Set(c.key, "k1")
			}
			if got := send(r); (len(s.asked) == 2) != c.again || (got == 200) != c.again {
				t.Errorf("%s %s on %d: %d after %d tries, want it sent again: %v", c.method, c.key, c.status, got, len(s.asked), c.again)
			}
		})
	}
}

// What GetBody opened for a try that never comes is closed: it may be a file.
func TestABodyIsClosedWhenTheWaitEnds(t *testing.T) {
	s := &service{statuses: []int{429}, after: "30"}
	run(t, Config{}, s, func(t *testing.T, send func(*http.Request) int) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		r, opened, closed := request(ctx, t, nil), 0, 0
		r.GetBody = func() (io.ReadCloser, error) {
			opened++
			return body{strings.NewReader("hello"), func() { closed++ }}, nil
		}
		r.Body, _ = r.GetBody()
		if got := send(r); got != -1 || opened == 0 || closed != opened {
			t.Errorf("%d; of %d bodies %d were closed", got, opened, closed)
		}
	})
}

func seconds(t *testing.T, got []time.Duration, want ...time.Duration) {
	t.Helper()
	ok := len(got) == len(want)
	for i := range want {
		ok = ok && got[i] == want[i]*time.Second
	}
	if !ok {
		t.Errorf("asked at %v, want at %d s", got, want)
	}
}

func TestItComesBackWhenItIsTold(t *testing.T) {
	s := &service{statuses: []int{429, 503}, after: "7"}
	run(t, Config{Spread: -1}, s, func(t *testing.T, send func(*http.Request) int) {
		if got := send(request(t.Context(), t, strings.NewReader("hello"))); got != 200 {
			t.Errorf("status %d", got)
		}
		seconds(t, s.asked, 0, 7, 14)
		if strings.Join(s.bodies, " ") != "hello hello hello" || s.closed != 3 {
			t.Errorf("bodies %q, %d of 3 responses closed", s.bodies, s.closed)
		}
	})
}

func TestRetryAfterMayBeADate(t *testing.T) {
	s := &service{statuses: []int{429}}
	run(t, Config{Spread: -1}, s, func(t *testing.T, send func(*http.Request) int) {
		s.after = time.Now().Add(5 * time.Second).UTC().Format(http.TimeFormat)
		send(request(t.Context(), t, nil))
		seconds(t, s.asked, 0, 5)
	})
}

func TestThoseWhoWereToldTheSameMomentSpread(t *testing.T) {
	moments := map[time.Duration]bool{}
	for range 20 {
		s := &service{statuses: []int{429}, after: "7"}
		run(t, Config{}, s, func(t *testing.T, send func(*http.Request) int) { send(request(t.Context(), t, nil)) })
		if s.asked[1] < 7*time.Second || s.asked[1] > 7100*time.Millisecond {
			t.Errorf("back after %v, want 7 to 7.1 s", s.asked[1])
		}
		moments[s.asked[1]] = true
	}
	if len(moments) < 15 {
		t.Errorf("%d moments of 20 clients", len(moments))
	}
}

func TestWithoutRetryAfterItBacksOff(t *testing.T) {
	s := &service{statuses: []int{429, 429, 429, 429, 429, 429}}
	run(t, Config{Tries: 6, Backoff: time.Second, MaxBackoff: 5 * time.Second}, s, func(t *testing.T, send func(*http.Request) int) {
		if got := send(request(t.Context(), t, nil)); got != 429 || len(s.asked) != 6 {
			t.Fatalf("status %d after %d tries, want 429 after 6", got, len(s.asked))
		}
		for i, most := range []time.Duration{1, 2, 4, 5, 5} {
			if wait := s.asked[i+1] - s.asked[i]; wait < most*time.Second/2 || wait > most*time.Second {
				t.Errorf("wait %d is %v, want half to all of %d s", i, wait, most)
			}
		}
	})
}

func TestWhenItGivesTheAnswerBack(t *testing.T) {
	plain := func(ctx context.Context, t *testing.T) *http.Request { return request(ctx, t, nil) }
	for _, c := range []struct {
		name    string
		cfg     Config
		status  int
		after   string
		request func(context.Context, *testing.T) *http.Request
		within  time.Duration // the request's deadline; 0 is none
	}{
		{"another error", Config{}, 500, "1", plain, 0},
		{"told to wait too long", Config{MaxRetryAfter: 5 * time.Second}, 429, "6", plain, 0},
		{"the deadline comes first", Config{Spread: -1}, 429, "7", plain, 7 * time.Second},
		{"one try only", Config{Tries: 1}, 429, "1", plain, 0},
		{"a body that cannot be sent again", Config{}, 429, "1", func(ctx context.Context, t *testing.T) *http.Request {
			return request(ctx, t, io.MultiReader(strings.NewReader("once")))
		}, 0},
	} {
		s := &service{statuses: []int{c.status}, after: c.after}
		run(t, c.cfg, s, func(t *testing.T, send func(*http.Request) int) {
			ctx := t.Context()
			if c.within > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, c.within)
				defer cancel()
			}
			if got := send(c.request(ctx, t)); got != c.status || len(s.asked) != 1 {
				t.Errorf("%s: status %d after %d tries, want %d after one", c.name, got, len(s.asked), c.status)
			}
		})
	}
}

func TestAnEndOfTheContextEndsTheWait(t *testing.T) {
	s := &service{statuses: []int{429}, after: "30"}
	run(t, Config{}, s, func(t *testing.T, send func(*http.Request) int) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if got := send(request(ctx, t, nil)); got != -1 || time.Since(s.began) != time.Second {
			t.Errorf("%d after %v, want an error after 1 s", got, time.Since(s.began))
		}
	})
}

// Ten retries are saved, and every ten requests earn one.
func TestRetriesHaveABudget(t *testing.T) {
	s := &service{statuses: make([]int, 1000), after: "0"}
	for i := range s.statuses {
		s.statuses[i] = 503
	}
	run(t, Config{Tries: 100, Spread: -1}, s, func(t *testing.T, send func(*http.Request) int) {
		for range 100 {
			send(request(t.Context(), t, nil))
		}
		if retries := len(s.asked) - 100; retries < 18 || retries > 20 {
			t.Errorf("%d retries of 100 requests, want 10 and a tenth of 100", retries)
		}
	})
}

func TestItKeepsToItsQuota(t *testing.T) {
	s := &service{}
	run(t, Config{Quota: 2, Per: 2 * time.Second, Burst: 2}, s, func(t *testing.T, send func(*http.Request) int) {
		for range 5 {
			send(request(t.Context(), t, nil))
		}
		seconds(t, s.asked, 0, 0, 1, 2, 3)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		if got := send(request(ctx, t, nil)); got != -2 || len(s.asked) != 5 {
			t.Errorf("%d, want ErrQuota at once", got)
		}
		time.Sleep(time.Minute)
		s.asked, s.began = nil, time.Now()
		for range 3 {
			send(request(t.Context(), t, nil))
		}
		seconds(t, s.asked, 0, 0, 1)
	})
}

func TestConfigsThatMakeNoSense(t *testing.T) {
	_, err := New(Config{Tries: -1, Backoff: time.Hour, Quota: 1})
	if err == nil || strings.Count(err.Error(), "\n") != 2 {
		t.Errorf("error %v, want three lines", err)
	}
}
