package envoylimit

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

// Config configures a Server.
type Config struct {
	Decider forwardauth.Decider // required; *enforce.Table is one

	// Headers identify the client for ext_authz, as for forward-auth. Method and Path are not used:
	// Envoy sends the request's method and path.
	Headers forwardauth.Headers

	// Entries maps the keys of a rate limit descriptor's entries to their meanings: "uid", "ip",
	// "api", "attrs.NAME", or "method" and "path", of which the API is made if no entry is "api".
	// These names mean themselves, and remote_address, Envoy's name of the client's address, is
	// "ip". For reports there are "id", of the event, also called request_id, "outcome", which is else success, and
	// "permit", which the header event.PermitHeader has. Other entries, and those mapped to "", are ignored.
	Entries map[string]string

	// RequireDimensions denies requests that don't identify anyone: no verdict could. In a rate
	// limit request that concerns each such descriptor.
	RequireDimensions bool
	// Answers configures responses to denied requests. RateLimitService has no field for
	// Answers.Status, so Envoy uses its rate_limited_status, 429.
	Answers enforce.Answers
	// Refused is called for each refused request; nil is no call.
	Refused func(*forwardauth.Refusal)

	// Admit and EmitAdmitted ask for permits, as in forwardauth.Config. Envoy passes the permit on to
	// the service in the header event.PermitHeader.
	Admit        enforce.Admitter
	EmitAdmitted bool

	// Usage marks the descriptors that report what has happened, instead of asking.
	Usage Usage
	// Quiet decides on the buckets of RegisterQuotas, four times a second; nil is Decider, which may count that.
	Quiet forwardauth.Decider
}

// Server is both services. Make it with New.
type Server struct {
	authv3.UnimplementedAuthorizationServer
	rlsv3.UnimplementedRateLimitServiceServer

	door    forwardauth.Door
	answers enforce.Answers
	limits  enforce.Answers // of RateLimitService: Envoy denies with 429
	headers forwardauth.Headers
	entries map[string]string
	usage   Usage
	quiet   forwardauth.Decider
}

// New checks cfg.
func New(cfg Config) (*Server, error) {
	s := &Server{
		door: forwardauth.Door{
			Decider: cfg.Decider, RequireDimensions: cfg.RequireDimensions, Refused: cfg.Refused,
			Admit: cfg.Admit, EmitAdmitted: cfg.EmitAdmitted,
		},
		answers: cfg.Answers, limits: cfg.Answers, headers: cfg.Headers.WithDefaults(), usage: cfg.Usage, quiet: cfg.Quiet,
		entries: map[string]string{"remote_address": "ip", "request_id": "id"},
	}
	s.limits.Status, s.limits.UnavailableStatus = http.StatusTooManyRequests, http.StatusTooManyRequests
	if s.quiet == nil {
		s.quiet = cfg.Decider
	}
	var errs []error
	if err := s.headers.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := s.answers.Validate(); err != nil {
		errs = append(errs, err)
	}
	if t, ok := cfg.Decider.(*enforce.Table); cfg.Decider == nil || ok && t == nil {
		errs = append(errs, errors.New("envoylimit: Decider is required"))
	}
	if cfg.Usage.On() && cfg.Usage.Events == nil {
		errs = append(errs, errors.New("envoylimit: Usage needs Events: a report becomes an event"))
	}
	for _, key := range slices.Sorted(maps.Keys(cfg.Entries)) {
		if to := cfg.Entries[key]; to != "" && !known(to) {
			errs = append(errs, fmt.Errorf("envoylimit: the entry %q is %q; want uid, ip, api, method, path, attrs.NAME, id, outcome or permit", key, to))
		}
		s.entries[key] = cfg.Entries[key]
	}
	return s, errors.Join(errs...)
}

// Register adds both services. They take text that is not UTF-8, such as a client may have in its
// path.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	limits, authz := rlsv3.RateLimitService_ServiceDesc, authv3.Authorization_ServiceDesc
	limits.Methods = []grpc.MethodDesc{method(limits.ServiceName, "ShouldRateLimit", (*Server).ShouldRateLimit)}
	authz.Methods = []grpc.MethodDesc{method(authz.ServiceName, "Check", (*Server).Check)}
	to.RegisterService(&limits, s)
	to.RegisterService(&authz, s)
}

// known reports whether an entry may have this meaning.
func known(meaning string) bool {
	switch meaning {
	case "uid", "ip", "api", "method", "path", "id", "outcome", "permit":
		return true
	}
	name, ok := strings.CutPrefix(meaning, "attrs.")
	return ok && name != ""
}
