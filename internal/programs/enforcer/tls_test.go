package enforcer

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// With mutual TLS, neither listener answers a client without a certificate, nor one that speaks no
// TLS; the metrics are not there.
func TestMutualTLSOnBothListeners(t *testing.T) {
	ca := testca.New(t)
	cert, key := ca.Files("enforcer")
	e, err := parse([]string{"--redis", miniredis.RunT(t).Addr(), "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--log-level", "error", "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File()}, io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		_ = e.Redis.Close()
	}()
	known, unknown := ca.Client("someone"), ca.Client("")

	ask := func(config *tls.Config, url string) int {
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get(url)
		if err != nil {
			return 0
		}
		defer resp.Body.Close()
		return resp.StatusCode
	}
	web := e.HTTP.Addr().String()
	for about, c := range map[string]struct{ got, want int }{
		"a known client": {ask(known, "https://"+web+"/v1/forward-auth"), http.StatusNoContent},
		"one without":    {ask(unknown, "https://"+web+"/v1/forward-auth"), 0},
		// What net/http says to it.
		"plain HTTP":            {ask(nil, "http://"+web+"/v1/forward-auth"), http.StatusBadRequest},
		"metrics by the public": {ask(known, "https://"+web+"/metrics"), http.StatusNotFound},
		"a probe at metrics":    {ask(nil, "http://"+e.Metrics.Addr().String()+"/healthz"), http.StatusOK},
		"profiles":              {ask(known, "https://"+web+"/debug/pprof/"), http.StatusNotFound},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", about, c.got, c.want)
		}
	}

	call := func(creds credentials.TransportCredentials) error {
		conn, err := grpc.NewClient(e.GRPC.Addr().String(), grpc.WithTransportCredentials(creds))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		within, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err = rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(within, &rlsv3.RateLimitRequest{Domain: "shop"})
		return err
	}
	if err := call(credentials.NewTLS(known)); err != nil {
		t.Errorf("a known client: %v", err)
	}
	if call(credentials.NewTLS(unknown)) == nil {
		t.Error("a client without a certificate is answered")
	}
	if call(insecure.NewCredentials()) == nil {
		t.Error("a client without TLS is answered")
	}
}
