package conformance

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/admit"
	"github.com/tallygate/tallygate/pipeline/admit/protocol"
	"github.com/tallygate/tallygate/pipeline/admit/publish"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

// admitter answers by the user, and notes what happens.
type admitter struct {
	idle bool
	said []string
}

func (a *admitter) note(what string) { a.said = append(a.said, what) }

func (a *admitter) Idle() bool { return a.idle }

func (a *admitter) AdmitRequest(_ context.Context, r enforce.Request) (enforce.Admission, error) {
	user := r.Dims[0].Value
	a.note("asked " + user + " " + r.API)
	switch user {
	case "limited":
		v := &verdict.Verdict{Rule: "daily-detector", Public: "per day", Action: verdict.ActBlock, Limit: 5 * event.One}
		return enforce.Admission{Decision: enforce.Refuse(v, 90*time.Second)}, nil
	case "doubt":
		return enforce.Admission{Decision: enforce.Unknown()}, nil
	}
	return enforce.Admission{
		Decision: enforce.Decision{Allowed: true}, Permit: event.Permit{ID: "permit of " + user, At: 7}, Held: held{a, user},
		Standing: enforce.Standing{Rule: "daily-detector", Public: "per day", Limit: 5 * event.One, Remaining: 3 * event.One, Reset: time.Minute},
	}, nil
}

type held struct {
	a    *admitter
	user string
}

func (h held) Done(outcome string) { h.a.note("done " + h.user + " " + outcome) }
func (h held) Cancel()             { h.a.note("cancelled " + h.user) }

// Emit notes the event: it goes before the permit is given back. What a denial tells is left out.
func (a *admitter) Emit(e event.Event) bool {
	if e.Outcome == event.OutcomeLimited {
		return true
	}
	a.note("event of " + e.UID + ": " + e.Outcome + " " + e.Permit.ID)
	return true
}

// Permits: behind a check, they are asked for, given to the handler and to the event, and ended.
func TestPermits(t *testing.T) {
	onEach(t, func(t *testing.T, table *enforce.Table, build func(options, handler) service) {
		a := &admitter{}
		send := build(options{admit: a, events: a}, func(ctx context.Context, user string) int {
			a.note("handles " + httplimit.PermitOf(ctx).ID)
			if user == "fails" {
				return http.StatusBadGateway
			}
			return http.StatusAccepted
		})
		for _, c := range []struct {
			user                string
			status              int
			retryAfter, limited string
			said                []string
		}{
			{"limited", 429, "90", `"per day";r=0;t=90`, []string{"asked limited post.send"}},
			{"doubt", 503, "1", "", []string{"asked doubt post.send"}},
			{"ok", 202, "", `"per day";r=3;t=60`, []string{"asked ok post.send", "handles permit of ok", "event of ok: success permit of ok", "done ok success"}},
			{"fails", 502, "", `"per day";r=3;t=60`, []string{"asked fails post.send", "handles permit of fails", "event of fails: failure permit of fails", "done fails failure"}},
		} {
			a.said = nil
			resp := send(c.user)
			_ = resp.Body.Close()
			if resp.StatusCode != c.status || resp.Header.Get("Retry-After") != c.retryAfter || resp.Header.Get("RateLimit") != c.limited {
				t.Errorf("%s: %d, %v, want %d", c.user, resp.StatusCode, resp.Header, c.status)
			}
			if diff := cmp.Diff(c.said, a.said); diff != "" {
				t.Errorf("%s (- want)\n%s", c.user, diff)
			}
		}
		for about, off := range map[string]func(bool){"no rule asks": func(off bool) { a.idle = off }, "the kill switch is on": func(off bool) { table.SetEnabled(!off) }} {
			off(true)
			a.said = nil
			resp := send("limited")
			_ = resp.Body.Close()
			if diff := cmp.Diff([]string{"handles ", "event of limited: success "}, a.said); diff != "" || resp.StatusCode != 202 {
				t.Errorf("while %s: %d (- want)\n%s", about, resp.StatusCode, diff)
			}
			off(false)
		}
	})
}

// What a handler did before it panicked is done: it counts.
func TestAPanicIsAFailureWithItsPermit(t *testing.T) {
	onEach(t, func(t *testing.T, _ *enforce.Table, build func(options, handler) service) {
		a := &admitter{}
		resp := build(options{admit: a, events: a}, func(context.Context, string) int { panic("?") })("7")
		_ = resp.Body.Close()
		want := []string{"asked 7 post.send", "event of 7: failure permit of 7", "done 7 failure"}
		if diff := cmp.Diff(want, a.said); diff != "" || resp.StatusCode != http.StatusInternalServerError {
			t.Errorf("%d (- want)\n%s", resp.StatusCode, diff)
		}
	})
}

