package session

import (
	"cmp"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/access/issuer"
)

// Handlers adds the paths of logging in and out: GET and POST /login, POST /logout, and for an issuer
// GET /login/start and GET /login/callback.
func (m *Manager) Handlers(mux *http.ServeMux) {
	mux.HandleFunc("GET /login", m.serveLogin)
	mux.HandleFunc("POST /login", m.serveToken)
	mux.HandleFunc("POST /logout", m.serveLogout)
	if m.cfg.Login != nil {
		mux.HandleFunc("GET /login/start", m.serveStart)
		mux.HandleFunc("GET /login/callback", m.serveCallback)
	}
}

// needLogin sends a page's reader to the login, and refuses all else. A browser that follows another
// site's link does not send the cookie: the same page, asked for once more from here, has it.
func (m *Manager) needLogin(w http.ResponseWriter, r *http.Request) {
	switch {
	case !isPage(r):
		if r.Method == http.MethodPost && !fromScript(r) {
			m.render(w, r, http.StatusUnauthorized, View{Kind: Refused, Message: "Your session has ended, and nothing was done. Log in and do it again.", Next: "/login"})
			return
		}
		httpjson.Problem(w, http.StatusUnauthorized, errNoSession.Error())
	case fromElsewhere(r):
		m.onwards(w, r, r.URL.RequestURI())
	default:
		http.Redirect(w, r, loginPath(r.URL.RequestURI()), http.StatusSeeOther)
	}
}

func loginPath(next string) string {
	if next = local(next); next == "/" {
		return "/login"
	}
	return "/login?" + url.Values{"next": {next}}.Encode()
}

// onwards answers with a page that goes on to another one of the console. Unlike a redirect, what it
// leads to is asked for by the console itself, so that the browser sends the cookie.
func (m *Manager) onwards(w http.ResponseWriter, r *http.Request, next string) {
	m.render(w, r, http.StatusOK, View{Kind: Onwards, Next: local(next)})
}

const maxNext = 2048

// local is a path of the console to go on to; "/" for all that is not one. A browser would read //host
// and /\host as other sites.
func local(next string) string {
	u, err := url.Parse(next)
	bad := func(c rune) bool { return c <= ' ' || c == '\\' || c == 0x7f }
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil || len(next) > maxNext ||
		!strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") || strings.ContainsFunc(next, bad) ||
		strings.HasPrefix(u.Path, "//") || u.Path == "/login" || strings.HasPrefix(u.Path, "/login/") || u.Path == "/logout" {
		return "/"
	}
	return next
}

func (m *Manager) serveLogin(w http.ResponseWriter, r *http.Request) {
	next := local(r.FormValue("next"))
	if _, err := m.identify(w, r); err == nil {
		http.Redirect(w, r, next, http.StatusSeeOther)
		return
	} else if exposed, ok := errors.AsType[*exposedError](err); ok {
		m.refuse(w, r, http.StatusForbidden, exposed.Error())
		return
	}
	m.loginPage(w, r, http.StatusOK, next, "")
}

func (m *Manager) loginPage(w http.ResponseWriter, r *http.Request, status int, next, message string) {
	m.render(w, r, status, View{Kind: LogIn, Message: message, Next: local(next), Issuer: m.cfg.Login != nil})
}

// serveToken logs in with a token of the form.
func (m *Manager) serveToken(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, 64<<10)
	token, next := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("next")
	if token == "" || strings.ContainsFunc(token, func(c rune) bool { return c <= ' ' || c >= 0x7f }) {
		m.loginPage(w, r, http.StatusUnprocessableEntity, next, "This is not a token.")
		return
	}
	try, err := m.attempts.begin(r, time.Now())
	if err != nil {
		return // the browser went away
	}
	defer try.end()
	if m.logIn(w, r, try, ticket{Token: token}, next) {
		http.Redirect(w, r, local(next), http.StatusSeeOther)
	}
}

// tooMany answers an attempt that failed, and that was beyond the bounds.
func tooMany(m *Manager, w http.ResponseWriter, r *http.Request, next string) {
	w.Header().Set("Retry-After", "60")
	m.loginPage(w, r, http.StatusTooManyRequests, next, "Too many attempts to log in failed. Wait a minute.")
}

