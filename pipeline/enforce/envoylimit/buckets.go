package envoylimit

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	rlqsv3 "github.com/envoyproxy/go-control-plane/envoy/service/rate_limit_quota/v3"
	typev3 "github.com/envoyproxy/go-control-plane/envoy/type/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
)

const (
	maxBuckets   = 10_000                 // of a stream; further ones are not kept: see report
	lookEvery    = 250 * time.Millisecond // for verdicts that have come, or ended
	bucketIdle   = 10 * time.Minute       // without a report; then it is abandoned until its next request
	doubtLasts   = 10 * time.Second       // of a denial without an end, which is told again in half the time
	bucketsAhead = 16                     // messages of a stream that wait
	bucketSpace  = 64 << 20               // bytes of all streams' buckets, as their ids take them; likewise
)

// RegisterQuotas adds Envoy's rate limit quota service (RLQS v3), which is experimental. A bucket of Envoy's is a
// key: its id has the entries of a descriptor. What Envoy let through becomes an event, with the number of requests as
// its cost, and without an id, so a report that is sent twice counts twice. A verdict denies the bucket until its end,
// and is pushed when it comes, and when it goes. Streams end with ended, as they would delay a stop.
func (s *Server) RegisterQuotas(to grpc.ServiceRegistrar, ended <-chan struct{}) {
	rlqsv3.RegisterRateLimitQuotaServiceServer(to, &quotas{s: s, ended: ended})
}

// quotas is the service.
type quotas struct {
	rlqsv3.UnimplementedRateLimitQuotaServiceServer
	s     *Server
	ended <-chan struct{}
	held  atomic.Int64 // bytes of all streams' buckets
}

// bucket is one of Envoy's.
type bucket struct {
	id       *rlqsv3.BucketId
	said     described
	reported time.Time // most recently

	told    bool // what follows
	denied  bool
	until   time.Time // of the verdict; zero for none
	renewed time.Time // when it was told
}

// StreamRateLimitQuotas implements the service.
func (q *quotas) StreamRateLimitQuotas(stream grpc.BidiStreamingServer[rlqsv3.RateLimitQuotaUsageReports, rlqsv3.RateLimitQuotaResponse]) error {
	ctx := stream.Context()
	reports, failed := make(chan *rlqsv3.RateLimitQuotaUsageReports, bucketsAhead), make(chan error, 1)
	go receive(ctx, stream, reports, failed) // it ends with the stream, which this function's return ends
	buckets := map[string]*bucket{}
	defer func() {
		for name := range buckets {
			q.held.Add(-space(name))
		}
	}()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		var out rlqsv3.RateLimitQuotaResponse
		select {
		case in := <-reports:
			for _, usage := range in.GetBucketQuotaUsages() {
				out.BucketAction = append(out.BucketAction, q.report(buckets, usage)...)
			}
		case <-tick.C:
			out.BucketAction = q.look(buckets)
		case err := <-failed:
			return err
		case <-ctx.Done():
			return ctx.Err()
		case <-q.ended:
			return status.Error(codes.Unavailable, "the server stops")
		}
		if len(out.GetBucketAction()) > 0 {
			if err := stream.Send(&out); err != nil {
				return err
			}
		}
	}
}

// receive hands on what Envoy sends: only so can a stream be told something while Envoy says nothing. It holds a few
// messages, and then Envoy back.
func receive(ctx context.Context, stream grpc.BidiStreamingServer[rlqsv3.RateLimitQuotaUsageReports, rlqsv3.RateLimitQuotaResponse],
	reports chan<- *rlqsv3.RateLimitQuotaUsageReports, failed chan<- error) {
	for {
		in, err := stream.Recv()
		if err != nil {
			failed <- err
			return
		}
		select {
		case reports <- in:
		case <-ctx.Done():
			return
		}
	}
}

// report takes what Envoy reports of a bucket, and returns what it is to be told at once. A bucket for which there is no
// space is not kept: it counts and is denied all the same, but nothing is pushed to it.
func (q *quotas) report(buckets map[string]*bucket, usage *rlqsv3.RateLimitQuotaUsageReports_BucketQuotaUsage) []*rlqsv3.RateLimitQuotaResponse_BucketAction {
	name := bucketName(usage.GetBucketId())
	b, kept := buckets[name]
	if !kept {
		b = q.read(usage.GetBucketId())
		if kept = len(buckets) < maxBuckets && q.hold(name); kept {
			buckets[name] = b
		}
	}
	b.reported = time.Now()
	if n := usage.GetNumRequestsAllowed(); n > 0 {
		q.s.usage.report(b.said, false, n)
	}
	action := q.decide(b)
	if !kept && !b.denied {
		action = b.abandon()
	}
	if action == nil {
		return nil
	}
	return []*rlqsv3.RateLimitQuotaResponse_BucketAction{action}
}

