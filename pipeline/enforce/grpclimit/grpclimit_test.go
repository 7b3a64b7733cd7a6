package grpclimit

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type events chan event.Event

func (e events) Emit(ev event.Event) bool { e <- ev; return true }

// blocked is a verdict for an hour on a key.
func blocked(dim, value, api string, action verdict.Action) verdict.Verdict {
	at := event.FromTime(time.Now())
	return verdict.Verdict{
		Rule: "health", Public: "checks", Key: []event.Dim{{Name: dim, Value: value}}, Action: action, APIs: []string{api},
		Limit: 10 * event.One, Since: at, Until: at + event.Hour,
	}
}

// serve starts a health server behind the limiter.
func serve(t *testing.T, table *enforce.Table, o Options) healthpb.HealthClient {
	t.Helper()
	return serveWith(t, table, o, health.NewServer())
}

func serveWith(t *testing.T, table *enforce.Table, o Options, handlers healthpb.HealthServer) healthpb.HealthClient {
	t.Helper()
	l, err := New(table, o)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.UnaryInterceptor(l.Unary), grpc.StreamInterceptor(l.Stream))
	healthpb.RegisterHealthServer(server, handlers)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- server.Serve(listener) }()
	conn, err := grpc.NewClient(listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return healthpb.NewHealthClient(conn)
}

func as(ctx context.Context, user string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, "user", user, "accept-language", "de")
}

func TestCallsAreLimited(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	const api = "grpc.health.v1.health."
	table.Replace(0, []verdict.Verdict{
		blocked("uid", "42", api+"check", verdict.ActBlock), blocked("uid", "43", api+"watch", verdict.ActBlock),
		blocked("uid", "44", "*", verdict.ActLog),
	})
	emitted, logged := make(events, 10), 0
	client := serve(t, table, Options{
		UID: Metadata("user"), IP: PeerIP, Attrs: map[string]func(context.Context) string{"kind": func(context.Context) string { return "test" }},
		Answers: enforce.Answers{Rules: map[string]enforce.PublicRule{"health": {Messages: map[string]string{"de": "Genug."}}}},
		Logged:  func(context.Context, string, enforce.Decision) { logged++ },
		Events:  emitted,
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check := func(user string) error {
		_, err := client.Check(as(ctx, user), &healthpb.HealthCheckRequest{})
		return err
	}
	watch := func(user string) error {
		ctx, cancel := context.WithCancel(as(ctx, user))
		defer cancel()
		stream, err := client.Watch(ctx, &healthpb.HealthCheckRequest{})
		if err == nil {
			_, err = stream.Recv()
		}
		return err
	}
	for _, c := range []struct {
		call func(string) error
		user string
		want codes.Code
	}{
		{check, "42", codes.ResourceExhausted}, {watch, "42", codes.OK}, {check, "43", codes.OK}, {watch, "43", codes.ResourceExhausted},
		{check, "44", codes.OK}, {check, "7", codes.OK},
	} {
		if got := status.Code(c.call(c.user)); got != c.want {
			t.Errorf("%s: %v, want %v", c.user, got, c.want)
		}
	}
	if logged != 1 {
		t.Errorf("%d calls were logged, want 1", logged)
	}
	s := status.Convert(check("42"))
	var retry time.Duration
	rule, message := "", ""
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			retry = d.RetryDelay.AsDuration()
		case *errdetails.ErrorInfo:
			rule = d.Metadata["rule"]
		case *errdetails.LocalizedMessage:
			message = d.Locale + " " + d.Message
		}
	}
	if retry < 59*time.Minute || retry > time.Hour || rule != "checks" || message != "de Genug." || s.Message() != "Genug." {
		t.Errorf("retry after %v, rule %q, message %q, %q", retry, rule, message, s.Message())
	}
	seen := map[string]bool{}
	for len(seen) < 4 {
		select {
		case e := <-emitted:
			if err := e.Validate(); err != nil || !e.IP.IsLoopback() || len(e.Attrs) != 3 {
				t.Errorf("%+v: %v", e, err)
			}
			seen[e.UID+" "+e.API] = true
		case <-ctx.Done():
			t.Fatalf("events of %v only", seen)
		}
	}
}

// A probe is neither checked nor emitted.
func TestSkippedCalls(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, []verdict.Verdict{blocked("uid", "42", "*", verdict.ActBlock)})
	emitted := make(events, 10)
	client := serveWith(t, table, Options{UID: Metadata("user"), Events: emitted, EmitDenied: true, Skip: Infrastructure}, notingServer{})
	if _, err := client.Check(as(t.Context(), "42"), &healthpb.HealthCheckRequest{}); err != nil {
		t.Error(err)
	}
	stream, err := client.Watch(as(t.Context(), "42"), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if len(emitted) > 0 {
		t.Errorf("%+v", <-emitted)
	}
	for method, want := range map[string]bool{"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo": true, "/grpc.health.v1.Health/Check": true, "/shop.v1.Health/Check": false} {
		if Infrastructure(method) != want {
			t.Errorf("%s: %v", method, !want)
		}
	}
}

// notingServer answers as it was asked to, and notes what the limiter cannot know.
type notingServer struct {
	healthpb.UnimplementedHealthServer
}

func (notingServer) Check(ctx context.Context, _ *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	enforce.Note(ctx, enforce.Outcome("failure"), enforce.Attr("discounted", event.BoolValue(true)))
	return &healthpb.HealthCheckResponse{}, nil
}

