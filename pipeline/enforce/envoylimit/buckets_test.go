package envoylimit_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	grpccodes "google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/verdict"
)

// quotaStream is a stream of Envoy's, and the end of its server.
type quotaStream struct {
	t      *testing.T
	stream grpc.BidiStreamingClient[rlqsv3.RateLimitQuotaUsageReports, rlqsv3.RateLimitQuotaResponse]
	ended  chan struct{}
}

func quotas(t *testing.T, cfg envoylimit.Config) *quotaStream {
	t.Helper()
	s, err := envoylimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	q, g, served := &quotaStream{t: t, ended: make(chan struct{})}, grpc.NewServer(), make(chan error, 1)
	s.RegisterQuotas(g, q.ended)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() { served <- g.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	if q.stream, err = rlqsv3.NewRateLimitQuotaServiceClient(conn).StreamRateLimitQuotas(t.Context()); err != nil {
		t.Fatal(err)
	}
	return q
}

// report sends how many requests of a user Envoy has let through.
func (q *quotaStream) report(user string, n uint64) {
	q.t.Helper()
	usage := &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: &rlqsv3.BucketId{Bucket: map[string]string{"uid": user, "api": "search"}},
		NumRequestsAllowed: n, NumRequestsDenied: 7}
	err := q.stream.Send(&rlqsv3.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{usage}})
	if err != nil {
		q.t.Fatal(err)
	}
}

// told returns the next assignments in short.
func (q *quotaStream) told() string {
	q.t.Helper()
	resp, err := q.stream.Recv()
	if err != nil {
		q.t.Fatal(err)
	}
	var all []string
	for _, a := range resp.GetBucketAction() {
		assigned := a.GetQuotaAssignmentAction()
		lasts := "for ever"
		if ttl := assigned.GetAssignmentTimeToLive(); ttl != nil {
			lasts = fmt.Sprint("for ", ttl.AsDuration().Round(time.Minute))
		}
		all = append(all, fmt.Sprint(a.GetBucketId().GetBucket()["uid"], " ", assigned.GetRateLimitStrategy().GetBlanketRule(), " ", lasts))
	}
	return strings.Join(all, ", ")
}

func (q *quotaStream) want(about, want string) {
	q.t.Helper()
	if got := q.told(); got != want {
		q.t.Errorf("%s: Envoy is told %q, want %q", about, got, want)
	}
}

// A bucket is told at its first report, when a verdict comes, when it lasts longer, and when it is gone; what was let
// through becomes an event, and what was denied none.
func TestBucketsAreKeys(t *testing.T) {
	r := &reports{}
	cfg := r.usage(t)
	cfg.Usage.Quotas = true
	table := tableOf(t, block("uid", "42", "*"))
	cfg.Decider = table
	q := quotas(t, cfg)
	q.report("42", 0)
	q.want("a verdict in force", "42 DENY_ALL for 5m0s")
	q.report("43", 3)
	q.want("none", "43 ALLOW_ALL for ever")

	v := block("uid", "43", "search")
	v.Seq, v.Until = 1, v.Since+event.Hour
	table.Apply(0, []verdict.Verdict{v})
	q.want("a verdict comes", "43 DENY_ALL for 1h0m0s")
	v.Seq, v.Until = 2, v.Since+2*event.Hour
	table.Apply(0, []verdict.Verdict{v})
	q.want("it lasts longer", "43 DENY_ALL for 2h0m0s")
	v.Seq, v.State = 3, verdict.Clear
	table.Apply(0, []verdict.Verdict{v})
	q.want("it is gone", "43 ALLOW_ALL for ever")
	table.SetEnabled(false)
	q.want("a kill switch", "42 ALLOW_ALL for ever")

	q.report("44", 2)
	q.want("in the same stream", "44 ALLOW_ALL for ever")
	want := []string{`{"uid":"43","api":"search","outcome":"success","cost":3}`, `{"uid":"44","api":"search","outcome":"success","cost":2}`, "without_id", "without_id"}
	if diff := cmp.Diff(want, r.said()); diff != "" {
		t.Error(diff)
	}
	close(q.ended)
	if _, err := q.stream.Recv(); status.Code(err) != grpccodes.Unavailable {
		t.Errorf("when the server stops, the stream ends with %v", err)
	}
}

