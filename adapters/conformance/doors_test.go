package conformance

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	ratelimitv3 "github.com/envoyproxy/go-control-plane/envoy/extensions/common/ratelimit/v3"
	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/gofiber/fiber/v3"
	"github.com/labstack/echo/v4"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	echoadapter "github.com/tallygate/tallygate/adapters/echo"
	fiberadapter "github.com/tallygate/tallygate/adapters/fiber"
	ginadapter "github.com/tallygate/tallygate/adapters/gin"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/envoylimit"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/enforce/grpclimit"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const (
	address = "192.0.2.1"
	target  = "/send"
)

// reply is a door's answer, as HTTP has it.
type reply struct {
	Status int // 200: the request was let in
	Fields map[string]string
	Body   enforce.Problem
}

// fields are those that a door decides on. Its adapter and its protocol have others.
var fields = []string{"Retry-After", "RateLimit", "RateLimit-Policy", "X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "Content-Language"}

func (r *reply) take(header http.Header) {
	for _, name := range fields {
		if value := header.Get(name); value != "" {
			if r.Fields == nil {
				r.Fields = map[string]string{}
			}
			r.Fields[name] = value
		}
	}
}

// replied reads an HTTP response.
func replied(t *testing.T, q *question, resp *http.Response) (r reply) {
	t.Helper()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	r.Status = resp.StatusCode
	r.take(resp.Header)
	if r.Status < 300 {
		return r
	}
	if resp.Header.Get("Cache-Control") != "no-store" || resp.Header.Get("Content-Type") != enforce.ProblemType {
		t.Errorf("%v", resp.Header)
	}
	r.read(t, q, body)
	return r
}

// read reads a body, which each door writes alike, to the byte.
func (r *reply) read(t *testing.T, q *question, body []byte) {
	t.Helper()
	if q.method == http.MethodHead {
		if len(body) > 0 {
			t.Errorf("a body: %s", body)
		}
		return
	}
	if err := json.Unmarshal(body, &r.Body); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	if again, err := json.Marshal(r.Body); err != nil || !bytes.Equal(body, append(again, '\n')) {
		t.Errorf("%s, want %s: %v", body, again, err)
	}
}

// sent is the question as a request. Proxies say who asks by names of theirs.
func (q *question) sent(user, plan string) *http.Request {
	r := httptest.NewRequest(q.method, target, nil)
	r.RemoteAddr = address + ":4711"
	r.Header[user] = q.users
	for name, value := range map[string]string{plan: q.plan, "Accept-Language": q.languages, event.PermitHeader: q.permit} {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	return r
}

// door asks a question, with an Admitter that hears what becomes of it.
type door func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply

// options are those of a middleware.
func (q *question) options(c *clerk) httplimit.Options {
	o := httplimit.Options{
		UID: httplimit.Header(header), IP: httplimit.ClientIP(), Attrs: map[string]func(*http.Request) string{"plan": httplimit.Header("X-Plan")},
		API: httplimit.RouteAPI, Answers: q.answers, Events: c, EmitDenied: q.emitDenied, PermitHeader: true,
	}
	if q.asks {
		o.Admit = c
	}
	return o
}

func serve(t *testing.T, q *question, h http.Handler) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q.sent(header, "X-Plan"))
	return replied(t, q, w.Result())
}

var methods = []string{http.MethodGet, http.MethodHead, http.MethodPost}

var done = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })

