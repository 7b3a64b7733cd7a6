package console

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"html/template"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/ops"
)

// server is the console's HTTP side.
type server struct {
	*Program
	base     context.Context // ends with the program
	sessions *session.Manager
	pages    []page
	looks    map[string]*template.Template // by page
	assets   *assets
	exam     examRoom
	about    *ops.Reporter
	rules    *ruleSide
}

func newServer(base context.Context, p *Program) (*server, error) {
	s := &server{Program: p, base: base, pages: pages()}
	if s.Now == nil {
		s.Now = time.Now
	}
	s.about = ops.NewReporter("console")
	s.about.Address, s.about.Ready, s.about.Settings, s.about.Registry, s.about.Log = p.HTTP.Addr().String(), s.ready, p.Settings, p.Registry, p.Log
	s.rules = newRuleSide(p)
	var err error
	if s.assets, err = newAssets(); err != nil {
		return nil, err
	}
	if s.looks, err = s.parseTemplates(); err != nil {
		return nil, err
	}
	cfg := p.Session
	cfg.Aggregator, cfg.Addr, cfg.Logger, cfg.Render = p.API, p.HTTP.Addr(), p.Log, s.showSession
	cfg.Listen = cmp.Or(cfg.Listen, cfg.Addr.String())
	s.sessions, err = session.New(cfg)
	return s, err
}

// ready is nil when pages can be shown: what is wrong with the chain is shown by them.
func (s *server) ready() error {
	if s.Health.State() == nil {
		return errors.New("the first look at the installation is under way")
	}
	return nil
}

// handler serves everything.
func (s *server) handler() http.Handler {
	mux := http.NewServeMux()
	ops.Health(mux, s.ready)
	s.sessions.Handlers(mux)
	mux.Handle("GET "+assetsPath, s.assets)
	mux.HandleFunc("POST /theme", s.setTheme)
	mux.Handle("GET /v1/status", s.sessions.Require(access.Viewer, s.about))
	for i := range s.pages {
		p := &s.pages[i]
		path := p.path
		if strings.HasSuffix(path, "/") {
			path += "{$}"
		}
		mux.Handle("GET "+path, s.guardedOr(p, func(r *request, w http.ResponseWriter) { s.show(p, r, w) }))
		if len(p.actions) > 0 {
			mux.Handle("POST "+path, s.guarded(p.least, func(r *request, w http.ResponseWriter) { s.act(p, r, w) }))
		}
		if len(p.parts) > 0 {
			mux.Handle("GET "+livePath(path), s.guardedOr(p, func(r *request, w http.ResponseWriter) { s.follow(p, r, w) }))
		}
	}
	mux.Handle("/", s.guarded(access.None, func(r *request, w http.ResponseWriter) {
		s.showProblem(r, w, &Problem{Status: http.StatusNotFound, Title: "There is no such page", Detail: "The console has nothing at this address.",
			Do: "Choose a page above.", Link: "/"})
	}))
	return s.sessions.Protect(bounded(mux))
}

// maxBody bounds a form: a rule file is the largest that one sends.
const maxBody = 2 << 20

func bounded(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		next.ServeHTTP(w, r)
	})
}

// guarded serves those whose role is sufficient. Others log in, or are told.
func (s *server) guarded(least access.Role, next func(*request, http.ResponseWriter)) http.Handler {
	return s.sessions.Require(least, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next(s.requestOf(r), w) }))
}

// guardedOr is guarded, but guests get the page, too, if it has a glance.
func (s *server) guardedOr(p *page, next func(*request, http.ResponseWriter)) http.Handler {
	h := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next(s.requestOf(r), w) })
	if p.glance == nil {
		return s.sessions.Require(p.least, h)
	}
	return s.sessions.RequireOr(p.least, h, h)
}

func (s *server) requestOf(r *http.Request) *request {
	who := session.From(r.Context())
	return &request{Request: r, Who: who, API: s.API.WithToken(who.Token), State: s.Health.State(), Now: s.Now(), server: s}
}

func tooWeak(err error) *Problem {
	return &Problem{Status: http.StatusForbidden, Title: "Your role is not sufficient", Detail: err.Error(),
		Do: "Ask somebody with the role, or whoever gives roles.", Link: "/"}
}

// showSession shows the pages of package session: to log in, to go on, and why somebody is refused.
func (s *server) showSession(w http.ResponseWriter, r *http.Request, status int, about session.View) {
	req := s.requestOf(r)
	req.Who = about.Session
	title := map[session.Kind]string{session.LogIn: "Log in", session.Onwards: "One moment", session.Refused: "This is refused"}[about.Kind]
	v := s.viewOf(&page{name: sessionPage, title: title}, req, about)
	v.Path, v.Again = "/", ""
	switch {
	case about.Kind == session.Onwards:
		v.Again = about.Next
	case status == http.StatusServiceUnavailable && r.Method == http.MethodGet:
		v.Again, v.AgainIn = r.URL.RequestURI(), 2
	}
	s.write(req, w, status, sessionPage, v)
}

// show answers a GET.
func (s *server) show(p *page, r *request, w http.ResponseWriter) {
	if p.raw != nil {
		if err := p.raw(r, w); err != nil {
			s.showProblem(r, w, problemOf(err))
		}
		return
	}
	data, err := r.data(p)
	if err != nil {
		s.showProblem(r, w, problemOf(err))
		return
	}
	v := s.viewOf(p, r, data)
	v.Said = s.takeResult(w, r.Request)
	s.write(r, w, http.StatusOK, p.name, v)
}

// write renders a page into memory first, so that a failure is a whole answer, too.
func (s *server) write(r *request, w http.ResponseWriter, status int, name string, v *view) {
	var b bytes.Buffer
	if err := s.looks[name].ExecuteTemplate(&b, "layout", v); err != nil {
		s.cannotRender(name, err)
		http.Error(w, fmt.Sprintf("the page %s cannot be rendered; the console's log says why", name), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Add("Vary", "Accept-Encoding")
	if !takesGzip(r.Request) {
		w.WriteHeader(status)
		_, _ = w.Write(b.Bytes())
		return
	}
	w.Header().Set("Content-Encoding", "gzip")
	w.WriteHeader(status)
	z := zippers.Get().(*gzip.Writer)
	defer zippers.Put(z)
	z.Reset(w)
	_, _ = z.Write(b.Bytes())
	_ = z.Close() // the reader went away
}

// cannotRender logs a mistake in a template.
func (s *server) cannotRender(name string, err error) {
	s.Log.Error("a page or a part of one cannot be rendered", "template", name, "error", err)
}

var zippers = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

func takesGzip(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept-Encoding"), "gzip")
}

// showProblem shows a problem as a page.
func (s *server) showProblem(r *request, w http.ResponseWriter, p *Problem) {
	v := s.viewOf(&page{name: problemPage, title: p.Title}, r, nil)
	v.Problem = p
	status := p.Status
	if status == 0 {
		status = http.StatusInternalServerError
	}
	s.write(r, w, status, problemPage, v)
}