// read makes a bucket of its id. Reports have no ids and no permits: an entry that is one would be that of each.
func (q *quotas) read(id *rlqsv3.BucketId) *bucket {
	var d ratelimitv3.RateLimitDescriptor
	for _, key := range slices.Sorted(maps.Keys(id.GetBucket())) {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: id.GetBucket()[key]})
	}
	b := &bucket{id: id, said: q.s.read(&d)}
	b.said.id, b.said.permit, b.said.outcome = "", "", ""
	return b
}

// look returns what has changed since the buckets were told. It asks the table about each: a subscription to the
// table's changes would have to know which networks, APIs and switches concern a bucket, as a check does.
func (q *quotas) look(buckets map[string]*bucket) (out []*rlqsv3.RateLimitQuotaResponse_BucketAction) {
	for name, b := range buckets {
		if action := q.decide(b); action != nil {
			out = append(out, action)
		} else if !b.denied && time.Since(b.reported) > bucketIdle {
			out = append(out, b.abandon())
			delete(buckets, name)
			q.held.Add(-space(name))
		}
	}
	return out
}

// decide returns an assignment if it is another than the bucket has. One that allows has no end: when a verdict's
// assignment has ended and this server is away, Envoy allows as well, so a block never outlives its end.
func (q *quotas) decide(b *bucket) *rlqsv3.RateLimitQuotaResponse_BucketAction {
	now, d := time.Now(), q.s.quiet.CheckDims(b.said.api, b.said.dims)
	until := d.Until()
	if d.Allowed {
		until = time.Time{}
	}
	stale := b.denied && b.until.IsZero() && now.Sub(b.renewed) > doubtLasts/2
	if b.told && !stale && b.denied == !d.Allowed && b.until.Equal(until) {
		return nil
	}
	b.told, b.denied, b.until, b.renewed = true, !d.Allowed, until, now
	rule, lasts := typev3.RateLimitStrategy_ALLOW_ALL, time.Duration(0)
	if b.denied {
		rule, lasts = typev3.RateLimitStrategy_DENY_ALL, doubtLasts
		if !until.IsZero() {
			lasts = max(until.Sub(now), time.Millisecond)
		}
	}
	a := &rlqsv3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction{
		RateLimitStrategy: &typev3.RateLimitStrategy{Strategy: &typev3.RateLimitStrategy_BlanketRule_{BlanketRule: rule}},
	}
	if lasts > 0 {
		a.AssignmentTimeToLive = durationpb.New(lasts)
	}
	return &rlqsv3.RateLimitQuotaResponse_BucketAction{
		BucketId: b.id, BucketAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_QuotaAssignmentAction_{QuotaAssignmentAction: a},
	}
}

// abandon makes Envoy forget the bucket. At its next request it is a new one, which Envoy reports at once.
func (b *bucket) abandon() *rlqsv3.RateLimitQuotaResponse_BucketAction {
	return &rlqsv3.RateLimitQuotaResponse_BucketAction{BucketId: b.id, BucketAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_AbandonAction_{
		AbandonAction: &rlqsv3.RateLimitQuotaResponse_BucketAction_AbandonAction{},
	}}
}

// hold takes a bucket's space, if there is so much left.
func (q *quotas) hold(name string) bool {
	if q.held.Add(space(name)) <= bucketSpace {
		return true
	}
	q.held.Add(-space(name))
	return false
}

// space is about what a bucket takes: its id, its name, and what was read of it.
func space(name string) int64 { return 512 + 3*int64(len(name)) }

// bucketName is the same for ids with the same entries.
func bucketName(id *rlqsv3.BucketId) string {
	var out strings.Builder
	for _, key := range slices.Sorted(maps.Keys(id.GetBucket())) {
		out.WriteString(key + "\x00" + id.GetBucket()[key] + "\x00")
	}
	return out.String()
}
