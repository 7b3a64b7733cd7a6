package console

import (
	"encoding/json"
	"net/http"
	"strings"
	"time"
)

// act answers a form: it does what the form asks for, and leads to a page that says what was done. So a
// reload sends nothing twice.
func (s *server) act(p *page, r *request, w http.ResponseWriter) {
	if err := r.ParseForm(); err != nil {
		s.showProblem(r, w, &Problem{Status: http.StatusBadRequest, Title: "The form cannot be read", Detail: err.Error(), Do: "Send less at once: a form takes 2 MiB."})
		return
	}
	a, known := p.actions[r.PostForm.Get("action")]
	if !known {
		s.showProblem(r, w, &Problem{Status: http.StatusBadRequest, Title: "There is no such action", Detail: "The form asks for something that this page does not do.", Do: "Load the page again.", Link: r.URL.RequestURI()})
		return
	}
	if err := r.Who.May(a.least); err != nil {
		s.showProblem(r, w, tooWeak(err))
		return
	}
	switch {
	case a.raw != nil:
		a.raw(r, w)
		return
	case a.show != nil:
		s.showForm(p, r, w, a.show)
		return
	}
	done, err := a.do(r)
	if err != nil {
		s.showAgain(p, r, w, problemOf(err))
		return
	}
	for _, c := range done.cookies {
		http.SetCookie(w, c)
	}
	s.keepResult(w, r.Request, &done)
	to := done.To
	if to == "" {
		to = r.URL.RequestURI()
	}
	http.Redirect(w, r.Request, to, http.StatusSeeOther)
}

// showForm answers a form that changes nothing.
func (s *server) showForm(p *page, r *request, w http.ResponseWriter, show func(*request) (any, error)) {
	data, err := show(r)
	if err != nil {
		s.showAgain(p, r, w, problemOf(err))
		return
	}
	v := s.viewOf(p, r, data)
	v.Form = r.PostForm
	s.write(r, w, http.StatusOK, p.name, v)
}

// showAgain shows the form's page with what is wrong, and with what was typed.
func (s *server) showAgain(p *page, r *request, w http.ResponseWriter, wrong *Problem) {
	data, err := p.load(r)
	if err != nil {
		s.showProblem(r, w, wrong)
		return
	}
	v := s.viewOf(p, r, data)
	v.Problem, v.Form = wrong, r.PostForm
	status := wrong.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	s.write(r, w, status, p.name, v)
}

const themeCookie = "tallygate-theme"

// keepResult keeps what was done for the next page.
func (s *server) keepResult(w http.ResponseWriter, r *http.Request, done *result) {
	if text, err := json.Marshal(done); err == nil && done.Text != "" {
		s.sessions.Keep(w, r, text)
	}
}

// takeResult returns what was done before this page, once.
func (s *server) takeResult(w http.ResponseWriter, r *http.Request) *result {
	var done result
	if json.Unmarshal(s.sessions.Take(w, r), &done) != nil || done.Text == "" {
		return nil
	}
	return &done
}

// cookie is one that only this console gets, from its own pages.
func (s *server) cookie(name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), HttpOnly: true, Secure: s.sessions.Secure(), SameSite: http.SameSiteStrictMode}
}

// setTheme keeps whether the reader wants light or dark pages; without a choice the system's holds.
func (s *server) setTheme(w http.ResponseWriter, r *http.Request) {
	theme := r.PostFormValue("theme")
	lasts := 400 * 24 * time.Hour
	if theme != "light" && theme != "dark" {
		theme, lasts = "", -time.Second
	}
	http.SetCookie(w, s.cookie(themeCookie, theme, lasts))
	to := r.PostFormValue("to")
	if !strings.HasPrefix(to, "/") || strings.HasPrefix(to, "//") || strings.ContainsAny(to, "\\\r\n\t") {
		to = "/"
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}
