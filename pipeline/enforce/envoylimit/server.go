package envoylimit

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	authv3 "github.com/envoyproxy/go-control-plane/envoy/service/auth/v3"
	rlsv3 "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

// Config says what a Server answers from.
type Config struct {
	Decider forwardauth.Decider // required; *enforce.Table is one

	// Headers name who asks, for ext_authz: the same as for forward-auth. The method and the path are the
	// request's own, so Method and Path are not used.
	Headers forwardauth.Headers

	// Entries say what the entries of a rate limit descriptor are, by their keys: "uid", "ip", "api",
	// "attrs.NAME", or "method" and "path", of which the API is made where none is given. These names stand for
	// themselves, and remote_address, which Envoy calls the client's address, is "ip". Other entries are
	// ignored; one that is mapped to "" is, too.
	Entries map[string]string

	// RequireDimensions denies what says nothing of who asks: no verdict could. Of a rate limit request that is each such descriptor.
	RequireDimensions bool
	// Answers says how those who are denied are answered. RateLimitService has no way to say Answers.Status, so Envoy's
	// own (rate_limited_status, 429) holds there.
	Answers enforce.Answers
	// Refused is told of each question that is refused; nil is nobody.
	Refused func(*forwardauth.Refusal)
}

// Server is both services. Make it with New.
type Server struct {
	authv3.UnimplementedAuthorizationServer
	rlsv3.UnimplementedRateLimitServiceServer

	decider forwardauth.Decider
	answers enforce.Answers
	headers forwardauth.Headers
	entries map[string]string
	require bool
	refused func(*forwardauth.Refusal)
}

// New checks cfg.
func New(cfg Config) (*Server, error) {
	s := &Server{decider: cfg.Decider, answers: cfg.Answers, headers: cfg.Headers.WithDefaults(), entries: map[string]string{"remote_address": "ip"},
		require: cfg.RequireDimensions, refused: cfg.Refused}
	if s.refused == nil {
		s.refused = func(*forwardauth.Refusal) {}
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
	for _, key := range slices.Sorted(maps.Keys(cfg.Entries)) {
		if to := cfg.Entries[key]; to != "" && !known(to) {
			errs = append(errs, fmt.Errorf("envoylimit: the entry %q is %q; want uid, ip, api, method, path or attrs.NAME", key, to))
		}
		s.entries[key] = cfg.Entries[key]
	}
	return s, errors.Join(errs...)
}

// Register adds both services.
func (s *Server) Register(to grpc.ServiceRegistrar) {
	rlsv3.RegisterRateLimitServiceServer(to, s)
	authv3.RegisterAuthorizationServer(to, s)
}

// known reports whether an entry may have this meaning.
func known(meaning string) bool {
	switch meaning {
	case "uid", "ip", "api", "method", "path":
		return true
	}
	name, ok := strings.CutPrefix(meaning, "attrs.")
	return ok && name != ""
}
