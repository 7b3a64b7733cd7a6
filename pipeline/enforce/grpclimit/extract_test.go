package grpclimit

import (
	"bytes"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

// Of several values the first counted: a client that added its own in front of the proxy's was somebody else.
func TestSeveralValuesAreRefused(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, []verdict.Verdict{blocked("uid", "42", "*", verdict.ActBlock)})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	call := func(client healthpb.HealthClient, users ...string) codes.Code {
		ctx := ctx
		for _, user := range users {
			ctx = metadata.AppendToOutgoingContext(ctx, "user", user)
		}
		_, err := client.Check(ctx, &healthpb.HealthCheckRequest{})
		return status.Code(err)
	}
	for about, c := range map[string]struct {
		uid  func(context.Context) string
		want codes.Code
	}{
		"Metadata":      {Metadata("user"), codes.InvalidArgument},
		"FirstMetadata": {FirstMetadata("user"), codes.OK},
		"LastMetadata":  {LastMetadata("user"), codes.ResourceExhausted},
	} {
		emitted := make(events, 9)
		client := serve(t, table, Options{UID: c.uid, Events: emitted})
		if got := call(client, "43", "42"); got != c.want || len(emitted) == 1 != (got != codes.InvalidArgument) {
			t.Errorf("%s: %v, want %v; %d events", about, got, c.want, len(emitted))
		}
		if got := call(client, "42"); got != codes.ResourceExhausted {
			t.Errorf("%s, one value: %v", about, got)
		}
	}
}

// PeerIP behind a proxy is the proxy's address, and a verdict on it denies everyone.
func TestClientIPBehindAProxy(t *testing.T) {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	defer slog.SetDefault(before)
	of := ClientIP(netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ff::/48"))
	for about, c := range map[string]struct {
		peer      net.Addr
		forwarded []string
		want      string
	}{
		"no proxy":                          {tcp("192.0.2.1:9"), nil, "192.0.2.1"},
		"a client claims to be another":     {tcp("192.0.2.1:9"), []string{"198.51.100.7"}, "192.0.2.1"},
		"through a proxy":                   {tcp("10.0.0.1:9"), []string{"192.0.2.1"}, "192.0.2.1"},
		"through an IPv6 proxy":             {tcp("[2001:db8:ff::1]:9"), []string{"[2001:db8::7]:80"}, "2001:db8::7"},
		"spoofed, through a proxy":          {tcp("10.0.0.1:9"), []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		"spoofed in a value of its own":     {tcp("10.0.0.1:9"), []string{"198.51.100.7", "192.0.2.1,10.0.0.2"}, "192.0.2.1"},
		"the proxy names no address":        {tcp("10.0.0.1:9"), []string{"192.0.2.1, unknown"}, ""},
		"the proxy names nobody":            {tcp("10.0.0.1:9"), nil, ""},
		"the proxies name each other":       {tcp("10.0.0.1:9"), []string{"10.0.0.3, 10.0.0.2"}, ""},
		"a Unix socket":                     {&net.UnixAddr{Name: "@"}, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		"a Unix socket, and nobody's named": {&net.UnixAddr{Name: "@"}, nil, ""},
	} {
		ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: c.peer})
		ctx = metadata.NewIncomingContext(ctx, metadata.MD{"x-forwarded-for": c.forwarded})
		if got := of(ctx); got != c.want {
			t.Errorf("%s: %q, want %q", about, got, c.want)
		}
		if got := ClientIP()(ctx); got != PeerIP(ctx) {
			t.Errorf("%s, without proxies: %q, want the peer's, %q", about, got, PeerIP(ctx))
		}
	}
	if n := strings.Count(said.String(), "a trusted proxy names no client"); n != 1 {
		t.Errorf("said %d times:\n%s", n, &said)
	}
}

func tcp(text string) net.Addr { return net.TCPAddrFromAddrPort(netip.MustParseAddrPort(text)) }
