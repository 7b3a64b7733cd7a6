package grpclimit

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/internal/rig/permits"
	"github.com/tallygate/tallygate/verdict"
)

// admitter hears of events, too.
type admitter struct{ permits.Admitter }

// Emit notes the event: it goes before the permit is given back.
func (a *admitter) Emit(e event.Event) bool {
	a.Note("event of " + e.UID + ": " + e.Outcome + " " + e.Permit.ID)
	return true
}

// handlers are those of calls that have permits.
type handlers struct {
	healthpb.UnimplementedHealthServer
	a *admitter
}

func (h handlers) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	h.a.Note("handles " + PermitOf(ctx).ID)
	if user := Metadata("user")(ctx); user == "fails" {
		return nil, status.Error(codes.Internal, "failed")
	}
	return &healthpb.HealthCheckResponse{}, nil
}

// Watch runs until the client has left.
func (h handlers) Watch(_ *healthpb.HealthCheckRequest, stream grpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	h.a.Note("streams " + PermitOf(stream.Context()).ID)
	if err := stream.Send(&healthpb.HealthCheckResponse{}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func fresh(t *testing.T, verdicts ...verdict.Verdict) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, verdicts)
	return table
}

func TestPermitsAreAskedForBehindTheTable(t *testing.T) {
	const api = "grpc.health.v1.health.check"
	a := &admitter{}
	table := fresh(t, blocked("uid", "blocked", "*", verdict.ActBlock), blocked("uid", "logged", "*", verdict.ActLog))
	client := serveWith(t, table, Options{UID: Metadata("user"), Admit: a, Events: a}, handlers{a: a})
	for _, c := range []struct {
		user  string
		want  codes.Code
		retry time.Duration
		heard []string
	}{
		{"blocked", codes.ResourceExhausted, time.Hour, []string{"event of blocked: limited "}},
		{"limited", codes.ResourceExhausted, 90 * time.Second, []string{"asked " + api + " of limited", "event of limited: limited "}},
		{"doubt", codes.Unavailable, time.Second, []string{"asked " + api + " of doubt", "event of doubt: limited "}},
		{"wrong", codes.Unavailable, time.Second, []string{"asked " + api + " of wrong", "event of wrong: limited "}},
		{"none", codes.OK, 0, []string{"asked " + api + " of none", "handles ", "event of none: success "}},
		{"logged", codes.OK, 0, []string{"asked " + api + " of logged", "handles permit of logged", "event of logged: success permit of logged", "logged done success"}},
		{"fails", codes.Internal, 0, []string{"asked " + api + " of fails", "handles permit of fails", "event of fails: failure permit of fails", "fails done failure"}},
	} {
		_, err := client.Check(as(t.Context(), c.user), &healthpb.HealthCheckRequest{})
		s := status.Convert(err)
		if s.Code() != c.want || retryOf(s) != c.retry || strings.Contains(s.Proto().String(), "detector") {
			t.Errorf("%s: %v, retry after %v, want %v after %v", c.user, s.Proto(), retryOf(s), c.want, c.retry)
		}
		if diff := cmp.Diff(c.heard, a.Heard()); diff != "" {
			t.Errorf("%s (- want)\n%s", c.user, diff)
		}
	}
	a.NoRule = true
	if _, err := client.Check(as(t.Context(), "limited"), &healthpb.HealthCheckRequest{}); err != nil || slices.ContainsFunc(a.Heard(), isQuestion) {
		t.Errorf("a question while no rule asks: %v", err)
	}
	a.NoRule = false
	table.SetEnabled(false)
	if _, err := client.Check(as(t.Context(), "limited"), &healthpb.HealthCheckRequest{}); err != nil || slices.ContainsFunc(a.Heard(), isQuestion) {
		t.Errorf("a question with a kill switch: %v", err)
	}
}

func isQuestion(what string) bool { return strings.HasPrefix(what, "asked ") }

func retryOf(s *status.Status) (after time.Duration) {
	for _, detail := range s.Details() {
		if d, ok := detail.(*errdetails.RetryInfo); ok {
			after = d.RetryDelay.AsDuration()
		}
	}
	return after
}

// A stream's permit was given back when the handler had begun.
func TestAStreamHoldsItsPermitUntilItEnds(t *testing.T) {
	a := &admitter{}
	l, err := New(fresh(t), Options{UID: Metadata("user"), Admit: a, Events: a})
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, leave := context.WithCancel(metadata.NewIncomingContext(t.Context(), metadata.Pairs("user", "7")))
		go func() {
			_ = l.Stream(nil, &streamOf{ctx: ctx}, &grpc.StreamServerInfo{FullMethod: "/a/Watch"}, func(_ any, s grpc.ServerStream) error {
				a.Note("streams " + PermitOf(s.Context()).ID)
				<-s.Context().Done()
				return nil
			})
		}()
		synctest.Wait()
		if diff := cmp.Diff([]string{"asked a.watch of 7", "streams permit of 7"}, a.Heard()); diff != "" {
			t.Errorf("while it is open (- want)\n%s", diff)
		}
		leave()
		synctest.Wait()
		if diff := cmp.Diff([]string{"event of 7: success permit of 7", "7 done success"}, a.Heard()); diff != "" {
			t.Errorf("at its end (- want)\n%s", diff)
		}
	})
}

type streamOf struct {
	grpc.ServerStream
	ctx context.Context
}

func (s *streamOf) Context() context.Context { return s.ctx }