// services are the doors of services: they let in, and emit.
var services = map[string]door{
	"net/http": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		return serve(t, q, httplimit.Middleware(table, q.options(c))(done))
	},
	"chi": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		router := chi.NewRouter()
		router.Use(httplimit.Middleware(table, q.options(c)))
		router.Handle(target, done)
		return serve(t, q, router)
	},
	"echo": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		limit, err := echoadapter.Middleware(table, q.options(c))
		if err != nil {
			t.Fatal(err)
		}
		router := echo.New()
		router.Use(limit)
		router.Any(target, func(c echo.Context) error { return c.NoContent(http.StatusOK) })
		return serve(t, q, router)
	},
	"gin": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		gin.SetMode(gin.TestMode)
		limit, err := ginadapter.Middleware(table, q.options(c))
		if err != nil {
			t.Fatal(err)
		}
		router := gin.New()
		router.Use(limit)
		router.Any(target, func(c *gin.Context) { c.Status(http.StatusOK) })
		return serve(t, q, router)
	},
	"fiber": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		o := fiberadapter.Options{
			UID: fiberadapter.Header(header), IP: func(fiber.Ctx) string { return address }, Attrs: map[string]func(fiber.Ctx) string{"plan": fiberadapter.Header("X-Plan")},
			Answers: q.answers, Events: c, EmitDenied: q.emitDenied, PermitHeader: true,
		}
		if q.asks {
			o.Admit = c
		}
		limit, err := fiberadapter.Middleware(table, o)
		if err != nil {
			t.Fatal(err)
		}
		app := fiber.New()
		app.Use(limit)
		app.Add(methods, target, func(c fiber.Ctx) error { return c.SendStatus(http.StatusOK) })
		resp, err := app.Test(q.sent(header, "X-Plan"), fiber.TestConfig{Timeout: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		return replied(t, q, resp)
	},
	"gRPC": callGRPC,
}

// callGRPC asks an interceptor, whose codes stand for statuses.
func callGRPC(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
	o := grpclimit.Options{
		UID: grpclimit.Metadata("x-user"), IP: func(context.Context) string { return address }, Attrs: map[string]func(context.Context) string{"plan": grpclimit.Metadata("x-plan")},
		Answers: q.answers, Events: c, EmitDenied: q.emitDenied, PermitHeader: true,
	}
	if q.asks {
		o.Admit = c
	}
	l, err := grpclimit.New(table, o)
	if err != nil {
		t.Fatal(err)
	}
	md := metadata.MD{}
	for name, values := range q.sent(header, "X-Plan").Header {
		md.Append(name, values...)
	}
	ctx := metadata.NewIncomingContext(t.Context(), md)
	_, err = l.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: "/" + strings.Replace(q.api(), ".", "/", 1)}, func(context.Context, any) (any, error) { return 1, nil })
	s := status.Convert(err)
	r := reply{Status: map[codes.Code]int{codes.OK: 200, codes.InvalidArgument: 400, codes.ResourceExhausted: 429, codes.Unavailable: 503}[s.Code()], Fields: map[string]string{}}
	r.Body.Detail = s.Message()
	for _, detail := range s.Details() {
		switch d := detail.(type) {
		case *errdetails.RetryInfo:
			r.Fields["Retry-After"] = strconv.FormatInt(d.GetRetryDelay().GetSeconds(), 10)
			r.Body.RetryAfter = d.GetRetryDelay().GetSeconds()
		case *errdetails.ErrorInfo:
			r.Body.Rule, r.Body.Action, r.Body.Until = d.GetMetadata()["rule"], d.GetMetadata()["action"], d.GetMetadata()["until"]
		case *errdetails.LocalizedMessage:
			r.Fields["Content-Language"] = d.GetLocale()
		}
	}
	return r
}

// api is the request's name.
func (q *question) api() string { return httplimit.PathAPI(q.method, target) }

func (q *question) admitter(c *clerk) enforce.Admitter {
	if q.asks {
		return c
	}
	return nil
}

