package decision_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/testing/apitest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(apitest.Complete(m, apidocs.Enforcer,
		"GET /healthz", "GET /readyz", "GET /openapi.json", "GET /v1/status", // of the program
		"POST /v1/admit 503", "GET /v1/blocklist 503", // where thousands of permits are held, and pages take seconds
	))
}

// grpc serves the rig on a port of its own until the test ends or stop is called.
func (r *rig) grpc(ready func() error) (conn *grpc.ClientConn, stop func()) {
	r.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- decision.ServeGRPC(ctx, l, r.server.GRPC(ctx, ready)) }()
	if conn, err = grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials())); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		cancel()
		_ = conn.Close()
		if err := <-ended; err != nil {
			r.t.Errorf("a stop is no error: %v", err)
		}
	})
	return conn, cancel
}

func always() error { return nil }

func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

func rateLimit(uid string) *rlsv3.RateLimitRequest {
	return &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: []*ratelimitv3.RateLimitDescriptor{
		{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "uid", Value: uid}, {Key: "api", Value: "search.query"}}}}}
}

// One table answers every protocol alike, and every check is counted.
func TestOneDecisionForAllProtocols(t *testing.T) {
	r := newRig(t).blocks(block("r", "uid", "42", only("search.query")))
	conn, _ := r.grpc(always)
	for uid, denied := range map[string]bool{"42": true, "43": false} {
		limit, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within(t), rateLimit(uid))
		if err != nil || (limit.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT) != denied {
			t.Errorf("rate limit of %s: %v, %v", uid, limit, err)
		}
		headers := map[string]string{"x-tallygate-uid": uid, "x-tallygate-api": "search.query"}
		authz, err := authv3.NewAuthorizationClient(conn).Check(within(t), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
			Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/", Headers: headers}}}})
		if err != nil || (authz.GetDeniedResponse() != nil) != denied {
			t.Errorf("ext_authz of %s: %v, %v", uid, authz, err)
		}
		for _, path := range []string{"/v1/forward-auth", "/v1/ext-authz/x", "/v1/ext-authz//x/../y"} {
			resp := r.do(mustRequest(t, http.MethodGet, path, "X-Tallygate-Uid: "+uid, "X-Tallygate-Api: search.query"))
			if (resp.StatusCode == http.StatusTooManyRequests) != denied || (resp.StatusCode/100 == 2) == denied {
				t.Errorf("%s of %s: %s", path, uid, resp.Status)
			}
		}
		if a := r.check(`{"uid": "` + uid + `", "api": "search.query"}`); a.Allowed == denied {
			t.Errorf("check of %s: %+v", uid, a)
		}
	}
	families, err := r.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "tallygate_checks_total" {
			for _, m := range f.GetMetric() {
				if n := m.GetCounter().GetValue(); n != 6 {
					t.Errorf("%v are %v, want 6", m.GetLabel(), n)
				}
			}
		}
	}
}

// What gRPC's health says is what /readyz says, also to those who watch it.
func TestGRPCHealth(t *testing.T) {
	r := newRig(t)
	var ready atomic.Bool
	conn, _ := r.grpc(func() error {
		if !ready.Load() {
			return errors.New("not yet")
		}
		return nil
	})
	client := grpc_health_v1.NewHealthClient(conn)
	want := func(service string, want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		resp, err := client.Check(within(t), &grpc_health_v1.HealthCheckRequest{Service: service})
		if err != nil || resp.GetStatus() != want {
			t.Errorf("%q: %v, %v, want %v", service, resp, err, want)
		}
	}
	watch, err := client.Watch(within(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	watched := func(want grpc_health_v1.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if resp, err := watch.Recv(); err != nil || resp.GetStatus() != want {
			t.Errorf("watched %v, %v, want %v", resp, err, want)
		}
	}
	services := []string{"", "envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization"}
	watched(grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	for _, s := range services {
		want(s, grpc_health_v1.HealthCheckResponse_NOT_SERVING)
	}
	ready.Store(true)
	watched(grpc_health_v1.HealthCheckResponse_SERVING)
	for _, s := range services {
		want(s, grpc_health_v1.HealthCheckResponse_SERVING)
	}
	if _, err := client.Check(within(t), &grpc_health_v1.HealthCheckRequest{Service: "nobody"}); status.Code(err) != codes.NotFound {
		t.Errorf("an unknown service: %v", err)
	}
}

func TestGRPCReflection(t *testing.T) {
	conn, _ := newRig(t).grpc(always)
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(within(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	resp, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range resp.GetListServicesResponse().GetService() {
		names = append(names, s.GetName())
	}
	for _, want := range []string{"envoy.service.ratelimit.v3.RateLimitService", "envoy.service.auth.v3.Authorization", "grpc.health.v1.Health"} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not among %v", want, names)
		}
	}
	_ = stream.CloseSend()
}

// A message that is larger than any proxy's is refused, and the connection goes on.
func TestGRPCMessagesAreBounded(t *testing.T) {
	conn, _ := newRig(t).grpc(always)
	client := rlsv3.NewRateLimitServiceClient(conn)
	if _, err := client.ShouldRateLimit(within(t), rateLimit(strings.Repeat("x", 2<<20))); status.Code(err) != codes.ResourceExhausted {
		t.Errorf("2 MiB: %v", err)
	}
	if _, err := client.ShouldRateLimit(within(t), rateLimit("42")); err != nil {
		t.Errorf("the next one: %v", err)
	}
}

// A server that is told to stop tells those who watch its health, and does not wait for them.
func TestGRPCStops(t *testing.T) {
	conn, stop := newRig(t).grpc(always)
	watch, err := grpc_health_v1.NewHealthClient(conn).Watch(within(t), &grpc_health_v1.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		t.Fatalf("%v, %v", resp, err)
	}
	stop()
	if resp, err := watch.Recv(); err != nil || resp.GetStatus() != grpc_health_v1.HealthCheckResponse_NOT_SERVING {
		t.Errorf("%v, %v", resp, err)
	}
	if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
		t.Errorf("the watch ends with %v", err)
	}
}

// What is larger than a server reads is an error, which an Envoy that is open lets in. It passes on up to
// 60 KiB of a client's headers, and a path in each of its descriptors.
func TestGRPCTakesWhatEnvoyPassesOn(t *testing.T) {
	conn, _ := newRig(t).blocks(block("r", "uid", "42")).grpc(always)
	long := strings.Repeat("x", 60<<10)
	ctx := metadata.AppendToOutgoingContext(within(t), "tracestate", long)
	req := &rlsv3.RateLimitRequest{Domain: "shop"}
	for range 10 {
		req.Descriptors = append(req.Descriptors, &ratelimitv3.RateLimitDescriptor{Entries: []*ratelimitv3.RateLimitDescriptor_Entry{{Key: "uid", Value: "42"}, {Key: "path", Value: "/" + long}}})
	}
	limit, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, req)
	if err != nil || limit.GetOverallCode() != rlsv3.RateLimitResponse_OVER_LIMIT {
		t.Errorf("the rate limit service: %v, %v", limit.GetOverallCode(), err)
	}
	authz, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: &authv3.AttributeContext{
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: "GET", Path: "/" + long,
			Headers: map[string]string{"x-tallygate-uid": "42", ":path": "/" + long, "cookie": long}}}}})
	if err != nil || authz.GetDeniedResponse() == nil {
		t.Errorf("ext_authz: %v, %v", authz, err)
	}
}
