// Package session knows who a reader of the console is. A reader logs in with a token of the
// aggregator's, or at an issuer of such tokens (OpenID Connect). The token is in a sealed cookie, and
// nowhere in the console: several consoles with the same --session-key-file serve the same sessions.
// What a reader may do is what the aggregator says of the token, once a minute.
package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/base/logonce"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/access/issuer"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Session is a reader's login.
type Session struct {
	Name    string // "" where the aggregator requires no credentials
	Role    access.Role
	Token   string    // to show to the aggregator with each request of theirs; "" where it requires none
	Expires time.Time // without further use; zero where no login is needed
	// Unconfirmed: the aggregator does not answer now. Name and Role are what it said before.
	Unconfirmed bool
	// Guest: nobody can be asked who this is, since no aggregator answers. Role is None, and only RequireOr
	// serves such a reader.
	Guest bool
	// Near, of a guest: on this machine, of a console that is served to no other; or logged in before.
	Near bool

	asked *question // of a guest: what nobody answers
}

// May returns an error if the reader's role is not sufficient.
func (s Session) May(least access.Role) error {
	return access.Identity{Name: cmp.Or(s.Name, "who reads"), Role: s.Role}.May(least)
}

const (
	idleFor     = 12 * time.Hour   // a session ends when it was not used for that long,
	lastsFor    = 24 * time.Hour   // and at the latest that long after the login
	confirmEach = time.Minute      // how old what the aggregator said may be
	confirmedBy = time.Hour        // the same while the aggregator does not answer
	askWithin   = 3 * time.Second  // one question to the aggregator
	loginWithin = 10 * time.Minute // from the start of a login at an issuer to its end
)

// Config configures a Manager.
type Config struct {
	Aggregator *api.Client  // says whose a token is. The token that it shows itself is not used
	Addr       net.Addr     // where the console is served
	Listen     string       // the same as the operator wrote it, HOST:PORT
	TLS        bool         // the console serves TLS itself
	External   string       // the URL at which readers reach the console, such as that of a proxy; "" is Listen
	KeyFile    string       // with the keys that seal cookies, the newest first; "" is a random key
	Login      *issuer.Flow // at an issuer; nil: only with tokens
	// Proxies name in X-Forwarded-For by whom failed logins are counted; nil: there are none.
	Proxies *httplimit.Proxies
	// Render writes a page of this package in the console's layout. nil is a page without one.
	Render func(w http.ResponseWriter, r *http.Request, status int, v View)
	Logger *slog.Logger // nil is slog.Default()
}

// Manager knows the sessions of a console. Make it with New; many goroutines may use it.
type Manager struct {
	cfg      Config
	local    bool
	external *url.URL // nil: none
	jar      jar
	who      *asker
	renewed  *renewals
	attempts *attempts
	noAnswer logonce.Line // of the aggregator
	noIssuer logonce.Line // that could be reached
	beyond   logonce.Line // the bounds of logins that fail
	open     atomic.Bool  // the aggregator required no credentials when it answered last
}

// New reads the keys. It asks nobody.
func New(cfg Config) (*Manager, error) {
	cfg.Logger = cmp.Or(cfg.Logger, slog.Default())
	m := &Manager{cfg: cfg, local: access.Loopback(cfg.Addr), renewed: newRenewals(), attempts: newAttempts(cfg.Proxies)}
	if cfg.External != "" {
		u, err := url.Parse(cfg.External)
		if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.Path != "" && u.Path != "/" {
			return nil, fmt.Errorf("--external-url %q: want the console's own, such as https://console.example.com", cfg.External)
		}
		m.external = u
	}
	if cfg.Login != nil && m.external == nil {
		return nil, errors.New("--oidc-issuer needs --external-url, the URL at which the issuer sends readers back")
	}
	seal, err := newSealer(cfg.KeyFile, cfg.Logger)
	if err != nil {
		return nil, err
	}
	m.jar = jar{seal, cfg.TLS || m.external != nil && m.external.Scheme == "https"}
	m.who = newAsker(cfg.Aggregator)
	if !m.jar.secure && !m.local {
		cfg.Logger.Warn("the console receives tokens unencrypted; set --tls-cert and --tls-key, or --external-url https://… behind a proxy that does TLS", "listen", cfg.Listen)
	}
	return m, nil
}

// Secure reports whether browsers speak TLS, with the console or with a proxy before it: then cookies are for
// TLS only.
func (m *Manager) Secure() bool { return m.jar.secure }

// Start returns an error if the console must not be served as configured: beyond this machine, of an
// aggregator that requires no credentials. While no aggregator answers it returns nil; then each
// request asks again.
func (m *Manager) Start(ctx context.Context) error {
	if id, err := m.who.ask(ctx, ""); err == nil && id.By == access.Nothing {
		return exposed(m)
	}
	return nil
}

// exposed is an error if not only programs of this machine reach the console. A proxy on this machine
// may bring others.
func exposed(m *Manager) error {
	at := "--listen " + m.cfg.Listen
	if m.local {
		if m.external == nil || access.LocalName(nil, m.external.Host) {
			return nil
		}
		at = "--external-url " + m.cfg.External
	}
	return fmt.Errorf("%w, for the aggregator: it requires none now", access.Exposed(at, "the console", "127.0.0.1:8090"))
}

type contextKey struct{}

// From returns the reader's session, in a handler behind Require.
func From(ctx context.Context) Session {
	s, _ := ctx.Value(contextKey{}).(Session)
	return s
}

// With is a context in which s reads, for tests of handlers.
func With(ctx context.Context, s Session) context.Context {
	return context.WithValue(ctx, contextKey{}, s)
}

