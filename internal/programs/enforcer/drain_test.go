package enforcer

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/redis/go-redis/v9"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A terminal that goes away, or an operator who is used to it, sends SIGHUP: that ends nothing.
func TestSIGHUPEndsNothing(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer func() { _ = client.Close() }()
	servers.Blocklist(t, client, "tallygate")
	s := startSelf(t, server.Addr(), false)
	if err := s.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	for range 20 { // it is asked behind the signal, and again
		if status, body := s.get(s.url("/readyz")); status != http.StatusOK {
			t.Fatalf("after SIGHUP: %d %s", status, body)
		}
	}
	s.stop()
}

// Told to stop, the program first says that it is not ready, and goes on answering for the delay;
// then what is under way finishes. All of it on Unix sockets.
func TestDrain(t *testing.T) {
	t.Parallel()
	server, dir := miniredis.RunT(t), t.TempDir()
	web, rpc := filepath.Join(dir, "http.sock"), filepath.Join(dir, "grpc.sock")
	e, err := parse([]string{"--redis", server.Addr(), "--listen", "unix:" + web, "--grpc-listen", "unix:" + rpc, "--metrics-listen", "127.0.0.1:0",
		"--log-level", "error", "--drain-delay", "500ms"}, io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = e.Redis.Close() }()
	servers.Blocklist(t, e.Redis, e.Prefix)
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()

	transport := &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", web)
	}}
	defer transport.CloseIdleConnections()
	client := described(t, transport)
	status := func(path string) int {
		resp, err := client.Get("http://tallygate" + path)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		_, _ = io.Copy(io.Discard, resp.Body)
		return resp.StatusCode
	}
	conn, err := grpc.NewClient("unix:"+rpc, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	healthy := func() bool {
		resp, err := grpc_health_v1.NewHealthClient(conn).Check(t.Context(), &grpc_health_v1.HealthCheckRequest{})
		return err == nil && resp.GetStatus() == grpc_health_v1.HealthCheckResponse_SERVING
	}
	for end := time.Now().Add(time.Minute); status("/readyz") != http.StatusOK || !healthy(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it is never ready")
		}
	}

	stop()
	for end := time.Now().Add(time.Minute); status("/readyz") == http.StatusOK; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it stays ready")
		}
	}
	select {
	case err := <-ended:
		t.Logf("the delay was over before this test could look: %v", err)
		return
	default:
	}
	// 0: the delay is over.
	if got := status("/v1/forward-auth"); got != http.StatusNoContent && got != 0 {
		t.Errorf("forward-auth in the delay: %d", got)
	}
	if healthy() {
		t.Error("gRPC's health stays good")
	}
	if _, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Domain: "shop"}); err != nil {
		t.Logf("the delay is over: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if got := status("/healthz"); got != 0 {
		t.Errorf("it answers %d after its end", got)
	}
}
