package decision_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// throttled is a throttle of four a second.
func throttled(uid string, lasts time.Duration) verdict.Verdict {
	return block("r", "uid", uid, func(v *verdict.Verdict) {
		v.Action, v.Until = verdict.ActThrottle, v.Since+event.FromDuration(lasts)
		v.Limit, v.Per = 4*event.One, event.Second
	})
}

// waitingRig is a rig in a bubble, in which users 42, for a second, and 43, for a minute, are throttled.
func waitingRig(t *testing.T) *rig {
	t.Helper()
	r := newRig(t, func(c *decision.Config) { c.MaxWait, c.MaxWaiting, c.MaxWaitingPerKey = 3*time.Second, 6, 5 })
	return r.blocks(throttled("42", time.Second), throttled("43", time.Minute))
}

// Services in other languages are let through one by one as those in Go are.
func TestChecksWaitForTheirTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitingRig(t)
		began := time.Now()
		var all sync.WaitGroup
		answers := make([]api.Decision, 6)
		for i, wait := range []string{`"2s"`, `2`, `1.75`, `"1700ms"`, `"1h"`, `"3s"`} {
			all.Go(func() {
				answers[i] = decode[api.Decision](t, r.post("/v1/check", `{"uid": "42", "api": "a", "wait": `+wait+`}`))
			})
			synctest.Wait()
		}
		if got := r.metrics()["tallygate_checks_waiting"]; got != 5 {
			t.Errorf("%v wait, want 5", got)
		}
		all.Wait()
		for i, want := range []api.Decision{
			{Allowed: true, Waited: 1000}, {Allowed: true, Waited: 1250}, {Allowed: true, Waited: 1500},
			{Rule: "r", Until: event.FromTime(began.Add(1750 * time.Millisecond)).String(), RetryAfter: 2}, // its own wait is too short
			{Allowed: true, Waited: 1750}, {Allowed: true, Waited: 2000},
		} {
			if got := answers[i]; got.Allowed != want.Allowed || got.Waited != want.Waited || got.Rule != want.Rule || got.Until != want.Until || got.RetryAfter != want.RetryAfter {
				t.Errorf("%d: %+v, want %+v", i, got, want)
			}
		}
		want := map[string]float64{
			"tallygate_checks_waiting": 0, "tallygate_checks_waited_total released": 5, "tallygate_checks_waited_total turned_away": 1,
			"tallygate_checks_waited_total gave_up": 0, "tallygate_checks_total allowed": 5, "tallygate_checks_total throttle": 1,
		}
		for name, got := range r.metrics() {
			if value, ok := want[name]; ok && got != value {
				t.Errorf("%s is %v, want %v", name, got, value)
			}
			delete(want, name)
		}
		if len(want) > 0 {
			t.Errorf("there is no %v", want)
		}
	})
}

// The server's bounds hold, whatever a check asks for.
func TestWaitsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitingRig(t)
		now := func(about, body string, retry int64) {
			t.Helper()
			began := time.Now()
			if a := decode[api.Decision](t, r.post("/v1/check", body)); a.Allowed || a.Waited != 0 || a.RetryAfter != retry || time.Since(began) != 0 {
				t.Errorf("%s: %+v after %v, want a denial at once, for %d s", about, a, time.Since(began), retry)
			}
		}
		now("it doesn't ask for a wait", `{"uid": "42", "api": "a"}`, 1)
		now("it asks for none", `{"uid": "42", "api": "a", "wait": 0}`, 1)
		now("null is none", `{"uid": "42", "api": "a", "wait": null}`, 1)
		now("longer than the server allows", `{"uid": "43", "api": "a", "wait": "1h"}`, 60)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() { r.post("/v1/check", `{"uid": "42", "api": "a", "wait": 3}`) })
			synctest.Wait()
		}
		now("more than may wait for one key", `{"uid": "42", "api": "a", "wait": 3}`, 3)
		all.Wait()
	})
}

// A client that goes gives its place up.
func TestAClientThatLeavesWhileItsCheckWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := waitingRig(t)
		ctx, cancel := context.WithCancel(t.Context())
		var all sync.WaitGroup
		ask := func(ctx context.Context) {
			all.Go(func() {
				req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/v1/check", strings.NewReader(`{"uid": "42", "api": "a", "wait": 3}`))
				began := time.Now()
				a := decode[api.Decision](t, r.do(req))
				if want := ctx == t.Context(); a.Allowed != want || want && time.Since(began) != time.Second {
					t.Errorf("allowed %v after %v", a.Allowed, time.Since(began))
				}
			})
			synctest.Wait()
		}
		ask(ctx)
		ask(t.Context())
		cancel()
		all.Wait()
		if got := r.metrics()["tallygate_checks_waited_total gave_up"]; got != 1 {
			t.Errorf("%v gave up, want 1", got)
		}
	})
}

func TestWaitsThatAreNone(t *testing.T) {
	r := newRig(t).blocks()
	for _, wait := range []string{`"2"`, `"soon"`, `""`, `-1`, `"-1s"`, `true`, `{}`, `[1]`, `1e30`, `0.0000001`} {
		wantProblem(t, wait, r.post("/v1/check", `{"api": "a", "wait": `+wait+`}`), http.StatusBadRequest, "is no time span: use a string such as")
	}
	wantProblem(t, "in a batch", r.post("/v1/check/batch", `{"checks": [{"api": "a"}, {"api": "a", "wait": 1}]}`), http.StatusBadRequest, "checks[1]: wait: the checks of a batch don't wait")
	if a := decode[api.Decision](t, r.post("/v1/check", `{"api": "a", "wait": "2s"}`)); !a.Allowed || a.Waited != 0 {
		t.Errorf("nothing to wait for: %+v", a)
	}
}

func TestBoundsOfWaits(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for about, cfg := range map[string]decision.Config{
		"longer than a stop takes": {MaxWait: 11 * time.Second}, "MaxWait": {MaxWait: -1}, "MaxWaiting": {MaxWaiting: -1}, "MaxWaitingPerKey": {MaxWaitingPerKey: -1},
	} {
		cfg.Table = table
		if _, err := decision.New(cfg); err == nil || !strings.Contains(err.Error(), "decision: MaxWait") {
			t.Errorf("%s: %v", about, err)
		}
	}
}
