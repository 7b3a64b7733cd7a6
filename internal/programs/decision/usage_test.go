package decision_test

import (
	"testing"

	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
)

// A report is no check: it is counted by what became of it, from the start with each result.
func TestReportsAreCounted(t *testing.T) {
	events := new(noted)
	r := newRig(t, func(c *decision.Config) { c.Usage.Domain, c.Usage.Events = "shop", events }).blocks(block("calls", "uid", "42"))
	if n, ok := r.metrics()["tallygate_usage_reports_total emitted"]; !ok || n != 0 {
		t.Errorf("before the first report: %v", r.metrics())
	}
	conn, _ := r.grpc(always)
	req := rateLimit("42")
	for _, hits := range []uint32{700, 0} {
		req.HitsAddend = hits
		resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), req)
		if err != nil || (resp.GetOverallCode() == rlsv3.RateLimitResponse_OK) != (hits > 0) {
			t.Errorf("%d hits: %v, %v", hits, resp, err)
		}
	}
	if all, denied := r.server.Checks(); all != 1 || denied != 1 {
		t.Errorf("%d checks, %d denied: a report is one of them", all, denied)
	}
	if m := r.metrics(); m["tallygate_usage_reports_total without_id"] != 1 || m["tallygate_usage_reports_total emitted"] != 0 {
		t.Errorf("%v", m)
	}
	if len(events.all) != 1 || events.all[0].Cost != 700*event.One || events.all[0].UID != "42" {
		t.Errorf("the events are %+v", events.all)
	}
}
