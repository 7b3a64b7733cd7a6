package envoylimit_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/protobuf/proto"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/verdict"
)

const (
	ok   = rlsv3.RateLimitResponse_OK
	over = rlsv3.RateLimitResponse_OVER_LIMIT
)

// Each descriptor is one check with a status of its own; one that is over its limit is enough.
func TestRateLimitStatuses(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t,
		block("uid", "42", "search.*"), block("ip", "203.0.113.9", "*"), block("attrs.device", "d1", "*"), block("uid", "7", "post.orders"))})
	for _, c := range []struct {
		entries string // of descriptors by |, of entries by blanks
		want    []rlsv3.RateLimitResponse_Code
	}{
		{"uid=42 api=search.query", []rlsv3.RateLimitResponse_Code{over}},
		{"uid=42 api=order.create", []rlsv3.RateLimitResponse_Code{ok}},
		{"uid=42", []rlsv3.RateLimitResponse_Code{ok}}, // its verdict is about searches, and nobody says that this is one
		{"ip=203.0.113.9", []rlsv3.RateLimitResponse_Code{over}},
		{"remote_address=203.0.113.9", []rlsv3.RateLimitResponse_Code{over}},
		{"remote_address=::ffff:203.0.113.9", []rlsv3.RateLimitResponse_Code{over}},
		{"ip=elsewhere", []rlsv3.RateLimitResponse_Code{ok}},
		{"attrs.device=d1 generic_key=x", []rlsv3.RateLimitResponse_Code{over}},
		{"attrs.=d1 device=d1", []rlsv3.RateLimitResponse_Code{ok}},
		{"uid=7 method=POST path=/orders?new=1", []rlsv3.RateLimitResponse_Code{over}},
		{"uid=7 path=/orders", []rlsv3.RateLimitResponse_Code{ok}}, // a GET
		{"uid=7 method=POST path=/orders api=get.orders", []rlsv3.RateLimitResponse_Code{ok}},
		{"uid=41 uid=42 api=search.query", []rlsv3.RateLimitResponse_Code{ok}}, // the first holds
		{"generic_key=x|uid=42 api=search.query|uid=43|uid=42 api=search.suggest", []rlsv3.RateLimitResponse_Code{ok, over, ok, over}},
	} {
		var all []*ratelimitv3.RateLimitDescriptor
		for entries := range strings.SplitSeq(c.entries, "|") {
			all = append(all, descriptor(strings.Fields(entries)...))
		}
		resp := limited(t, conn, all...)
		want := ok
		if slices.Contains(c.want, over) {
			want = over
		}
		if got := codes(resp); !slices.Equal(got, c.want) || resp.GetOverallCode() != want {
			t.Errorf("%s: %v, overall %v; want %v", c.entries, got, resp.GetOverallCode(), c.want)
		}
		if len(resp.GetResponseHeadersToAdd()) > 0 != (want == over) {
			t.Errorf("%s: headers %v", c.entries, resp.GetResponseHeadersToAdd())
		}
	}
	if resp := limited(t, conn); resp.GetOverallCode() != ok || len(resp.GetStatuses()) != 0 {
		t.Errorf("no descriptor: %v", resp)
	}
}

// What Envoy hands to the client is what the middleware would have answered.
func TestRateLimitAnswer(t *testing.T) {
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*"))})
	resp := limited(t, conn, descriptor("uid=42"))
	got := map[string][]string{}
	for _, h := range resp.GetResponseHeadersToAdd() {
		got[h.GetKey()] = append(got[h.GetKey()], h.GetValue())
	}
	wantHeaders(t, got, denial)
	var p enforce.Problem
	if err := json.Unmarshal(resp.GetRawBody(), &p); err != nil || p.Rule != "searches" || p.Status != 429 || p.RetryAfter < 299 {
		t.Errorf("%s: %v", resp.GetRawBody(), err)
	}
	s := resp.GetStatuses()[0]
	if l := s.GetCurrentLimit(); l.GetName() != "searches" || l.GetRequestsPerUnit() != 100 {
		t.Errorf("the limit is %v", l)
	}
	if d := s.GetDurationUntilReset().AsDuration().Seconds(); d < 299 || d > 300 {
		t.Errorf("it is reset in %v s", d)
	}
}