// logIn begins a session if the aggregator knows the token, or else says why it does not.
func (m *Manager) logIn(w http.ResponseWriter, r *http.Request, try attempt, t ticket, next string) bool {
	ask := m.who.afresh
	if !try.within {
		ask = m.who.ask // while the aggregator is away, turns are short
	}
	id, err := ask(r.Context(), t.Token)
	if err == nil && id.By == access.Nothing {
		err = exposed(m)
	}
	refusal, refused := errors.AsType[*refusedError](err)
	if !refused {
		try.succeeded()
	}
	switch {
	case refused && !try.within:
		if leftOut, due := m.beyond.Due(); due {
			m.cfg.Logger.Warn("logins are refused, after too many failed; this is not logged again for a minute", "address", clientOf(m, r), "left_out", leftOut)
		}
		tooMany(m, w, r, next)
		return false
	case refused:
		said := "The aggregator does not know this token."
		if refusal.status == http.StatusForbidden {
			said = "The aggregator knows you, but you may not read: " + refusal.detail + "."
		} else if t.Until.After(time.Now()) {
			said = "The aggregator does not accept logins of this issuer: its --oidc-issuer and --oidc-audience must name the same issuer, and this console's client."
		}
		m.cfg.Logger.Warn("a login was refused", "address", clientOf(m, r), "status", refusal.status)
		m.loginPage(w, r, refusal.status, next, said)
		return false
	case errors.Is(err, errNoAnswer):
		m.loginPage(w, r, http.StatusServiceUnavailable, next, m.told(err))
		return false
	case err != nil:
		m.refuse(w, r, http.StatusForbidden, err.Error())
		return false
	}
	t.Begun, t.Name, t.Role = time.Now(), id.Name, id.Role.String()
	t.Seen = t.Begun
	if err := m.jar.setTicket(w, r, t); err != nil {
		m.loginPage(w, r, http.StatusBadGateway, next, err.Error())
		return false
	}
	m.cfg.Logger.Info("a reader logged in", "by", id.Name, "role", id.Role.String(), "credential", string(id.By))
	return true
}

// clientOf is the address of a request for the log.
func clientOf(m *Manager, r *http.Request) string { return cmp.Or(m.attempts.client(r), r.RemoteAddr) }

func (m *Manager) serveLogout(w http.ResponseWriter, r *http.Request) {
	m.jar.clear(w, r, sessionCookie)
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// started is the content of the cookie of a login that is under way.
type started struct {
	issuer.Pending
	Next  string    `json:"next"`
	Until time.Time `json:"until"`
}

func (m *Manager) callback() string {
	u := *m.external
	u.Path = "/login/callback"
	return u.String()
}

// serveStart sends the reader to the issuer. What has to come back is in a cookie that the browser,
// unlike the session's, also sends when it comes from there.
func (m *Manager) serveStart(w http.ResponseWriter, r *http.Request) {
	next := local(r.FormValue("next"))
	to, pending, err := m.cfg.Login.Start(r.Context(), m.callback())
	if err != nil {
		if leftOut, due := m.noIssuer.Due(); due {
			m.cfg.Logger.Warn("the issuer of logins does not answer; this is not logged again for a minute", "error", err, "left_out", leftOut)
		}
		m.loginPage(w, r, http.StatusBadGateway, next, "The issuer of logins does not answer. Try again, or use a token.")
		return
	}
	s := started{Pending: pending, Next: next, Until: time.Now().Add(loginWithin)}
	text, err := json.Marshal(s)
	if err == nil {
		err = m.jar.set(w, r, loginCookie, text, s.Until, http.SameSiteLaxMode)
	}
	if err != nil {
		m.loginPage(w, r, http.StatusInternalServerError, next, err.Error())
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// serveCallback takes the reader back from the issuer.
func (m *Manager) serveCallback(w http.ResponseWriter, r *http.Request) {
	var s started
	text, err := m.jar.open(r, loginCookie)
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	m.jar.clear(w, r, loginCookie)
	if err != nil || time.Now().After(s.Until) {
		m.loginPage(w, r, http.StatusBadRequest, "/", "This login took too long, or was begun in another browser. Begin it again.")
		return
	}
	try, err := m.attempts.begin(r, time.Now())
	if err != nil {
		return // the browser went away
	}
	defer try.end()
	grant, err := m.cfg.Login.Finish(r.Context(), m.callback(), s.Pending, r.URL.Query())
	if err != nil {
		if !try.within {
			tooMany(m, w, r, s.Next)
			return
		}
		m.cfg.Logger.Warn("a login at the issuer failed", "address", clientOf(m, r), "error", err)
		m.loginPage(w, r, http.StatusBadGateway, s.Next, cmp.Or(issuer.Said(err), "The login at the issuer failed. Begin it again.")) // the log says more
		return
	}
	if m.logIn(w, r, try, ticket{Token: grant.Token, Refresh: grant.Refresh, Until: grant.Until}, s.Next) {
		m.onwards(w, r, s.Next)
	}
}
