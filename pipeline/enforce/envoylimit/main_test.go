package envoylimit_test

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"go.uber.org/goleak"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// block is an enforced block of five minutes by a rule that callers know as searches.
func block(dim, value string, apis ...string) verdict.Verdict {
	now := event.FromTime(time.Now())
	return verdict.Verdict{
		Rule: "search-combined", Public: "searches", Key: []event.Dim{{Name: dim, Value: value}}, Action: verdict.ActBlock, APIs: apis,
		Count: 101 * event.One, Limit: 100 * event.One, Since: now, Until: now + 5*event.Minute,
	}
}

func tableOf(t testing.TB, all ...verdict.Verdict) *enforce.Table {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, all)
	return table
}

// dial serves cfg on a port of its own, and connects to it.
func dial(t *testing.T, cfg envoylimit.Config) grpc.ClientConnInterface {
	t.Helper()
	s, err := envoylimit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	g := grpc.NewServer()
	s.Register(g)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Serve(l) }()
	conn, err := grpc.NewClient(l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		g.Stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return conn
}

// descriptor makes one of key=value entries.
func descriptor(entries ...string) *ratelimitv3.RateLimitDescriptor {
	d := &ratelimitv3.RateLimitDescriptor{}
	for _, e := range entries {
		key, value, _ := strings.Cut(e, "=")
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	return d
}

func limited(t *testing.T, conn grpc.ClientConnInterface, descriptors ...*ratelimitv3.RateLimitDescriptor) *rlsv3.RateLimitResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := rlsv3.NewRateLimitServiceClient(conn).ShouldRateLimit(ctx, &rlsv3.RateLimitRequest{Domain: "shop", Descriptors: descriptors, HitsAddend: 5})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.GetStatuses()) != len(descriptors) {
		t.Errorf("%d statuses for %d descriptors", len(resp.GetStatuses()), len(descriptors))
	}
	return resp
}

func checked(t *testing.T, conn grpc.ClientConnInterface, attributes *authv3.AttributeContext) *authv3.CheckResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	resp, err := authv3.NewAuthorizationClient(conn).Check(ctx, &authv3.CheckRequest{Attributes: attributes})
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// from describes a request in Envoy's words, with further NAME: value headers.
func from(method, path string, further ...string) *authv3.AttributeContext {
	headers := map[string]string{":method": method, ":path": path}
	for _, h := range further {
		name, value, _ := strings.Cut(h, ": ")
		headers[name] = value
	}
	return &authv3.AttributeContext{
		Source: &authv3.AttributeContext_Peer{Address: &corev3.Address{Address: &corev3.Address_SocketAddress{
			SocketAddress: &corev3.SocketAddress{Address: "198.51.100.7", PortSpecifier: &corev3.SocketAddress_PortValue{PortValue: 4711}}}}},
		Request: &authv3.AttributeContext_Request{Http: &authv3.AttributeContext_HttpRequest{Method: method, Path: path, Headers: headers}},
	}
}

// want checks that names are there, each once and with the right beginning.
func wantHeaders(t *testing.T, got map[string][]string, want map[string]string) {
	t.Helper()
	for name, begin := range want {
		if v := got[name]; len(v) != 1 || !strings.HasPrefix(v[0], begin) {
			t.Errorf("%s: %q, want one that begins with %q", name, v, begin)
		}
	}
	for name := range got {
		if name != strings.ToLower(name) {
			t.Errorf("HTTP/2 has no header %s", name)
		}
	}
}

var denial = map[string]string{"retry-after": "", "ratelimit": `"searches";r=0`, "content-type": "application/problem+json", "cache-control": "no-store"}

func TestWrongConfigs(t *testing.T) {
	for about, cfg := range map[string]envoylimit.Config{
		"nothing":      {},
		"what is user": {Decider: tableOf(t), Entries: map[string]string{"user_id": "user"}},
		"no name":      {Decider: tableOf(t), Entries: map[string]string{"x": "attrs."}},
	} {
		if _, err := envoylimit.New(cfg); err == nil {
			t.Errorf("%s is accepted", about)
		}
	}
}

func codes(resp *rlsv3.RateLimitResponse) (all []rlsv3.RateLimitResponse_Code) {
	for _, s := range resp.GetStatuses() {
		all = append(all, s.GetCode())
	}
	return slices.Clip(all)
}