// No caller learns what a rule is called that has no public name, by either protocol; Envoy shows the name of a limit in X-RateLimit-Limit.
func TestRulesWithoutAPublicNameAreNotNamed(t *testing.T) {
	v := block("uid", "42", "*")
	v.Rule, v.Public = "card-testing-detector-v2", ""
	for about, c := range map[string]struct {
		answers enforce.Answers
		name    string
		status  int
	}{
		"by default":      {enforce.Answers{}, "", 429},
		"named for proxy": {enforce.Answers{Status: 403, Title: "Slow down", Rules: map[string]enforce.PublicRule{v.Rule: {Name: "payments"}}}, "payments", 403},
	} {
		conn := dial(t, envoylimit.Config{Decider: tableOf(t, v), Answers: c.answers})
		resp := limited(t, conn, descriptor("uid=42"))
		if name := resp.GetStatuses()[0].GetCurrentLimit().GetName(); name != c.name {
			t.Errorf("%s: the limit is %q, want %q", about, name, c.name)
		}
		authz := checked(t, conn, from("GET", "/", "x-tallygate-uid: 42"))
		if got := int(authz.GetDeniedResponse().GetStatus().GetCode()); got != c.status {
			t.Errorf("%s: ext_authz answers %d, want %d", about, got, c.status)
		}
		for body, status := range map[string]int{string(resp.GetRawBody()): 429, authz.GetDeniedResponse().GetBody(): c.status} {
			var p enforce.Problem
			if err := json.Unmarshal([]byte(body), &p); err != nil || p.Rule != c.name || p.Status != status || c.answers.Title != "" && p.Title != c.answers.Title {
				t.Errorf("%s: %s: %v, want status %d, rule %q", about, body, err, status, c.name)
			}
		}
		if told := resp.String() + string(resp.GetRawBody()) + authz.String(); strings.Contains(told, "card") {
			t.Errorf("%s: %s", about, told)
		}
	}
}

// Of several denials, the answer is about the one that ends last: an earlier return would be denied again.
func TestRateLimitAnswerIsOfTheLastToEnd(t *testing.T) {
	short, long := block("uid", "42", "*"), block("ip", "203.0.113.9", "*")
	short.Rule, long.Rule, long.Public, long.Until = "short", "other", "long", long.Until+event.Hour
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, short, long)})
	for _, order := range [][]string{{"uid=42", "ip=203.0.113.9"}, {"ip=203.0.113.9", "uid=42"}} {
		resp := limited(t, conn, descriptor(order[0]), descriptor(order[1]))
		var p enforce.Problem
		if err := json.Unmarshal(resp.GetRawBody(), &p); err != nil || p.Rule != "long" {
			t.Errorf("%v: %s", order, resp.GetRawBody())
		}
	}
}

// Names of entries are a setting, which wins over what they mean by themselves.
func TestRateLimitEntries(t *testing.T) {
	conn := dial(t, envoylimit.Config{
		Decider: tableOf(t, block("uid", "42", "*"), block("ip", "203.0.113.9", "*"), block("attrs.plan", "free", "*")),
		Entries: map[string]string{"user_id": "uid", "uid": "", "remote_address": "", "plan": "attrs.plan"},
	})
	for entry, want := range map[string]rlsv3.RateLimitResponse_Code{
		"user_id=42": over, "uid=42": ok, "remote_address=203.0.113.9": ok, "ip=203.0.113.9": over, "plan=free": over,
	} {
		if got := limited(t, conn, descriptor(entry)).GetOverallCode(); got != want {
			t.Errorf("%s: %v, want %v", entry, got, want)
		}
	}
}

// A verdict whose action is to log denies nothing, nor does one in shadow mode.
func TestRateLimitWhatDoesNotDeny(t *testing.T) {
	logged, shadow := block("uid", "1", "*"), block("uid", "2", "*")
	logged.Action, shadow.Mode = verdict.ActLog, verdict.Shadow
	conn := dial(t, envoylimit.Config{Decider: tableOf(t, logged, shadow)})
	if resp := limited(t, conn, descriptor("uid=1"), descriptor("uid=2")); resp.GetOverallCode() != ok {
		t.Errorf("%v", resp)
	}
}

// An error would be for Envoy to judge, which is open by default.
func TestTooManyDescriptorsAreDenied(t *testing.T) {
	var refused []forwardauth.Reason
	s, err := envoylimit.New(envoylimit.Config{Decider: tableOf(t), Refused: func(r *forwardauth.Refusal) { refused = append(refused, r.Reason) }})
	if err != nil {
		t.Fatal(err)
	}
	req := &rlsv3.RateLimitRequest{Descriptors: make([]*ratelimitv3.RateLimitDescriptor, 1001)}
	resp, err := s.ShouldRateLimit(t.Context(), req)
	if err != nil || resp.GetOverallCode() != over || len(resp.GetStatuses()) != 1001 || !strings.Contains(string(resp.GetRawBody()), "1001 descriptors") {
		t.Errorf("%v, %v", resp.GetOverallCode(), err)
	}
	if !slices.Equal(refused, []forwardauth.Reason{forwardauth.TooMany}) {
		t.Errorf("counted as %v", refused)
	}
}

// Whatever a peer sends that protobuf can read is answered, with a status for each descriptor.
func FuzzRateLimitRequest(f *testing.F) {
	seed, err := proto.Marshal(&rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{descriptor("uid=42", "ip=203.0.113.9", "path=/a", "attrs.x=y")}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(seed)
	f.Add([]byte{})
	s, err := envoylimit.New(envoylimit.Config{Decider: tableOf(f, block("uid", "42", "*"))})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var req rlsv3.RateLimitRequest
		if proto.Unmarshal(data, &req) != nil {
			return
		}
		resp, err := s.ShouldRateLimit(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		if len(resp.GetStatuses()) != len(req.GetDescriptors()) {
			t.Errorf("%d statuses for %d descriptors", len(resp.GetStatuses()), len(req.GetDescriptors()))
		}
		if _, err := proto.Marshal(resp); err != nil {
			t.Errorf("the answer can't be sent: %v", err)
		}
	})
}
