package session

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Ten logins of an address may fail in a minute, and more from elsewhere; those that succeed are free.
func TestLoginsThatFailAreBounded(t *testing.T) {
	a := newAttempts(nil)
	now := time.Now()
	a.all.filled = now
	from := func(address string) *http.Request {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.RemoteAddr = address
		return r
	}
	may := func(address string, want bool) {
		t.Helper()
		if got := a.take(network(a.client(from(address))), now); got != want {
			t.Errorf("%s: %v, want %v", address, got, want)
		}
	}
	for range 3 * failuresAll {
		may("10.0.0.1:1", true)
		attempt{a, network("10.0.0.1"), true}.succeeded()
	}
	for range failuresEach {
		may("10.0.0.1:1", true)
		may("[2001:db8::1]:1", true)
	}
	may("10.0.0.1:2", false)
	may("[::ffff:10.0.0.1]:3", false)
	may("[2001:db8::ffff]:1", false) // a machine has all of a /64
	may("[2001:db8:0:1::1]:1", true)
	may("10.0.0.2:1", true)
	now = now.Add(time.Minute / failuresEach)
	may("10.0.0.1:1", true)
	may("10.0.0.1:1", false)
	now = now.Add(time.Hour)
	for i := range failuresAll {
		may(fmt.Sprintf("10.1.%d.1:1", i), true)
	}
	may("10.9.9.9:1", false)
	now = now.Add(time.Second)
	may("10.9.9.9:1", true)
	for i := range 3 * maxAddresses { // of whom nothing is kept for long
		now = now.Add(time.Second)
		may(fmt.Sprintf("10.%d.%d.%d:1", i>>16, i>>8&0xff, i&0xff), true)
	}
	if len(a.each) > maxAddresses {
		t.Errorf("%d addresses are kept", len(a.each))
	}
}

// Those who have failed too often are told so, and many at once are no way around. A right token is let in, whoever
// failed at the same address: ten wrong ones kept everybody out whose proxy it was.
func TestTooManyLoginsAreRefused(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a)
	try := func(token string) int {
		r := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("token="+token))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		c.serveToken(w, r)
		return w.Code
	}
	c.attempts.each[network("192.0.2.1")] = &bucket{left: failuresEach, size: failuresEach} // and no more come
	for range 2 * failuresEach {
		if got := try("viewer"); got != 303 {
			t.Fatalf("a good login: %d", got)
		}
	}
	var wg sync.WaitGroup
	var let atomic.Int32
	for range 5 * failuresEach {
		wg.Go(func() {
			if try("wrong") == 401 {
				let.Add(1)
			}
		})
	}
	wg.Wait()
	if n := let.Load(); n != failuresEach {
		t.Errorf("%d of many attempts at once are let through", n)
	}
	for token, want := range map[string]int{"viewer": 303, "admin": 303, "wrong": 429, "service": 429} {
		if got := try(token); got != want {
			t.Errorf("%s after that: %d, want %d", token, got, want)
		}
	}
}

// Beyond the bounds few are asked about at once, and who gives up while others have their turn asks nobody.
func TestLoginsBeyondTheBoundsWaitForTheirTurn(t *testing.T) {
	a := newAttempts(nil)
	a.all = bucket{filled: time.Now()}
	r := httptest.NewRequest(http.MethodPost, "/login", nil)
	var under []attempt
	for range beyondAtOnce {
		try, err := a.begin(r, a.all.filled)
		if err != nil || try.within {
			t.Fatal(try, err)
		}
		under = append(under, try)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := a.begin(r.WithContext(ctx), a.all.filled); err == nil {
		t.Error("one more has a turn")
	}
	under[0].succeeded() // gives nothing back: it took nothing
	under[0].end()
	if try, err := a.begin(r, a.all.filled); err != nil || try.within {
		t.Error(try, err)
	}
}

// Behind a trusted proxy failures are counted by the client that it names, and nobody else can name one.
func TestFailuresBehindAProxyAreTheClients(t *testing.T) {
	o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
	options := NewOptions(o)
	if err := o.ParseOnly([]string{"--trusted-proxies", "10.0.0.0/8, 192.0.2.7"}); err != nil {
		t.Fatal(err)
	}
	var cfg Config
	if err := options.Fill(&cfg); err != nil {
		t.Fatal(err)
	}
	a := newAttempts(cfg.Proxies)
	for _, c := range []struct {
		peer  string
		named []string
		want  string
	}{
		{"10.1.2.3:5", []string{"198.51.100.9"}, "198.51.100.9"},
		{"10.1.2.3:5", []string{"203.0.113.1, 198.51.100.9, 192.0.2.7"}, "198.51.100.9"},
		{"10.1.2.3:5", []string{"203.0.113.1", "198.51.100.9"}, "198.51.100.9"},
		{"10.1.2.3:5", []string{"203.0.113.1, nonsense"}, ""},
		{"10.1.2.3:5", nil, ""},
		{"@", []string{"198.51.100.9"}, "198.51.100.9"}, // a Unix socket
		{"203.0.113.5:5", []string{"198.51.100.9"}, "203.0.113.5"},
		{"[2001:db8::1]:5", nil, "2001:db8::1"},
	} {
		r := httptest.NewRequest(http.MethodPost, "/login", nil)
		r.RemoteAddr, r.Header["X-Forwarded-For"] = c.peer, c.named
		if got := a.client(r); got != c.want {
			t.Errorf("%s naming %q: %q, want %q", c.peer, c.named, got, c.want)
		}
	}
	if err := o.ParseOnly([]string{"--trusted-proxies", "proxy.example"}); err == nil {
		t.Error("a name is taken for a network")
	}
}
