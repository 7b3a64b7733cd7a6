package console

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/access"
)

// Sessions knows who reads. Package session has those of tokens and of OpenID Connect.
type Sessions interface {
	// Who is the reader of a request, and the token to show to the aggregator on the reader's behalf; known is
	// false if the request has no session.
	Who(r *http.Request) (id access.Identity, token string, known bool)
	// Login answers a request without a session: it leads to where one begins, and back.
	Login(w http.ResponseWriter, r *http.Request)
	// Routes adds the paths where sessions begin and end.
	Routes(mux *http.ServeMux)
}

// everybody is the sessions of a console that needs no credential: it is served on loopback, as the
// aggregator behind it is.
type everybody struct{}

func (everybody) Who(*http.Request) (access.Identity, string, bool) {
	return access.Identity{Role: access.Admin}, "", true
}

func (everybody) Login(http.ResponseWriter, *http.Request) {}

func (everybody) Routes(*http.ServeMux) {}

// knownHost refuses requests under a foreign name while no credential is needed: a page elsewhere could
// have its own name point here (DNS rebinding).
func (s *server) knownHost(r *http.Request) error {
	if _, open := s.sessions.(everybody); !open {
		return nil
	}
	name, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		name = strings.Trim(r.Host, "[]")
	}
	name = strings.ToLower(strings.TrimSuffix(name, "."))
	if name == "localhost" || slices.Contains(s.Hosts, name) {
		return nil
	}
	if ip, err := netip.ParseAddr(name); err == nil && ip.Unmap().IsLoopback() {
		return nil
	}
	return fmt.Errorf("the host %.100q is not one that this console is served under: use localhost, a loopback address, or what --listen says", r.Host)
}