// Reports of a bucket have no ids: an entry that is one in other requests would make all of them one event.
func TestReportsOfABucketCountEach(t *testing.T) {
	r := &reports{}
	cfg := r.usage(t)
	cfg.Usage.Quotas = true
	q := quotas(t, cfg)
	for range 2 {
		id := &rlqsv3.BucketId{Bucket: map[string]string{"uid": "42", "api": "search", "id": "one", "permit": "two", "outcome": "limited"}}
		usage := &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{BucketId: id, NumRequestsAllowed: 3}
		err := q.stream.Send(&rlqsv3.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{usage}})
		if err != nil {
			t.Fatal(err)
		}
	}
	q.report("43", 0)
	for !strings.HasPrefix(q.told(), "43") {
		continue
	}
	one := `{"uid":"42","api":"search","outcome":"success","cost":3}`
	if diff := cmp.Diff([]string{one, one, "without_id", "without_id"}, r.said()); diff != "" {
		t.Error(diff)
	}
}

// A stream has so many buckets. A further one is not kept, but counts, and a verdict denies it all the same.
func TestBucketsAreBounded(t *testing.T) {
	r := &reports{}
	cfg := r.usage(t)
	cfg.Usage.Quotas = true
	cfg.Decider = tableOf(t, block("uid", "42", "*"))
	q := quotas(t, cfg)
	all := &rlqsv3.RateLimitQuotaUsageReports{Domain: "shop"}
	for i := range 10_001 {
		all.BucketQuotaUsages = append(all.BucketQuotaUsages, &rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
			BucketId: &rlqsv3.BucketId{Bucket: map[string]string{"uid": fmt.Sprint("u", i), "api": "search"}}})
	}
	if err := q.stream.Send(all); err != nil {
		t.Fatal(err)
	}
	resp, err := q.stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	actions := resp.GetBucketAction()
	if len(actions) != 10_001 || actions[9_999].GetQuotaAssignmentAction() == nil || actions[10_000].GetAbandonAction() == nil {
		t.Errorf("%d actions, the last of which is %v", len(actions), actions[len(actions)-1])
	}
	q.report("42", 3)
	q.want("one beyond, of who is blocked", "42 DENY_ALL for 5m0s")
	if got := r.said(); len(got) != 2 || !strings.Contains(got[0], `"uid":"42"`) {
		t.Errorf("what one beyond let through became %q", got)
	}
}

// What buckets hold is bounded by its size, too.
func TestAllBucketsAreBounded(t *testing.T) {
	r := &reports{}
	cfg := r.usage(t)
	cfg.Usage.Quotas = true
	q := quotas(t, cfg)
	const each = 100 << 10
	long := strings.Repeat("x", each)
	first := func(from int) (kept int) {
		for i := range 400 {
			all := &rlqsv3.RateLimitQuotaUsageReports{Domain: "shop", BucketQuotaUsages: []*rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage{
				{BucketId: &rlqsv3.BucketId{Bucket: map[string]string{"uid": fmt.Sprint(from+i, long), "api": "search"}}}}}
			if err := q.stream.Send(all); err != nil {
				t.Fatal(err)
			}
			resp, err := q.stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if resp.GetBucketAction()[0].GetAbandonAction() == nil {
				kept++
			}
		}
		return kept
	}
	if kept, most := first(0), 64<<20/(3*each); kept == 0 || kept > most {
		t.Errorf("%d buckets are kept, and at most %d may be", kept, most)
	}
	if kept := first(400); kept != 0 {
		t.Errorf("%d more are kept", kept)
	}
}
