package envoylimit_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
)

func permitOf(who string) string {
	return fmt.Sprintf(`x-tallygate-permit: {"permit":"permit of %s","permit_at":"1970-01-01T00:00:00.000007Z"}`, who)
}

func configOf(t *testing.T, a *permits.Admitter) envoylimit.Config {
	return envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*")), Admit: a}
}

func TestExtAuthzPermits(t *testing.T) {
	left := []string{`ratelimit: "per day";r=3;t=2`, `ratelimit-policy: "per day";q=5`}
	for _, c := range []struct {
		user             string
		change           func(*permits.Admitter, *envoylimit.Config)
		up, removed, out []string // headers: to the service, taken from the client, and back to it
		heard            []string
	}{
		{user: "ok", up: []string{permitOf("ok")}, out: left, heard: []string{"asked post.send of ok", "ok left"}},
		{user: "ok", up: []string{permitOf("ok")}, out: left, heard: []string{"asked post.send of ok", "ok done success"},
			change: func(_ *permits.Admitter, c *envoylimit.Config) { c.EmitAdmitted = true }},
		{user: "none", removed: []string{"x-tallygate-permit"}, heard: []string{"asked post.send of none"}},
		{user: "ok", removed: []string{"x-tallygate-permit"}, change: func(a *permits.Admitter, _ *envoylimit.Config) { a.NoRule = true }},
		{user: "limited", removed: []string{"x-tallygate-permit"}, change: func(_ *permits.Admitter, c *envoylimit.Config) { c.Decider.(*enforce.Table).SetEnabled(false) }},
		{user: "ok", change: func(_ *permits.Admitter, c *envoylimit.Config) { c.Admit = nil }},
	} {
		a := &permits.Admitter{}
		cfg := configOf(t, a)
		if c.change != nil {
			c.change(a, &cfg)
		}
		ok := checked(t, dial(t, cfg), from("POST", "/send", "x-tallygate-uid: "+c.user, "x-tallygate-ip: 192.0.2.1", "x-tallygate-attr-a: "+c.user, permitOf("forged"))).GetOkResponse()
		var up, out []string
		for _, h := range ok.GetHeaders() {
			up = append(up, h.GetHeader().GetKey()+": "+h.GetHeader().GetValue())
			if h.GetAppendAction().String() != "OVERWRITE_IF_EXISTS_OR_ADD" {
				t.Errorf("%v is added to the client's", h)
			}
		}
		for _, h := range ok.GetResponseHeadersToAdd() {
			out = append(out, h.GetHeader().GetKey()+": "+h.GetHeader().GetValue())
		}
		if diff := cmp.Diff([][]string{c.up, c.removed, c.out, c.heard}, [][]string{up, ok.GetHeadersToRemove(), out, a.Heard()}); diff != "" {
			t.Errorf("%s (- want)\n%s", c.user, diff)
		}
	}
}

func TestExtAuthzWithoutAPermit(t *testing.T) {
	for user, want := range map[string][]string{
		"limited": {"429", "90", "asked post.send of limited"}, "doubt": {"503", "1", "asked post.send of doubt"},
		"wrong": {"503", "1", "asked post.send of wrong"}, "42": {"429", "300"}, // a verdict denies
	} {
		a := &permits.Admitter{}
		resp := checked(t, dial(t, configOf(t, a)), from("POST", "/send", "x-tallygate-uid: "+user, "x-tallygate-attr-a: "+user)).GetDeniedResponse()
		after := ""
		for _, h := range resp.GetHeaders() {
			if h.GetHeader().GetKey() == "retry-after" {
				after = h.GetHeader().GetValue()
			}
		}
		got := append([]string{fmt.Sprint(int(resp.GetStatus().GetCode())), after}, a.Heard()...)
		if diff := cmp.Diff(want, got); diff != "" || strings.Contains(resp.String(), "daily") {
			t.Errorf("%s (- want)\n%s%v", user, diff, resp)
		}
	}
}

