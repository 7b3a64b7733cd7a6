package session

import (
	"context"
	"errors"
	"net/http"
)

// question is whose a credential is.
type question struct {
	who   *asker
	token string
}

// guestOf is a reader whom nobody can be asked about. A session that is too old to be believed makes them near,
// and gives no role.
func guestOf(m *Manager, r *http.Request) Session {
	s := Session{Guest: true, Near: m.local && exposed(m) == nil, asked: &question{who: m.who}}
	if t, err := m.jar.ticket(r); err == nil {
		s.Near, s.asked.token = true, t.Token
	}
	return s
}

// Met reports whether somebody says by now who a guest is.
func (s Session) Met(ctx context.Context) bool {
	if s.asked == nil {
		return false
	}
	_, err := s.asked.who.ask(ctx, s.asked.token)
	return !errors.Is(err, errNoAnswer)
}

func (m *Manager) serveGuest(w http.ResponseWriter, r *http.Request, why error, next http.Handler) {
	_ = m.told(why) // the log says it
	s := guestOf(m, r)
	if !s.Near && isPage(r) && fromElsewhere(r) { // asked for from here, the same may come with a session's cookie
		m.onwards(w, r, r.URL.RequestURI())
		return
	}
	next.ServeHTTP(w, r.WithContext(With(r.Context(), s)))
}

func reads(r *http.Request) bool { return r.Method == http.MethodGet || r.Method == http.MethodHead }
