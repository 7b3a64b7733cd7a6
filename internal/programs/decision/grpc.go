package decision

import (
	"context"
	"time"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"
)

const (
	// Bytes. What is larger is an error, which a proxy that is open takes for a failure: so they are
	// more than Envoy passes on. It takes 60 KiB of headers from a client by default, sends all of them to
	// ext_authz, and the path once more, or the path in several descriptors. A call itself has what
	// Envoy's tracing takes over.
	maxMessage = 1 << 20
	maxHeaders = 128 << 10

	maxStreams = 256      // at once, on one connection
	window     = 64 << 10 // bytes; bounds the memory of a connection that sends garbage
)

// GRPC returns a gRPC server with Envoy's two services, health by ready, and reflection. When ctx
// ends, it tells those who watch its health, because they would delay its stop.
func (s *Server) GRPC(ctx context.Context, ready func() error) *grpc.Server {
	g := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxHeaderListSize(maxHeaders), grpc.MaxConcurrentStreams(maxStreams),
		grpc.StaticStreamWindowSize(window), grpc.StaticConnWindowSize(window),
		grpc.ConnectionTimeout(5*time.Second),
		grpc.KeepaliveParams(keepalive.ServerParameters{MaxConnectionIdle: 10 * time.Minute, Time: time.Minute, Timeout: 10 * time.Second}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
	)
	s.envoy.Register(g)
	if s.cfg.Usage.Quotas {
		s.envoy.RegisterQuotas(g, ctx.Done())
	}
	grpc_health_v1.RegisterHealthServer(g, &health{ready: ready, ended: ctx.Done()})
	reflection.Register(g)
	return g
}

// health is gRPC's health service. Each answer is what ready returns at that moment.
type health struct {
	grpc_health_v1.UnimplementedHealthServer
	ready func() error
	ended <-chan struct{}
}

// healthNames are the services with a health; "" is the server's.
var healthNames = []string{"", rlsv3.RateLimitService_ServiceDesc.ServiceName, authv3.Authorization_ServiceDesc.ServiceName}

func (h *health) status(service string) (grpc_health_v1.HealthCheckResponse_ServingStatus, bool) {
	for _, name := range healthNames {
		if name == service {
			if h.ready() != nil {
				return grpc_health_v1.HealthCheckResponse_NOT_SERVING, true
			}
			return grpc_health_v1.HealthCheckResponse_SERVING, true
		}
	}
	return grpc_health_v1.HealthCheckResponse_SERVICE_UNKNOWN, false
}

// Check implements the health service.
func (h *health) Check(_ context.Context, req *grpc_health_v1.HealthCheckRequest) (*grpc_health_v1.HealthCheckResponse, error) {
	now, ok := h.status(req.GetService())
	if !ok {
		return nil, status.Error(codes.NotFound, "no such service")
	}
	return &grpc_health_v1.HealthCheckResponse{Status: now}, nil
}

// watchEvery is the interval at which a Watch checks for changes.
const watchEvery = 250 * time.Millisecond

// Watch implements the health service.
func (h *health) Watch(req *grpc_health_v1.HealthCheckRequest, stream grpc.ServerStreamingServer[grpc_health_v1.HealthCheckResponse]) error {
	told := grpc_health_v1.HealthCheckResponse_ServingStatus(-1)
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	for {
		if now, _ := h.status(req.GetService()); now != told {
			if err := stream.Send(&grpc_health_v1.HealthCheckResponse{Status: now}); err != nil {
				return err
			}
			told = now
		}
		select {
		case <-stream.Context().Done():
			return stream.Context().Err()
		case <-h.ended:
			_ = stream.Send(&grpc_health_v1.HealthCheckResponse{Status: grpc_health_v1.HealthCheckResponse_NOT_SERVING})
			return status.Error(codes.Unavailable, "the server stops")
		case <-tick.C:
		}
	}
}