// of is a descriptor with hits of its own.
func of(uid string, hits uint64) *ratelimitv3.RateLimitDescriptor {
	d := descriptor("uid="+uid, "api=send")
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

func TestRateLimitPermits(t *testing.T) {
	refund := of("back", 3)
	refund.IsNegativeHits = true
	one := func(uid string) *ratelimitv3.RateLimitDescriptor { return descriptor("uid="+uid, "api=send") }
	type all = []*ratelimitv3.RateLimitDescriptor
	for about, c := range map[string]struct {
		of      all
		change  func(*permits.Admitter, *envoylimit.Config)
		up, out []string // headers: to the service, and back to the client
		heard   []string
	}{
		"one":      {of: all{one("ok")}, up: []string{permitOf("ok")}, out: []string{`ratelimit: "per day";r=3;t=2`, `ratelimit-policy: "per day";q=5`}, heard: []string{"asked send of ok: 5", "ok left"}},
		"emitted":  {of: all{one("a"), one("none")}, change: func(_ *permits.Admitter, c *envoylimit.Config) { c.EmitAdmitted = true }, up: []string{permitOf("a")}, out: []string{`ratelimit: "per day";r=4;t=2`, `ratelimit-policy: "per day";q=5`}, heard: []string{"asked send of a: 5", "asked send of none: 5", "a done success"}},
		"two":      {of: all{one("abc"), one("ok"), of("ab", 1)}, up: []string{permitOf("abc"), permitOf("ok"), permitOf("ab")}, out: []string{`ratelimit: "per day";r=2;t=2`, `ratelimit-policy: "per day";q=5`}, heard: []string{"asked send of abc: 5", "asked send of ok: 5", "asked send of ab: 1", "abc left", "ok left", "ab left"}},
		"own hits": {of: all{of("none", 7), of("zero", 0), refund}, heard: []string{"asked send of none: 7"}},
		"huge":     {of: all{of("none", 1<<63)}, heard: []string{"asked send of none: 9007199255"}},
		"idle":     {of: all{one("ok")}, change: func(a *permits.Admitter, _ *envoylimit.Config) { a.NoRule = true }},
		"switched": {of: all{one("limited")}, change: func(_ *permits.Admitter, c *envoylimit.Config) { c.Decider.(*enforce.Table).SetEnabled(false) }},
		"nil":      {of: all{one("ok")}, change: func(_ *permits.Admitter, c *envoylimit.Config) { c.Admit = nil }},
	} {
		a := &permits.Admitter{}
		cfg := configOf(t, a)
		if c.change != nil {
			c.change(a, &cfg)
		}
		resp := limited(t, dial(t, cfg), c.of...)
		var up, out []string
		for _, h := range resp.GetRequestHeadersToAdd() {
			up = append(up, h.GetKey()+": "+h.GetValue())
		}
		for _, h := range resp.GetResponseHeadersToAdd() {
			out = append(out, h.GetKey()+": "+h.GetValue())
		}
		if diff := cmp.Diff([][]string{c.up, c.out, c.heard}, [][]string{up, out, a.Heard()}); diff != "" || resp.GetOverallCode() != ok {
			t.Errorf("%s: %v (- want)\n%s", about, resp, diff)
		}
	}
}

// A request without hits_addend is one hit.
func TestRateLimitWithoutHits(t *testing.T) {
	a := &permits.Admitter{}
	s, err := envoylimit.New(configOf(t, a))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("uid=none")}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"asked  of none: 1"}, a.Heard()); diff != "" {
		t.Error(diff)
	}
}

// The permits of descriptors before the one that is denied are given back, and none is asked for behind it.
func TestRateLimitWithoutAPermit(t *testing.T) {
	for who, want := range map[string]struct {
		after, limit string
		reset        int64
		heard        []string
	}{
		"limited": {"90", "per day", 90, []string{"asked send of ok: 5", "asked send of limited: 5", "ok cancelled"}},
		"doubt":   {"1", "", 0, []string{"asked send of ok: 5", "asked send of doubt: 5", "ok cancelled"}},
		"wrong":   {"1", "", 0, []string{"asked send of ok: 5", "asked send of wrong: 5", "ok cancelled"}},
		"42":      {"300", "searches", 300, nil}, // a verdict denies
	} {
		a := &permits.Admitter{}
		conn := dial(t, configOf(t, a))
		resp := limited(t, conn, descriptor("uid=ok", "api=send"), descriptor("uid="+who, "api=send"), descriptor("uid=none", "api=send"))
		after := ""
		for _, h := range resp.GetResponseHeadersToAdd() {
			if h.GetKey() == "retry-after" {
				after = h.GetValue()
			}
		}
		s := resp.GetStatuses()[1]
		if diff := cmp.Diff([]rlsv3.RateLimitResponse_Code{ok, over, ok}, codes(resp)); diff != "" || resp.GetOverallCode() != over {
			t.Errorf("%s: %v %s", who, resp, diff)
		}
		if after != want.after || s.GetCurrentLimit().GetName() != want.limit || s.GetDurationUntilReset().GetSeconds() != want.reset || len(resp.GetRequestHeadersToAdd()) > 0 {
			t.Errorf("%s: %v", who, resp)
		}
		if diff := cmp.Diff(want.heard, a.Heard()); diff != "" {
			t.Errorf("%s (- want)\n%s", who, diff)
		}
		var p enforce.Problem
		if err := json.Unmarshal(resp.GetRawBody(), &p); err != nil || p.Status != 429 || p.Rule != want.limit {
			t.Errorf("%s: %s: %v", who, resp.GetRawBody(), err)
		}
	}
}

// Envoy that leaves before it is answered does not pass the request on.
func TestPermitsOfWhoLeftAreGivenBack(t *testing.T) {
	for about, ask := range map[string]func(context.Context, *envoylimit.Server) (denied bool, err error){
		"ext_authz": func(ctx context.Context, s *envoylimit.Server) (bool, error) {
			resp, err := s.Check(ctx, &authv3.CheckRequest{Attributes: from("POST", "/send", "x-tallygate-attr-a: ok")})
			return resp.GetDeniedResponse().GetStatus().GetCode() == 503, err
		},
		"rate limit": func(ctx context.Context, s *envoylimit.Server) (bool, error) {
			resp, err := s.ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("uid=ok", "api=post.send")}})
			return resp.GetOverallCode() == over, err
		},
	} {
		ctx, leave := context.WithCancel(t.Context())
		a := &permits.Admitter{Leave: leave}
		s, err := envoylimit.New(configOf(t, a))
		if err != nil {
			t.Fatal(err)
		}
		denied, err := ask(ctx, s)
		if heard := a.Heard(); !denied || err != nil || len(heard) != 2 || heard[1] != "ok cancelled" {
			t.Errorf("%s: %v, %v, %v", about, denied, err, heard)
		}
	}
}
