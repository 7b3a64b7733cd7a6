package httplimit

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Over real connections: eight who wait for the end of one verdict leave in the order in which they
// came, at the limit's rate, and one that came later is behind them.
func TestAServerLetsWaitingRequestsLeaveOneByOne(t *testing.T) {
	const every = 40 * time.Millisecond
	table := running(t)
	var mu sync.Mutex
	var names []string
	var times []time.Time
	g, err := NewGate(table, Options{UID: byHeader, MaxDelay: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		names, times = append(names, r.URL.Path), append(times, time.Now())
	})))
	defer server.Close()
	end := time.Now().Add(2 * time.Second).Truncate(time.Microsecond)
	table.Replace(0, []verdict.Verdict{until("42", verdict.ActThrottle, 0)}) // ended, and held
	table.Apply(0, []verdict.Verdict{block("r", "uid=42", func(v *verdict.Verdict) {
		v.Action, v.Seq, v.Since, v.Until = verdict.ActThrottle, 2, now(), event.FromTime(end)
		v.Limit, v.Per = 25*event.One, event.Second
	})})
	var all sync.WaitGroup
	send := func(name, user string) (status int) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/"+name, nil)
		if err != nil {
			t.Error(err)
			return 0
		}
		r.Header.Set("X-User", user)
		resp, err := server.Client().Do(r)
		if err != nil {
			t.Error(err)
			return 0
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	for i := range 8 {
		all.Go(func() {
			if status := send(fmt.Sprint(i), "42"); status != http.StatusOK {
				t.Errorf("%d: %d", i, status)
			}
		})
		testrun.Eventually(t, "it waits", func() bool { return g.throttle.Stats().Waiting == i+1 })
	}
	if status := send("another", "43"); status != http.StatusOK || time.Now().After(end) {
		t.Errorf("another user: %d %v after the verdict's end, want at once", status, time.Since(end))
	}
	testrun.Eventually(t, "the first has left", func() bool { return g.throttle.Stats().Waiting < 8 })
	send("behind", "42")
	all.Wait()
	if got, want := fmt.Sprint(names), "[/another /0 /1 /2 /3 /4 /5 /6 /7 /behind]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	for i, at := range times[1:] {
		if early := end.Add(time.Duration(i) * every).Sub(at); early > 0 {
			t.Errorf("the one with number %d left %v before its turn", i, early)
		}
	}
	testrun.Eventually(t, "nothing is left", func() bool { return !g.throttle.Busy() })
}

// While others wait, requests of other keys need the API's name, and nothing else.
func TestOthersPassWhileSomeWait(t *testing.T) {
	table := running(t)
	v := until("42", verdict.ActThrottle, time.Minute)
	v.APIs = []string{"slow"}
	table.Replace(0, []verdict.Verdict{v})
	named := ""
	h := Middleware(table, Options{UID: byHeader, MaxDelay: time.Hour, API: func(r *http.Request) string {
		named = r.URL.Path[1:]
		return named
	}})
	passed := 0
	handler := h(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed++ }))
	ctx, cancel := context.WithCancel(t.Context())
	request := func(path, user string) *http.Request {
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, path, nil)
		r.Header.Set("X-User", user)
		return r
	}
	handler.ServeHTTP(httptest.NewRecorder(), request("/slow", "7"))
	if passed != 1 || named != "" {
		t.Fatalf("%d passed, and %q was named, before anyone waits", passed, named)
	}
	var waiting sync.WaitGroup
	waiting.Go(func() { handler.ServeHTTP(httptest.NewRecorder(), request("/slow", "42")) })
	probe, err := enforce.NewThrottle(table, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "one waits", probe.Busy)
	for _, r := range []*http.Request{request("/slow", "7"), request("/fast", "42")} {
		if handler.ServeHTTP(httptest.NewRecorder(), r); named != r.URL.Path[1:] {
			t.Errorf("%s was named %q", r.URL, named)
		}
	}
	cancel()
	waiting.Wait()
	if passed != 3 {
		t.Errorf("%d passed, want the three that are not throttled", passed)
	}
}
