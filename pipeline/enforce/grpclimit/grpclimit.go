// Package grpclimit puts an enforce.Table in front of a gRPC server. A call that a verdict denies
// ends with RESOURCE_EXHAUSTED, and so does one that gets no permit of a strict limit.
// google.rpc.RetryInfo says when to retry, and google.rpc.ErrorInfo names the rule, if it has a public
// name. A call that is denied because the table is stale, or a strict limit in doubt, ends with
// UNAVAILABLE, and one whose metadata does not say clearly who sent it with INVALID_ARGUMENT.
package grpclimit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/protoadapt"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/gate"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Options configures a Limiter, as httplimit.Options does for HTTP. At least one of UID, IP and
// Attrs is required.
type Options struct {
	// UID returns the user, as your authentication found it; "" is unknown.
	UID func(context.Context) string
	// IP returns the client's address; "" is unknown. ClientIP makes such a function; without a
	// proxy in front, PeerIP is one.
	IP func(context.Context) string
	// Attrs returns attributes by name, for rules whose key has attrs.NAME; "" is absent.
	Attrs map[string]func(context.Context) string
	// API names a method; nil is MethodAPI.
	API func(fullMethod string) string
	// Skip, if set, tells which methods are let in as if there were no limiter: their calls are neither
	// checked nor emitted, and ask for no permit. Infrastructure is one.
	Skip func(fullMethod string) bool
	// Answers has the names and messages of rules that callers are told.
	Answers enforce.Answers
	// MaxDelay bounds a call's wait for its turn, if its verdict's action is throttle: for the verdict's end, and
	// then behind those who came earlier, at the limit's rate. 0 is 1 s, and a negative value never waits. A call
	// whose turn would come later is denied at once.
	MaxDelay time.Duration
	// MaxDelayed bounds the calls that wait at once; 0 is 1,000. More are denied.
	MaxDelayed int
	// MaxDelayedPerKey bounds those of one key and rule; 0 is 100.
	MaxDelayedPerKey int
	// Logged is called for calls that are allowed by a verdict whose action is log; nil is no call.
	Logged func(ctx context.Context, fullMethod string, d enforce.Decision)

	// Logger is warned of what looks like a mistake in the options: see httplimit.Who. nil is slog.Default().
	Logger *slog.Logger

	// Admit, if set, is asked for each call that no verdict denies: an admit.Admitter, for rules with
	// `strict` and `scope: instance`. The permit is in the call's event, and for handlers that emit their
	// own in PermitOf. A stream holds it until it ends.
	Admit enforce.Admitter
	// PermitHeader takes a call's permit from the metadata x-tallygate-permit, and asks for no other. Set
	// it only behind a proxy that asks for permits and replaces the metadata of clients: they could
	// otherwise bring a permit of their own, and no strict limit would be asked.
	PermitHeader bool

	// Events, if set, gets an event for each allowed call after its end: the outcome of OutcomeOf,
	// and the attributes code and latency_ms. A handler that panics has failed. Handlers add to it by
	// enforce.Note.
	Events httplimit.Emitter
	// EmitDenied emits an event for each call that is denied here, with the outcome limited. Rules count these
	// events only where they name that outcome; to others they tell which limit the caller has now. For that some
	// of them suffice, and are emitted also without EmitDenied: see enforce.Denials.
	EmitDenied bool
}

// Limiter has the interceptors.
type Limiter struct {
	door    *httplimit.Door
	o       Options
	brought httplimit.Brought
	who     *httplimit.Who
}

// New returns a Limiter, or an error for a nil table and invalid options.
func New(table *enforce.Table, o Options) (*Limiter, error) {
	door, err := httplimit.NewDoor(table, httplimit.DoorOptions{
		Answers: o.Answers, Admit: o.Admit, Events: o.Events, EmitDenied: o.EmitDenied,
		Throttle: enforce.ThrottleConfig{MaxDelay: o.MaxDelay, MaxDelayed: o.MaxDelayed, MaxDelayedPerKey: o.MaxDelayedPerKey},
	})
	if o.UID == nil && o.IP == nil && len(o.Attrs) == 0 {
		err = errors.Join(err, errors.New("grpclimit: at least one of Options.UID, IP and Attrs is needed"))
	}
	if err != nil {
		return nil, err
	}
	for _, own := range []string{"code", "latency_ms"} {
		if o.Attrs[own] != nil {
			return nil, fmt.Errorf("grpclimit: Options.Attrs[%q]: the limiter adds this attribute to its events itself: choose another name", own)
		}
	}
	if o.API == nil {
		o.API = MethodAPI
	}
	return &Limiter{door: door, o: o, who: httplimit.NewWho(o.Logger, o.UID != nil)}, nil
}

// errPanicked is the status of a call whose handler panics.
var errPanicked = status.Error(codes.Internal, "the handler panicked")