func (notingServer) Watch(_ *healthpb.HealthCheckRequest, s healthpb.Health_WatchServer) error {
	enforce.Note(s.Context(), enforce.Cost(2*event.One), enforce.EventID("o1"))
	return nil
}

func TestHandlersNoteForTheEventOfACall(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	emitted := make(events, 10)
	client := serveWith(t, table, Options{UID: Metadata("user"), Events: emitted}, notingServer{})
	if _, err := client.Check(as(t.Context(), "42"), &healthpb.HealthCheckRequest{}); err != nil {
		t.Fatal(err)
	}
	e := <-emitted
	if v, _ := e.Attr("discounted"); e.Outcome != "failure" || v != event.BoolValue(true) || e.Cost != event.One {
		t.Errorf("%+v", e)
	}
	stream, err := client.Watch(as(t.Context(), "42"), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = stream.Recv()
	if e = <-emitted; e.Outcome != "success" || e.Cost != 2*event.One || e.ID != "o1" {
		t.Errorf("%+v", e)
	}
}

// What is denied here did not happen, whatever the code is.
func TestDeniedCallsAreEmitted(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	table.Replace(0, []verdict.Verdict{blocked("uid", "42", "*", verdict.ActBlock)})
	stale, err := enforce.NewTable(enforce.Config{OnStale: enforce.Closed})
	if err != nil {
		t.Fatal(err)
	}
	for table, code := range map[*enforce.Table]string{table: "ResourceExhausted", stale: "Unavailable"} {
		emitted := make(events, 10)
		client := serve(t, table, Options{UID: Metadata("user"), Events: emitted, EmitDenied: true})
		if _, err := client.Check(as(t.Context(), "42"), &healthpb.HealthCheckRequest{}); status.Code(err).String() != code {
			t.Errorf("%v, want %s", err, code)
		}
		e := <-emitted
		if v, _ := e.Attr("code"); e.Outcome != event.OutcomeLimited || e.UID != "42" || v.Text != code || e.Validate() != nil {
			t.Errorf("%s: %+v, %v", code, e, e.Validate())
		}
	}
}

// A call that is denied carried the rule's own name.
func TestARuleWithoutAPublicNameIsNotNamed(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	v := blocked("uid", "42", "*", verdict.ActBlock)
	v.Rule, v.Public = "card-testing-detector-v2", ""
	table.Replace(0, []verdict.Verdict{v})
	client := serve(t, table, Options{UID: Metadata("user")})
	_, err = client.Check(as(t.Context(), "42"), &healthpb.HealthCheckRequest{})
	s := status.Convert(err)
	if told := s.Proto().String(); s.Code() != codes.ResourceExhausted || strings.Contains(told, "card") {
		t.Error(told)
	}
	for _, detail := range s.Details() {
		if info, ok := detail.(*errdetails.ErrorInfo); ok {
			if rule, named := info.Metadata["rule"]; named {
				t.Errorf("the rule is called %q", rule)
			}
		}
	}
	if _, err := New(table, Options{UID: Metadata("user"), Answers: enforce.Answers{Status: 200}}); err == nil {
		t.Error("who is denied is answered 200")
	}
}

func TestUnavailableWhenStale(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{OnStale: enforce.Closed})
	if err != nil {
		t.Fatal(err)
	}
	client := serve(t, table, Options{UID: Metadata("user")})
	_, err = client.Check(as(t.Context(), "7"), &healthpb.HealthCheckRequest{})
	if s := status.Convert(err); s.Code() != codes.Unavailable || len(s.Details()) > 0 {
		t.Errorf("%v, %v, want UNAVAILABLE before the first snapshot, and no time at which it is over", err, s.Details())
	}
}

func TestNames(t *testing.T) {
	if got := MethodAPI("/shop.v1.Orders/Create"); got != "shop.v1.orders.create" {
		t.Error(got)
	}
	text, err := os.ReadFile("../../../testdata/outcomes.json") // for programs in other languages, too
	if err != nil {
		t.Fatal(err)
	}
	var table struct {
		GRPC map[string]string `json:"grpc"`
	}
	if err := json.Unmarshal(text, &table); err != nil || len(table.GRPC) != int(codes.Unauthenticated)+1 {
		t.Fatalf("%d codes, %v", len(table.GRPC), err)
	}
	for code := codes.OK; code <= codes.Unauthenticated; code++ {
		if got := OutcomeOf(code); got != table.GRPC[code.String()] {
			t.Errorf("%v is %q, want %q", code, got, table.GRPC[code.String()])
		}
	}
	if _, err := New(nil, Options{}); err == nil {
		t.Error("no error for options that name nobody")
	}
}

func TestAttributesThatTheLimiterAddsAreRefused(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"code", "latency_ms"} {
		o := Options{Attrs: map[string]func(context.Context) string{name: func(context.Context) string { return "x" }}}
		if _, err := New(table, o); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A server whose authentication did not come first never denied anybody, and nothing said so.
func TestCallsWithoutAUserAreTold(t *testing.T) {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	var log testrun.Output
	l, err := New(table, Options{UID: Metadata("user"), IP: PeerIP, Logger: log.Logger()})
	if err != nil {
		t.Fatal(err)
	}
	for range 30 {
		_, err := l.Unary(peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 1}}), nil, &grpc.UnaryServerInfo{FullMethod: "/shop.Orders/Get"},
			func(context.Context, any) (any, error) { return nil, nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := log.Count("none of the first requests had a uid, so"); n != 1 {
		t.Errorf("it is told %d times:\n%s", n, log.String())
	}
}