// proxies are the doors of proxies: services behind them emit.
var proxies = map[string]door{
	"forward-auth": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		h, err := forwardauth.New(forwardauth.Config{Decider: table, Answers: q.answers, Admit: q.admitter(c), AllowStatus: 200})
		if err != nil {
			t.Fatal(err)
		}
		return q.forwarded(t, h)
	},
	"ext_authz over HTTP": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		h, err := forwardauth.New(forwardauth.Config{Decider: table, Answers: q.answers, Admit: q.admitter(c)})
		if err != nil {
			t.Fatal(err)
		}
		return q.forwarded(t, h.ExtAuthz(""))
	},
	"ext_authz":  checkByEnvoy,
	"rate limit": limitByEnvoy,
	"decision server": func(t *testing.T, q *question, table *enforce.Table, c *clerk) reply {
		s, err := decision.New(decision.Config{Table: table, Answers: q.answers, AllowStatus: 200, Denied: c})
		if err != nil {
			t.Fatal(err)
		}
		w := httptest.NewRecorder()
		r := q.proxied()
		r.URL.Path = "/v1/forward-auth"
		s.Handler(http.NewServeMux()).ServeHTTP(w, r)
		return replied(t, q, w.Result())
	},
}

// proxied is the question as a proxy asks it.
func (q *question) proxied() *http.Request {
	r := q.sent("X-Tallygate-Uid", "X-Tallygate-Attr-Plan")
	r.Header.Set("X-Tallygate-Ip", address)
	r.Header.Set("X-Forwarded-Method", q.method)
	r.Header.Set("X-Forwarded-Uri", target)
	return r
}

func (q *question) forwarded(t *testing.T, h http.Handler) reply {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, q.proxied())
	return replied(t, q, w.Result())
}

func envoy(t *testing.T, q *question, table *enforce.Table, c *clerk) *envoylimit.Server {
	s, err := envoylimit.New(envoylimit.Config{Decider: table, Answers: q.answers, Admit: q.admitter(c)})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func checkByEnvoy(t *testing.T, q *question, table *enforce.Table, c *clerk) (r reply) {
	asked := &authv3.AttributeContext_HttpRequest{Method: q.method, Path: target, HeaderMap: &corev3.HeaderMap{}}
	for name, values := range q.proxied().Header {
		for _, value := range values {
			asked.HeaderMap.Headers = append(asked.HeaderMap.Headers, &corev3.HeaderValue{Key: strings.ToLower(name), Value: value})
		}
	}
	resp, err := envoy(t, q, table, c).Check(t.Context(), &authv3.CheckRequest{Attributes: &authv3.AttributeContext{Request: &authv3.AttributeContext_Request{Http: asked}}})
	if err != nil {
		t.Fatal(err)
	}
	denied, told := resp.GetDeniedResponse(), http.Header{}
	for _, h := range append(denied.GetHeaders(), resp.GetOkResponse().GetResponseHeadersToAdd()...) {
		told.Set(h.GetHeader().GetKey(), h.GetHeader().GetValue())
	}
	r.take(told)
	if r.Status = 200; denied != nil {
		r.Status = int(denied.GetStatus().GetCode())
		r.read(t, q, []byte(denied.GetBody()))
	}
	return r
}

func limitByEnvoy(t *testing.T, q *question, table *enforce.Table, c *clerk) (r reply) {
	d := &ratelimitv3.RateLimitDescriptor{}
	for key, value := range map[string]string{"uid": slices.Concat(q.users, []string{""})[0], "ip": address, "method": q.method, "path": target, "attrs.plan": q.plan} {
		d.Entries = append(d.Entries, &ratelimitv3.RateLimitDescriptor_Entry{Key: key, Value: value})
	}
	resp, err := envoy(t, q, table, c).ShouldRateLimit(t.Context(), &rlsv3.RateLimitRequest{Descriptors: []*ratelimitv3.RateLimitDescriptor{d}})
	if err != nil {
		t.Fatal(err)
	}
	told := http.Header{}
	for _, h := range resp.GetResponseHeadersToAdd() {
		told.Set(h.GetKey(), h.GetValue())
	}
	r.take(told)
	if r.Status = 200; resp.GetOverallCode() == rlsv3.RateLimitResponse_OVER_LIMIT {
		r.Status = http.StatusTooManyRequests
		r.read(t, q, resp.GetRawBody())
	}
	return r
}
