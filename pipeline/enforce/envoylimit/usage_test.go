package envoylimit_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
)

// reports collects events, and what became of reports.
type reports struct {
	mu      sync.Mutex
	events  []event.Event
	results []envoylimit.Reported
	full    bool // the queue
}

func (r *reports) Emit(e event.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.full {
		return false
	}
	r.events = append(r.events, e)
	return true
}

// said are the events in short, and the results, since the last call.
func (r *reports) said() (all []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.events {
		if err := e.Validate(); err != nil || e.Time == event.NoTime {
			all = append(all, fmt.Sprint("without a time, or ", err))
		}
		e.Time = event.NoTime
		all = append(all, string(event.AppendJSON(nil, &e)))
	}
	for _, result := range r.results {
		all = append(all, string(result))
	}
	r.events, r.results = nil, nil
	return all
}

// usage is a config in which the domain ai, and an entry of any domain, report. User 42 is blocked.
func (r *reports) usage(t *testing.T) envoylimit.Config {
	return envoylimit.Config{Decider: tableOf(t, block("uid", "42", "*")), RequireDimensions: true, Usage: envoylimit.Usage{
		Domain: "ai", Entries: map[string]string{"usage": "tokens", "kind": "cost"}, Events: r,
		Reported: func(result envoylimit.Reported) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.results = append(r.results, result)
		},
	}}
}

// asked sends a request of a domain; hits of 0 is none.
func asked(t *testing.T, conn grpc.ClientConnInterface, domain string, hits uint32, descriptors ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: domain, HitsAddend: hits, Descriptors: descriptors})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// with is a descriptor with hits of its own.
func with(hits uint64, entries ...string) *ratelimitv3.RateLimitDescriptor {
	d := descriptor(entries...)
	d.HitsAddend = wrapperspb.UInt64(hits)
	return d
}

// Reports of used tokens were taken for questions: denied above the limit, and counted nowhere.
func TestReportsBecomeEvents(t *testing.T) {
	r := &reports{}
	conn := dial(t, r.usage(t))
	for about, c := range map[string]struct {
		domain      string
		hits        uint32
		descriptors []*ratelimitv3.RateLimitDescriptor
		want        []string
	}{
		"by domain": {"ai", 700, []*ratelimitv3.RateLimitDescriptor{descriptor("api=llm.call", "uid=9", "request_id=r1", "attrs.model=m")},
			[]string{`{"id":"r1","uid":"9","api":"llm.call","outcome":"success","cost":700,"attrs":{"model":"m"}}`, "emitted"}},
		"whom a verdict denies": {"ai", 7, []*ratelimitv3.RateLimitDescriptor{descriptor("api=llm.call", "uid=42", "request_id=r1")},
			[]string{`{"id":"r1","uid":"42","api":"llm.call","outcome":"success","cost":7}`, "emitted"}},
		"by entry, in another domain, of its own amount, which may be 0": {"shop", 700, []*ratelimitv3.RateLimitDescriptor{
			with(3, "usage=tokens", "method=POST", "path=/v1/chat", "remote_address=192.0.2.1", "outcome=failure", "id=x"),
			with(0, "kind=cost", "api=a", "uid=9")},
			[]string{`{"id":"x","api":"post.v1.chat","outcome":"failure","cost":3,"ip":"192.0.2.1"}`, `{"uid":"9","api":"a","outcome":"success","cost":0}`,
				"emitted", "without_id"}},
		"no event can be made of it": {"ai", 1, []*ratelimitv3.RateLimitDescriptor{
			descriptor("uid=9"), descriptor("api=llm.call"), {Entries: descriptor("uid=9", "api=a").GetEntries(), IsNegativeHits: true},
			with(math.MaxUint64, "uid=9", "api=a"), with(uint64(event.MaxDecimal/event.One)+1, "uid=9", "api=a")},
			[]string{"no_api", "no_key", "negative", "too_large", "too_large"}},
		"the most that an event can have": {"ai", 0, []*ratelimitv3.RateLimitDescriptor{with(uint64(event.MaxDecimal/event.One), "uid=9", "api=a", "id=x")},
			[]string{`{"id":"x","uid":"9","api":"a","outcome":"success","cost":9223372036854}`, "emitted"}},
		"with the permit that it was admitted by": {"ai", 5, []*ratelimitv3.RateLimitDescriptor{
			descriptor("api=a", "uid=9", "id=x", `permit={"permit":"~p","permit_at":"2026-11-23T06:52:08Z"}`),
			descriptor("api=a", "uid=9", "id=x", "permit=forged")},
			[]string{`{"id":"x","uid":"9","api":"a","outcome":"success","cost":5,"permit":"~p","permit_at":"2026-11-23T06:52:08Z"}`,
				`{"id":"x","uid":"9","api":"a","outcome":"success","cost":5}`, "emitted", "bad_permit"}},
	} {
		resp := asked(t, conn, c.domain, c.hits, c.descriptors...)
		ok := slices.Repeat([]rlsv3.RateLimitResponse_Code{rlsv3.RateLimitResponse_OK}, len(c.descriptors))
		if resp.GetOverallCode() != rlsv3.RateLimitResponse_OK || !slices.Equal(codes(resp), ok) || len(resp.GetResponseHeadersToAdd()) > 0 {
			t.Errorf("%s: %v", about, resp)
		}
		if diff := cmp.Diff(c.want, r.said()); diff != "" {
			t.Errorf("%s (- want)\n%s", about, diff)
		}
	}
}