var (
	errNoSession = errors.New("log in: the session has ended, or there was none")
	errNoAnswer  = errors.New("no aggregator answers, so nobody can be asked who you are; try again soon")
)

// Require serves next to readers whose role is at least this one. To others a page's GET is answered
// with the way to the login, an event stream and what a script asks with 401, and what the role may
// not do with 403. The context of an event stream ends when its session does.
func (m *Manager) Require(least access.Role, next http.Handler) http.Handler {
	return m.RequireOr(least, next, nil)
}

// RequireOr is Require, but while no aggregator answers, meanwhile serves guests who read. nil: nobody does.
func (m *Manager) RequireOr(least access.Role, next, meanwhile http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s, err := m.identify(w, r)
		var exposed *exposedError
		switch {
		case meanwhile != nil && errors.Is(err, errNoAnswer) && reads(r):
			m.serveGuest(w, r, err, meanwhile)
			return
		case errors.Is(err, errNoSession):
			m.needLogin(w, r)
			return
		case errors.As(err, &exposed):
			m.refuse(w, r, http.StatusForbidden, err.Error())
			return
		case err != nil:
			m.refuse(w, r, http.StatusServiceUnavailable, m.told(err))
			return
		}
		if err := s.May(least); err != nil {
			m.refuse(w, r, http.StatusForbidden, err.Error())
			return
		}
		ctx := With(r.Context(), s)
		if isStream(r) {
			var stop context.CancelFunc
			ctx, stop = m.while(ctx, s)
			defer stop()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// exposedError is why a console that is served to others has no readers.
type exposedError struct{ error }

// identify is whose request it is. It renews the cookie.
func (m *Manager) identify(w http.ResponseWriter, r *http.Request) (Session, error) {
	t, err := m.jar.ticket(r)
	if err != nil {
		return m.withoutLogin(r)
	}
	now := time.Now()
	changed := false
	if t, changed, err = m.renew(r.Context(), t, now); err != nil {
		return Session{}, m.ended(w, r, err)
	}
	id, err := m.who.ask(r.Context(), t.Token)
	switch {
	case errors.Is(err, errNoAnswer) && now.Sub(t.Seen) < confirmedBy:
		role, _ := access.ParseRole(t.Role)
		return Session{Name: t.Name, Role: role, Token: t.Token, Expires: t.end(), Unconfirmed: true}, nil
	case err != nil:
		return Session{}, m.ended(w, r, err)
	case id.By == access.Nothing && exposed(m) != nil:
		return Session{}, &exposedError{exposed(m)}
	}
	if changed || now.Sub(t.Seen) >= confirmEach || t.Name != id.Name || t.Role != id.Role.String() {
		t.Seen, t.Name, t.Role = now, id.Name, id.Role.String()
		if err := m.jar.setTicket(w, r, t); err != nil {
			return Session{}, err
		}
	}
	return Session{Name: id.Name, Role: id.Role, Token: t.Token, Expires: t.end()}, nil
}

// ended takes away the cookie of a session that has ended, unless nobody could tell.
func (m *Manager) ended(w http.ResponseWriter, r *http.Request, err error) error {
	if errors.Is(err, errNoAnswer) {
		return err
	}
	m.jar.clear(w, r, sessionCookie)
	return errNoSession
}

// withoutLogin is for requests without a session: of everybody, where the aggregator requires no
// credentials and only programs of this machine reach the console.
func (m *Manager) withoutLogin(r *http.Request) (Session, error) {
	id, err := m.who.ask(r.Context(), "")
	switch {
	case errors.Is(err, errNoAnswer) && m.open.Load() && m.local:
		// Pages that tell what is wrong are needed most while nobody answers.
		return Session{Role: access.Admin, Unconfirmed: true}, nil
	case errors.Is(err, errNoAnswer):
		return Session{}, err
	}
	m.open.Store(err == nil && id.By == access.Nothing)
	if err != nil || id.By != access.Nothing {
		return Session{}, errNoSession
	}
	if err := exposed(m); err != nil {
		return Session{}, &exposedError{err}
	}
	return Session{Name: id.Name, Role: id.Role}, nil
}

// while is a context that ends when the session of an event stream does. The browser opens another
// stream then, which needs a session like any request.
func (m *Manager) while(ctx context.Context, s Session) (context.Context, context.CancelFunc) {
	end := time.Now().Add(idleFor)
	if !s.Expires.IsZero() {
		end = s.Expires
	}
	ctx, stop := context.WithDeadline(ctx, end)
	go func() {
		every := time.NewTicker(confirmEach)
		defer every.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-every.C:
			}
			if m.revoked(ctx, s) {
				stop()
				return
			}
		}
	}()
	return ctx, stop
}

// revoked reports whether the aggregator says something else of a session's token now.
func (m *Manager) revoked(ctx context.Context, s Session) bool {
	id, err := m.who.afresh(ctx, s.Token)
	return !errors.Is(err, errNoAnswer) && (err != nil || id.Role != s.Role)
}

// told returns an error's text for a reader. Where the aggregator is, and how it fails, is for the log.
func (m *Manager) told(err error) string {
	if !errors.Is(err, errNoAnswer) {
		return err.Error()
	}
	if leftOut, due := m.noAnswer.Due(); due {
		m.cfg.Logger.Warn("the aggregator does not say who a reader is; this is not logged again for a minute", "error", err, "left_out", leftOut)
	}
	return errNoAnswer.Error()
}

// refuse answers a page with a page, and all else with a problem.
func (m *Manager) refuse(w http.ResponseWriter, r *http.Request, status int, detail string) {
	if isPage(r) || r.Method == http.MethodPost && !fromScript(r) {
		m.render(w, r, status, View{Kind: Refused, Message: detail})
		return
	}
	httpjson.Problem(w, status, detail)
}