// The stream that a server makes is another one than a test's.
func TestStreamsOfAServerHavePermits(t *testing.T) {
	a := &admitter{}
	client := serveWith(t, fresh(t), Options{UID: Metadata("user"), Admit: a}, handlers{a: a})
	ctx, leave := context.WithCancel(as(t.Context(), "7"))
	defer leave()
	for user, want := range map[string]codes.Code{"7": codes.OK, "limited": codes.ResourceExhausted} {
		stream, err := client.Watch(metadata.NewOutgoingContext(ctx, metadata.Pairs("user", user)), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); status.Code(err) != want {
			t.Errorf("%s: %v, want %v", user, err, want)
		}
	}
	if heard := a.Heard(); !slices.Contains(heard, "streams permit of 7") {
		t.Errorf("the handler has no permit: %v", heard)
	}
}

// What a handler did before it panicked is done: it counts.
func TestAPanicIsAFailureWithItsPermit(t *testing.T) {
	for about, with := range map[string]bool{"with events": true, "without": false} {
		a := &admitter{}
		o := Options{UID: func(context.Context) string { return "7" }, Admit: a}
		want := []string{"asked a.b of 7", "7 done failure"}
		if with {
			o.Events = a
			want = []string{"asked a.b of 7", "event of 7: failure permit of 7", "7 done failure"}
		}
		l, err := New(fresh(t), o)
		if err != nil {
			t.Fatal(err)
		}
		panics := func(call func()) {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: the panic is kept back", about)
				}
			}()
			call()
		}
		panics(func() {
			_, _ = l.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { panic("?") })
		})
		if diff := cmp.Diff(want, a.Heard()); diff != "" {
			t.Errorf("%s, unary (- want)\n%s", about, diff)
		}
		panics(func() {
			_ = l.Stream(nil, &streamOf{ctx: t.Context()}, &grpc.StreamServerInfo{FullMethod: "/a/B"}, func(any, grpc.ServerStream) error { panic("?") })
		})
		if diff := cmp.Diff(want, a.Heard()); diff != "" {
			t.Errorf("%s, stream (- want)\n%s", about, diff)
		}
	}
}

func TestACallThatIsLeftGetsNoPermit(t *testing.T) {
	l, err := New(fresh(t), Options{UID: func(context.Context) string { return "left" }, Admit: &admitter{}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, leave := context.WithCancel(t.Context())
	leave()
	_, err = l.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { t.Error("it is handled"); return nil, nil })
	if status.Code(err) != codes.Canceled {
		t.Errorf("%v, want CANCELED", err)
	}
}

// A call that was denied in line had asked for a permit, which nothing used.
func TestPermitsAreAskedForWhenACallsTurnHasCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		v := blocked("uid", "7", "*", verdict.ActThrottle)
		v.Until, v.Limit, v.Per = v.Since+event.Second, 10*event.One, event.Second
		a := &admitter{}
		l, err := New(fresh(t, v), Options{UID: func(context.Context) string { return "7" }, Admit: a, MaxDelay: 2 * time.Second, MaxDelayed: 1})
		if err != nil {
			t.Fatal(err)
		}
		call := func() error {
			_, err := l.Unary(t.Context(), nil, &grpc.UnaryServerInfo{FullMethod: "/a/B"}, func(context.Context, any) (any, error) { return 1, nil })
			return err
		}
		waits := make(chan error, 1)
		go func() { waits <- call() }()
		synctest.Wait()
		if err := call(); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("behind one that waits: %v", err)
		}
		if heard := a.Heard(); len(heard) > 0 {
			t.Errorf("asked before its turn: %v", heard)
		}
		if err := <-waits; err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff([]string{"asked a.b of 7", "7 done success"}, a.Heard()); diff != "" {
			t.Errorf("(- want)\n%s", diff)
		}
	})
}

// Behind a proxy that asks, a call has one permit, and its service asks for no second one. What is no
// permit is none: it is logged once, and the service asks.
func TestPermitsOfAProxy(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	permit := event.Permit{ID: "of the proxy", At: 7}
	for _, asks := range []bool{false, true} {
		a := &admitter{}
		o := Options{UID: Metadata("user"), PermitHeader: true, Events: a}
		without := []string{"handles ", "event of 7: success "}
		if asks {
			o.Admit = a
			without = []string{"asked grpc.health.v1.health.check of 7", "handles permit of 7", "event of 7: success permit of 7", "7 done success"}
		}
		client := serveWith(t, fresh(t), o, handlers{a: a})
		for about, c := range map[string]struct {
			headers, heard []string
		}{
			"one":       {[]string{permit.Header()}, []string{"handles of the proxy", "event of 7: success of the proxy"}},
			"none":      {nil, without},
			"two":       {[]string{permit.Header(), permit.Header()}, without},
			"no JSON":   {[]string{"of the client"}, without},
			"no permit": {[]string{`{"permit":""}`}, without},
		} {
			ctx := as(t.Context(), "7")
			for _, h := range c.headers {
				ctx = metadata.AppendToOutgoingContext(ctx, event.PermitHeader, h)
			}
			if _, err := client.Check(ctx, &healthpb.HealthCheckRequest{}); err != nil {
				t.Errorf("%s: %v", about, err)
			}
			if diff := cmp.Diff(c.heard, a.Heard()); diff != "" {
				t.Errorf("%s, asks itself: %v (- want)\n%s", about, asks, diff)
			}
		}
	}
	if n := strings.Count(log.String(), "a permit that is none"); n != 2 {
		t.Errorf("two limiters log %d times:\n%s", n, &log)
	}
}
