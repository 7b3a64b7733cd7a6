// Package access decides who may use an HTTP API: by roles that a file gives to tokens and client
// certificates, or, without any, by the address that serves the API. It also refuses requests that
// a web page makes a browser send.
package access

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/base/logonce"
)

// Role is a caller's rights. Each role but Service includes those before it.
type Role int

// The roles. None may do nothing.
const (
	None     Role = iota
	Viewer        // read: explain, lists, hot keys
	Operator      // overrule the rules for a key, and all that Service may
	Admin         // all
	Service       // ask for permits, and end them; nothing else
)

var roleNames = map[Role]string{None: "none", Viewer: "viewer", Operator: "operator", Admin: "admin", Service: "service"}

func (r Role) String() string { return roleNames[r] }

// ParseRole is String's inverse, but knows no "none".
func ParseRole(name string) (Role, bool) {
	for r, n := range roleNames {
		if n == name && r != None {
			return r, true
		}
	}
	return None, false
}

// Identity is a caller's name and role.
type Identity struct {
	Name string // of the credential; "" where none is needed
	Role Role
	By   Credential // what proves it
}

// Credential is a kind of proof of who asks.
type Credential string

// The kinds of credentials.
const (
	Nothing     Credential = ""            // none is needed; or another instance says who asks
	Token       Credential = "token"       // one of the file's
	Certificate Credential = "certificate" // a client's, of TLS
	Issuer      Credential = "issuer"      // a token that an issuer signed
)

// Verifier checks tokens that an issuer has signed.
type Verifier interface {
	// Verify returns what a token says of its holder. An error that is ErrUnavailable says that
	// nobody can tell now; any other one refuses the token.
	Verify(ctx context.Context, token string) (Claims, error)
}

// Claims are an issuer's statements about a token's holder.
type Claims struct {
	Name   string // for the audit
	Groups []string
}

// ErrUnavailable is a Verifier's error for a token that it cannot check now.
var ErrUnavailable = errors.New("tokens of the issuer cannot be checked now: it does not answer; try again soon")

// Config configures a Guard. The zero value admits no caller, unless Addr is loopback.
type Config struct {
	// Tokens is the file that gives roles to tokens and certificates; "" is none. It is reloaded
	// when it changes, also through a symlink somewhere in its path. While it is invalid, the
	// previous contents apply.
	Tokens string

	// Verifier checks tokens that Tokens does not have; nil is none. Tokens gives roles to its groups.
	Verifier Verifier

	// Certificates: the listener's TLS answers only clients whose certificate its CA has signed.
	// Without Tokens, these are viewers; else they are what the file makes of their names.
	Certificates bool

	Open   bool     // without credentials, everybody who reaches the API may do everything
	Addr   net.Addr // where the API is served; nil is not on loopback
	Listen string   // the same as the operator wrote it, HOST:PORT; its host is one that requests may name
	Name   string   // another HOST:PORT by which requests may come, such as through a proxy on this machine; "" is none

	// Peer tells whether a request comes from another instance of this program, and on whose
	// behalf; nil is never. ok false: it does not claim to.
	Peer func(*http.Request) (id Identity, ok bool, err error)

	Logger *slog.Logger // nil is slog.Default()
}

// Guard admits callers with a sufficient role. Make it with New.
type Guard struct {
	cfg         Config
	file        *file // nil: none
	credentials bool
	local       bool
	claims      logonce.Line // of requests to come from another instance, which were not believed
	refused     logonce.Line // tokens of the issuer
}

// New reads the file.
func New(cfg Config) (*Guard, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	g := &Guard{cfg: cfg, local: Loopback(cfg.Addr), credentials: cfg.Tokens != "" || cfg.Certificates}
	if cfg.Open && g.credentials {
		return nil, errors.New("--open-api requires no credentials: remove it, or --tokens and --tls-client-ca")
	}
	if cfg.Verifier != nil && cfg.Tokens == "" {
		return nil, errors.New("--oidc-issuer needs --tokens FILE with entries such as {name: fraud, role: operator, group: tallygate-fraud}")
	}
	if cfg.Tokens != "" {
		var err error
		if g.file, err = openFile(cfg.Tokens, cfg.Logger); err != nil {
			return nil, err
		}
	}
	return g, nil
}

// Credentials reports whether somebody must show any.
func (g *Guard) Credentials() bool { return g.credentials }

// Exposed returns an error if the API would be served without credentials beyond this machine, and
// no option allows that.
func (g *Guard) Exposed() error {
	if g.credentials || g.local || g.cfg.Open {
		return nil
	}
	return fmt.Errorf("%w, or let everybody who reaches it command with --open-api", Exposed("--listen "+g.cfg.Listen, "the API", "127.0.0.1:8081"))
}

// Exposed is the error of what an option would have served beyond this machine without credentials;
// such is an address where it may be.
func Exposed(option, what, such string) error {
	return fmt.Errorf("%s: without credentials %s is served on loopback only, such as %s. "+
		"Give roles to tokens or client certificates with --tokens FILE", option, what, such)
}

// Loopback reports whether only programs of this machine reach an address.
func Loopback(addr net.Addr) bool {
	switch a := addr.(type) {
	case *net.UnixAddr:
		return true
	case *net.TCPAddr:
		return a.IP.IsLoopback()
	}
	return false
}

type contextKey struct{}

// From returns the caller, in a handler behind Require.
func From(ctx context.Context) Identity {
	id, _ := ctx.Value(contextKey{}).(Identity)
	return id
}

// With is a context in which id asks.
func With(ctx context.Context, id Identity) context.Context {
	return context.WithValue(ctx, contextKey{}, id)
}