// Behind a proxy that asks, a request has one permit. What is no permit is none, and the service asks.
func TestPermitsOfAProxy(t *testing.T) {
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(t.Output(), nil)))
	defer slog.SetDefault(before)
	permit := event.Permit{ID: "of the proxy", At: 7}
	onEach(t, func(t *testing.T, _ *enforce.Table, build func(options, handler) service) {
		a := &admitter{}
		send := build(options{admit: a, permitHeader: true, events: a}, func(ctx context.Context, _ string) int {
			a.note("handles " + httplimit.PermitOf(ctx).ID)
			return http.StatusOK
		})
		own := []string{"asked 7 post.send", "handles permit of 7", "event of 7: success permit of 7", "done 7 success"}
		for about, c := range map[string]struct{ permits, said []string }{
			"one":     {[]string{permit.Header()}, []string{"handles of the proxy", "event of 7: success of the proxy"}},
			"none":    {nil, own},
			"two":     {[]string{permit.Header(), permit.Header()}, own},
			"no JSON": {[]string{"of the client"}, own},
		} {
			a.said = nil
			_ = send("7", c.permits...).Body.Close()
			if diff := cmp.Diff(c.said, a.said); diff != "" {
				t.Errorf("%s (- want)\n%s", about, diff)
			}
		}
	})
}

type events []event.Event

// Emit leaves out what a denial tells.
func (e *events) Emit(ev event.Event) bool {
	if ev.Outcome != event.OutcomeLimited {
		*e = append(*e, ev)
	}
	return true
}

// Of thirty requests as many are handled as the limit allows, each with a permit of its own.
func TestNotOneTooMany(t *testing.T) {
	a := realAdmitter(t, `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: conformance}
spec:
  rules:
    - {name: daily, match: {api: post.send}, limit: 10, per: 1h, strict: true}
`)
	onEach(t, func(t *testing.T, _ *enforce.Table, build func(options, handler) service) {
		var emitted events
		permits, statuses := map[string]int{}, map[int]int{}
		send := build(options{admit: a, events: &emitted}, func(ctx context.Context, _ string) int {
			permits[httplimit.PermitOf(ctx).ID]++
			return http.StatusOK
		})
		for range 30 {
			resp := send("user of " + t.Name())
			_ = resp.Body.Close()
			statuses[resp.StatusCode]++
		}
		if diff := cmp.Diff(map[int]int{200: 10, 429: 20}, statuses); diff != "" {
			t.Errorf("(- want)\n%s", diff)
		}
		for _, e := range emitted {
			if permits[e.Permit.ID] != 1 || e.Permit.At == 0 {
				t.Errorf("an event has the permit %+v", e.Permit)
			}
		}
		if len(permits) != 10 || permits[""] > 0 || len(emitted) != 10 {
			t.Errorf("%d permits and %d events, want 10", len(permits), len(emitted))
		}
	})
}

// realAdmitter asks a Redis in memory, which one partition's owner has opened.
func realAdmitter(t *testing.T, rules string) *admit.Admitter {
	client := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr(), MaxRetries: -1})
	t.Cleanup(func() { _ = client.Close() })
	shards := publish.OnRedis(client, "", 1, 1)
	text, err := json.Marshal(map[string]any{"format": 1, "file": "rules.yaml", "source": rules})
	if err != nil {
		t.Fatal(err)
	}
	if err := shards.PutRules(t.Context(), 1, text); err != nil {
		t.Fatal(err)
	}
	apply := func(offset int64, r protocol.Record) protocol.Applied {
		b := &protocol.Batch{Of: 1, Start: offset, Next: offset + 1, Beat: event.FromTime(time.Now()), Records: []protocol.Record{r}}
		applied, err := shards.Apply(t.Context(), b)
		if err != nil || !applied.OK {
			t.Fatal(applied, err)
		}
		return applied
	}
	first := apply(0, protocol.Record{Version: 1})
	apply(1, protocol.Record{Grants: &protocol.Grants{Run: first.Run, Life: first.Life, Until: event.FromTime(time.Now()) + event.Hour}})

	a, err := admit.New(admit.Config{Redis: client, Poll: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { defer close(ended); _ = a.Run(ctx) }()
	t.Cleanup(func() { stop(); <-ended })
	testrun.Eventually(t, "the rules are read", func() bool { return a.Stats().Version == 1 })
	return a
}