// Unary is a grpc.UnaryServerInterceptor.
func (l *Limiter) Unary(ctx context.Context, request any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (answer any, err error) {
	if l.o.Skip != nil && l.o.Skip(info.FullMethod) {
		return next(ctx, request)
	}
	c, err := l.enter(ctx, info.FullMethod)
	if err != nil {
		return nil, err
	}
	err = errPanicked
	defer func() { c.done(err) }()
	answer, err = next(c.context(ctx), request)
	return answer, err
}

// Stream is a grpc.StreamServerInterceptor. A stream is one call, whatever it carries, and its permit
// is held until it ends.
func (l *Limiter) Stream(server any, stream grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) (err error) {
	if l.o.Skip != nil && l.o.Skip(info.FullMethod) {
		return next(server, stream)
	}
	c, err := l.enter(stream.Context(), info.FullMethod)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { c.done(err) }()
	err = next(server, c.stream(stream))
	return err
}

func (l *Limiter) enter(ctx context.Context, method string) (c call, err error) {
	c = call{l: l, api: l.o.API(method), dims: l.dims(ctx)}
	l.who.Request(c.dims)
	if l.o.PermitHeader {
		c.permit = l.brought.Permit(metadata.ValueFromIncomingContext(ctx, permitMetadata)...)
	}
	q := gate.Request{API: c.api, Dims: c.dims, Permit: c.permit}
	out := l.door.Enter(ctx, &q)
	if q.Decision.Allowed && q.Decision.Rule() != "" && l.o.Logged != nil {
		l.o.Logged(ctx, method, q.Decision)
	}
	switch {
	case out.Do == gate.Refuse:
		return c, status.Error(codes.InvalidArgument, "it is not clear who sends this call: what says so has several values")
	case out.Do == gate.Deny && q.Asked && out.By.Unavailable() && ctx.Err() != nil: // the client left
		return c, status.FromContextError(ctx.Err()).Err()
	case out.Do == gate.Deny:
		if q.Languages = FirstMetadata("accept-language")(ctx); q.Languages != "" { // an allowed call need not look
			out = gate.Decide(&l.o.Answers, &q)
		}
		return c, c.limited(&q, denied(&out))
	}
	if c.permit, c.held = out.Permit, out.Held; l.o.Events != nil {
		c.began = time.Now()
	}
	return c, nil
}

func (l *Limiter) dims(ctx context.Context) (dims []event.Dim) {
	add := func(name, value string) {
		if value != "" {
			dims = append(dims, event.Dim{Name: name, Value: value})
		}
	}
	if l.o.UID != nil {
		add("uid", l.o.UID(ctx))
	}
	if l.o.IP != nil {
		add("ip", l.o.IP(ctx))
	}
	for name, of := range l.o.Attrs {
		add("attrs."+name, of(ctx))
	}
	return dims
}

// denied returns the error that ends a call. Its details are of package google.rpc, which gRPC
// clients and proxies know.
func denied(out *gate.Outcome) error {
	body, retry := out.Problem, &errdetails.RetryInfo{RetryDelay: durationpb.New(out.After)}
	if out.By.Unavailable() {
		if out.After == 0 {
			return status.Error(codes.Unavailable, body.Detail)
		}
		return withDetails(codes.Unavailable, body.Detail, retry)
	}
	why := map[string]string{"action": body.Action}
	if body.Until != "" {
		why["until"] = body.Until
	}
	if body.Rule != "" {
		why["rule"] = body.Rule
	}
	details := []protoadapt.MessageV1{&errdetails.ErrorInfo{Reason: "QUOTA_EXCEEDED", Domain: "tallygate.dev", Metadata: why}}
	if out.After > 0 {
		details = append([]protoadapt.MessageV1{retry}, details...)
	}
	if language := out.Header["Content-Language"]; len(language) > 0 {
		details = append(details, &errdetails.LocalizedMessage{Locale: language[0], Message: body.Detail})
	}
	return withDetails(codes.ResourceExhausted, body.Detail, details...)
}

func withDetails(code codes.Code, message string, details ...protoadapt.MessageV1) error {
	s, err := status.New(code, message).WithDetails(details...)
	if err != nil {
		return status.Error(code, message)
	}
	return s.Err()
}

// OutcomeOf is the outcome of a code: success for OK, denied for PERMISSION_DENIED and UNAUTHENTICATED,
// limited for RESOURCE_EXHAUSTED, failure otherwise.
func OutcomeOf(code codes.Code) string {
	switch code {
	case codes.OK:
		return event.OutcomeSuccess
	case codes.PermissionDenied, codes.Unauthenticated:
		return event.OutcomeDenied
	case codes.ResourceExhausted:
		return event.OutcomeLimited
	}
	return event.OutcomeFailure
}

// Infrastructure is for Options.Skip: it reports whether a method is of the services that probes and tools
// call, health and reflection.
func Infrastructure(fullMethod string) bool {
	return strings.HasPrefix(fullMethod, "/grpc.health.") || strings.HasPrefix(fullMethod, "/grpc.reflection.")
}

// MethodAPI is a method's full name in lower case and with dots: /shop.v1.Orders/Create is
// shop.v1.orders.create.
func MethodAPI(fullMethod string) string {
	api := strings.ToLower(strings.ReplaceAll(strings.TrimPrefix(fullMethod, "/"), "/", "."))
	return api[:min(len(api), event.MaxAPI)]
}