// Require serves next to those whose role is at least this one. Others get 401 without a
// credential, and 403 with an insufficient role. Requests that a web page may have sent get 403; a
// body whose type is not JSON gets 415.
func (g *Guard) Require(least Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Cache-Control", "no-store")
		if err := g.notFromAPage(r); err != nil {
			httpjson.Problem(w, http.StatusForbidden, err.Error())
			return
		}
		id, err := g.identify(r)
		switch {
		case errors.Is(err, errNobody):
			w.Header().Set("WWW-Authenticate", `Bearer realm="tallygate"`)
			httpjson.Problem(w, http.StatusUnauthorized, err.Error())
			return
		case errors.Is(err, ErrUnavailable):
			httpjson.Problem(w, http.StatusServiceUnavailable, err.Error())
			return
		case err != nil:
			httpjson.Problem(w, http.StatusForbidden, err.Error())
			return
		}
		if err := id.May(least); err != nil {
			httpjson.Problem(w, http.StatusForbidden, err.Error())
			return
		}
		if err := jsonBody(r); err != nil {
			httpjson.Problem(w, http.StatusUnsupportedMediaType, err.Error())
			return
		}
		next.ServeHTTP(w, r.WithContext(With(r.Context(), id)))
	})
}

// May returns an error if the caller's role is not sufficient.
func (id Identity) May(least Role) error {
	if id.Role.includes(least) {
		return nil
	}
	return fmt.Errorf("this needs the role %s, and %s has the role %s", least, cmp.Or(id.Name, "who asks"), id.Role)
}

func (r Role) includes(least Role) bool {
	switch {
	case r == Service:
		return least == Service
	case least == Service:
		return r >= Operator
	}
	return r >= least
}

// errNobody says that a request has no credential that is known. It is the same whatever is wrong
// with one.
var errNobody = errors.New("this needs a credential: Authorization: Bearer TOKEN, or a client certificate where the server asks for one")

// errNoneKnown is for a server without credentials that others than this machine reach.
var errNoneKnown = fmt.Errorf("%w; this one knows none: start it with --tokens FILE, or with --listen on loopback", errNobody)

// identify finds the sender of a request. A credential that is shown decides, also where none is needed.
func (g *Guard) identify(r *http.Request) (Identity, error) {
	if g.cfg.Peer != nil {
		if id, ok, err := g.cfg.Peer(r); err != nil {
			g.notFromPeer(r, err)
			return Identity{}, errNobody
		} else if ok {
			return id, nil
		}
	}
	if !g.credentials {
		if g.local || g.cfg.Open {
			return Identity{Role: Admin}, nil
		}
		return Identity{}, errNoneKnown
	}
	if values := r.Header.Values("Authorization"); len(values) > 0 {
		return g.byToken(r.Context(), values)
	}
	return g.byCertificate(r)
}

// notFromPeer logs a rejected claim: it may be an instance whose clock is wrong. It logs at most
// once a minute, because anyone who reaches the API can make such claims.
func (g *Guard) notFromPeer(r *http.Request, err error) {
	if leftOut, due := g.claims.Due(); due {
		g.cfg.Logger.Warn("refused a request that claims to come from another instance; further ones are not logged for a minute",
			"address", r.RemoteAddr, "error", err, "left_out", leftOut)
	}
}

const (
	maxToken  = 4 << 10  // bytes
	maxSigned = 16 << 10 // of a token that an issuer signed, which may name many groups
)

func (g *Guard) byToken(ctx context.Context, values []string) (Identity, error) {
	if len(values) != 1 || g.file == nil {
		return Identity{}, errNobody
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	if token = strings.TrimSpace(token); !strings.EqualFold(scheme, "Bearer") || token == "" || len(token) > maxSigned {
		return Identity{}, errNobody
	}
	if len(token) <= maxToken {
		if id, ok := g.file.current().byHash(sha256.Sum256([]byte(token))); ok {
			id.By = Token
			return id, nil
		}
	}
	if g.cfg.Verifier == nil || strings.Count(token, ".") != 2 { // an issuer's has three parts
		return Identity{}, errNobody
	}
	return g.byIssuer(ctx, token)
}

// byIssuer is the holder of a token that the issuer signed. Without a group that has a role they are
// known, and may do nothing.
func (g *Guard) byIssuer(ctx context.Context, token string) (Identity, error) {
	claims, err := g.cfg.Verifier.Verify(ctx, token)
	if err != nil {
		if leftOut, due := g.refused.Due(); due {
			g.cfg.Logger.Warn("refused a token of the OIDC issuer; further ones are not logged for a minute", "error", err, "left_out", leftOut)
		}
		if errors.Is(err, ErrUnavailable) {
			return Identity{}, ErrUnavailable
		}
		return Identity{}, errNobody
	}
	return Identity{Name: claims.Name, Role: g.file.current().byGroups(claims.Groups), By: Issuer}, nil
}

// byCertificate trusts a certificate that the listener has verified, and no other.
func (g *Guard) byCertificate(r *http.Request) (Identity, error) {
	if !g.cfg.Certificates || r.TLS == nil || len(r.TLS.VerifiedChains) == 0 || len(r.TLS.VerifiedChains[0]) == 0 {
		return Identity{}, errNobody
	}
	cert := r.TLS.VerifiedChains[0][0]
	names := namesOf(cert)
	if g.file == nil {
		name := "a certificate without a name"
		if len(names) > 0 {
			name = names[0]
		}
		return Identity{Name: name, Role: Viewer, By: Certificate}, nil
	}
	if id, ok := g.file.current().byName(names); ok {
		id.By = Certificate
		return id, nil
	}
	if len(names) == 0 {
		return Identity{}, errors.New("this client certificate has no name that could have a role")
	}
	return Identity{}, fmt.Errorf("no role is given to the client certificate of %s", strings.Join(names, ", "))
}