// A gateway asks in the domain in which it reports, with an amount of 0 or none: such a request is a question.
func TestQuestionsInTheDomainOfReports(t *testing.T) {
	r := &reports{}
	conn := dial(t, r.usage(t))
	ask := func(want rlsv3.RateLimitResponse_Code, resp *rlsv3.RateLimitResponse) {
		t.Helper()
		if resp.GetOverallCode() != want {
			t.Errorf("%v, want %v", resp, want)
		}
	}
	ask(rlsv3.RateLimitResponse_OVER_LIMIT, asked(t, conn, "ai", 0, descriptor("api=llm.call", "uid=42")))
	ask(rlsv3.RateLimitResponse_OVER_LIMIT, asked(t, conn, "ai", 9, with(0, "api=llm.call", "uid=42")))
	ask(rlsv3.RateLimitResponse_OK, asked(t, conn, "ai", 0, descriptor("api=llm.call", "uid=43")))
	ask(rlsv3.RateLimitResponse_OVER_LIMIT, asked(t, conn, "shop", 9, descriptor("api=llm.call", "uid=42", "usage=requests")))
	if said := r.said(); said != nil {
		t.Errorf("questions become events: %q", said)
	}
	resp := asked(t, conn, "shop", 9, descriptor("api=llm.call", "uid=42"), descriptor("api=llm.call", "uid=42", "usage=tokens", "id=x"))
	if fmt.Sprint(codes(resp)) != "[OVER_LIMIT OK]" || len(r.said()) != 2 {
		t.Errorf("a question beside a report: %v", resp)
	}
}

// Where a strict limit denies a question, it is that one's status that says so, not a report's before it.
func TestAReportBesideAStrictLimit(t *testing.T) {
	r, a := &reports{}, &permits.Admitter{}
	cfg := r.usage(t)
	cfg.Admit = a
	resp := asked(t, dial(t, cfg), "shop", 9, descriptor("api=llm.call", "uid=ok", "usage=tokens", "id=x"), descriptor("api=send", "uid=limited"))
	if heard := a.Heard(); fmt.Sprint(codes(resp)) != "[OK OVER_LIMIT]" || fmt.Sprint(heard) != "[asked send of limited: 9]" {
		t.Errorf("%v, %v", resp, heard)
	}
}

// A report is answered whether Kafka takes its event or not.
func TestReportsThatAreLost(t *testing.T) {
	r := &reports{full: true}
	resp := asked(t, dial(t, r.usage(t)), "ai", 5, descriptor("api=llm.call", "uid=9", "id=x"))
	if resp.GetOverallCode() != rlsv3.RateLimitResponse_OK || !slices.Equal(r.said(), []string{"dropped"}) {
		t.Error(resp)
	}
}

// Rules that sum an attribute get it as a number, in place of what an entry of its name says.
func TestReportsOfAnAttribute(t *testing.T) {
	r := &reports{}
	cfg := r.usage(t)
	cfg.Usage.Attr, cfg.Entries = "tokens", map[string]string{"x-id": "id", "tenant": "attrs.org"}
	asked(t, dial(t, cfg), "ai", 700, descriptor("api=llm.call", "uid=9", "x-id=r1", "attrs.tokens=1", "tenant=acme"))
	want := []string{`{"id":"r1","uid":"9","api":"llm.call","outcome":"success","cost":700,"attrs":{"org":"acme","tokens":700}}`, "emitted"}
	if diff := cmp.Diff(want, r.said()); diff != "" {
		t.Error(diff)
	}
}

func TestReportsNeedSomewhereToGo(t *testing.T) {
	for _, u := range []envoylimit.Usage{{Domain: "ai"}, {Entries: map[string]string{"usage": "tokens"}}} {
		if _, err := envoylimit.New(envoylimit.Config{Decider: tableOf(t), Usage: u}); !strings.Contains(fmt.Sprint(err), "Usage needs Events") {
			t.Errorf("%+v: %v", u, err)
		}
	}
}
