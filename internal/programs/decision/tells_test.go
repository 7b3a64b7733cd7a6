package decision_test

import (
	"fmt"
	"net/http"
	"testing"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
)

// said lists the events since the last call.
func (n *noted) said() (all []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, e := range n.all {
		plan, _ := e.Attr("plan")
		all = append(all, fmt.Sprint(e.API, " ", e.UID, " ", plan.Text, " ", e.Outcome, " ", e.Time != event.NoTime && e.Cost == event.One))
	}
	n.all = nil
	return all
}

func (n *noted) want(t *testing.T, about string, want ...string) {
	t.Helper()
	if got := n.said(); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: the events are %q, want %q", about, got, want)
	}
}

// A customer whom a proxy's answer denies buys a larger plan: of the next request there is an event that says so,
// though it is denied, too.
func TestWhatProxiesDenyTellsALargerPlan(t *testing.T) {
	events := new(noted)
	r := newRig(t, func(c *decision.Config) { c.Denied = events }).blocks(block("calls", "uid", "42"))
	ask := func(user, plan string) int {
		return r.ask("X-Tallygate-Uid: "+user, "X-Tallygate-Api: v1.x", "X-Tallygate-Attr-Plan: "+plan).StatusCode
	}
	if got := []int{ask("42", "free"), ask("42", "free"), ask("43", "free"), ask("42", "pro"), ask("42", "pro")}; fmt.Sprint(got) != "[429 429 204 429 429]" {
		t.Errorf("the answers are %v", got)
	}
	events.want(t, "forward-auth", "v1.x 42 free limited true", "v1.x 42 pro limited true")

	_ = r.do(mustRequest(t, http.MethodGet, "/v1/ext-authz/search/", "X-Tallygate-Uid: 42"))
	conn, _ := r.grpc(always)
	if _, err := authv3.NewAuthorizationClient(conn).Check(within(t), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		ContextExtensions: map[string]string{"uid": "42", "api": "over.grpc"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), rateLimit("42")); err != nil {
		t.Fatal(err)
	}
	events.want(t, "Envoy", "get.search 42  limited true", "over.grpc 42  limited true", "search.query 42  limited true")

	_ = r.check(`{"uid": "42", "api": "other"}`)
	_ = r.send("/v1/check/batch", `{"checks": [{"uid": "42", "api": "batch"}]}`)
	events.want(t, "what programs ask, which emit their own")
}

// A strict limit denies without a verdict, and tells as well.
func TestWhatGetsNoPermitTellsALargerPlan(t *testing.T) {
	p, events := newPermits(t, testRedis(t)), new(noted)
	a := p.admitter()
	r := newRig(t, func(c *decision.Config) { c.Admit, c.AdmitProxies, c.Denied = a, true, events }).blocks()
	for range 5 {
		_ = r.ask("X-Tallygate-Uid: 42", "X-Tallygate-Api: sms.send")
	}
	events.want(t, "of five, two are denied", "sms.send 42  limited true")
}
