package gate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/verdict"
)

var (
	allowed = enforce.Decision{Allowed: true}
	denied  = enforce.RefuseAt(event.Day, &verdict.Verdict{Rule: "r", Public: "searches", Action: verdict.ActBlock, Limit: 5 * event.One}, 1500*time.Millisecond)
	permit  = event.Permit{ID: "p", At: 7}
	brought = event.Permit{ID: "brought", At: 7}
	granted = enforce.Admission{Decision: allowed, Permit: permit, Standing: enforce.Standing{Rule: "r", Public: "searches", Limit: 5 * event.One, Remaining: event.One, Reset: time.Minute}}
)

// Each stage of a request has one outcome, and a stage that is behind asks for nothing again.
func TestStages(t *testing.T) {
	for about, c := range map[string]struct {
		r      gate.Request
		do     gate.Do
		status int
		permit string
		after  time.Duration
		header map[string][]string
	}{
		"allowed":                  {r: gate.Request{Decision: allowed}, do: gate.Allow},
		"its turn":                 {r: gate.Request{Decision: denied, Waits: true}, do: gate.Wait},
		"denied by a verdict":      {r: gate.Request{Decision: denied, Asks: true, Permit: brought}, do: gate.Deny, status: 429, after: 2 * time.Second, permit: "brought"},
		"a permit":                 {r: gate.Request{Decision: allowed, Asks: true}, do: gate.Ask},
		"brings one":               {r: gate.Request{Decision: allowed, Asks: true, Permit: brought}, do: gate.Allow, permit: "brought"},
		"granted":                  {r: gate.Request{Decision: allowed, Asks: true, Asked: true, Admission: granted}, do: gate.Allow, permit: "p"},
		"granted, and is told":     {r: gate.Request{Decision: allowed, Asked: true, Admission: granted, Tells: true}, do: gate.Allow, permit: "p", header: map[string][]string{"Ratelimit": {`"searches";r=1;t=60`}, "Ratelimit-Policy": {`"searches";q=5`}}},
		"in doubt":                 {r: gate.Request{Decision: allowed, Asked: true, Admission: enforce.Admission{Decision: enforce.Unknown()}}, do: gate.Deny, status: 503, after: time.Second},
		"a stale table":            {r: gate.Request{Decision: enforce.Unknown()}, do: gate.Deny, status: 503},
		"nobody knows who sent it": {r: gate.Request{Decision: denied, Waits: true, Unclear: "?"}, do: gate.Refuse, status: 400},
	} {
		out := gate.Decide(&enforce.Answers{}, &c.r)
		if out.Do != c.do || out.Status != c.status || (out.Problem != nil) != (c.status > 0) || out.Problem != nil && out.Problem.Status != c.status || out.Permit.ID != c.permit || out.After != c.after {
			t.Errorf("%s: %+v", about, out)
		}
		if after, told := out.Header["Retry-After"]; told != (c.after > 0) || told && after[0] != map[time.Duration]string{time.Second: "1", 2 * time.Second: "2"}[c.after] {
			t.Errorf("%s: Retry-After %q, want %v", about, after, c.after)
		}
		if c.do == gate.Allow && !cmp.Equal(c.header, out.Header) {
			t.Errorf("%s: %v", about, out.Header)
		}
		if (out.Event == event.OutcomeLimited) != (c.do == gate.Deny) {
			t.Errorf("%s: the event's outcome is %q", about, out.Event)
		}
	}
}

// An error of an Admitter is a doubt, and what it answered beside it means nothing.
func TestAnErrorIsADoubt(t *testing.T) {
	r := gate.Request{Decision: allowed, Asks: true, Head: true}
	r.Answered(granted, errors.New("failed"), event.Day)
	if out := gate.Decide(&enforce.Answers{UnavailableStatus: 429}, &r); out.Do != gate.Deny || out.Status != 429 || out.Permit.ID != "" || out.Body() != nil {
		t.Errorf("%+v, %s", out, out.Body())
	}
}

func TestAmbiguousRequestsAreRefused(t *testing.T) {
	for _, c := range []struct {
		r       gate.Request
		unclear bool
	}{
		{gate.Request{API: "a", Dims: []event.Dim{{Name: "uid", Value: "7"}}}, false},
		{gate.Request{API: gate.Ambiguous}, true},
		{gate.Request{API: "a", Dims: []event.Dim{{Name: "uid", Value: "7"}, {Name: "ip", Value: gate.Ambiguous}}}, true},
	} {
		if c.r.Read(); (c.r.Unclear != "") != c.unclear {
			t.Errorf("%+v", c.r)
		}
	}
}
