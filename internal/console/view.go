package console

import (
	"embed"
	"fmt"
	"html/template"
	"net/url"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/ops"
)

//go:embed templates
var templateFiles embed.FS

const (
	problemPage = "problem" // the template of a page that is nothing but a Problem
	sessionPage = "session" // that of the pages of package session
)

// view is a template's input. Data is what the page's load returned.
type view struct {
	Name    string // of the page
	Title   string
	Nav     []navItem
	Who     session.Session
	LogOut  bool // there is a session to end
	Theme   string
	Again   string // where the browser goes by itself, after AgainIn seconds; "": it stays
	AgainIn int
	Path    string // of this page, with its parameters
	Live    string // where its parts are pushed; "": it stands still
	Said    *result
	Problem *Problem
	Form    url.Values // what was typed, after a mistake; else empty
	State   *watch.State
	Now     time.Time
	Version string
	Styles  []string // static files beside the layout's
	Scripts []string
	Data    any
}

type navItem struct {
	Text, Path string
	Current    bool
	Light      health.Level // of the overview: the chain's worst; "" for others
}

func (s *server) viewOf(p *page, r *request, data any) *view {
	v := &view{
		Name: p.name, Title: p.title, Who: r.Who, Path: r.URL.RequestURI(), State: r.State, Now: r.Now,
		Version: ops.Version(), Data: data, Form: url.Values{},
	}
	if r.Title != "" {
		v.Title = r.Title
	}
	for _, name := range p.extra {
		if strings.HasSuffix(name, ".css") {
			v.Styles = append(v.Styles, name)
		} else {
			v.Scripts = append(v.Scripts, name)
		}
	}
	if c, err := r.Cookie(themeCookie); err == nil && (c.Value == "light" || c.Value == "dark") {
		v.Theme = c.Value
	}
	v.LogOut = r.Who.Token != ""
	if len(p.parts) > 0 {
		v.Live = livePath(r.URL.RequestURI())
	}
	for _, other := range s.pages {
		if other.nav == "" || !r.mayOpen(&other) {
			continue
		}
		item := navItem{Text: other.nav, Path: other.path, Current: other.name == p.name || other.name == p.under}
		if other.path == "/" && r.State != nil {
			item.Light = r.State.Chain.Worst()
		}
		v.Nav = append(v.Nav, item)
	}
	return v
}

// parseTemplates reads the layout and the components once, and for each page its own file on top.
func (s *server) parseTemplates() (map[string]*template.Template, error) {
	base, err := template.New("").Funcs(s.funcs()).ParseFS(templateFiles, "templates/layout.html", "templates/components/*.html")
	if err != nil {
		return nil, fmt.Errorf("parse the templates: %w", err)
	}
	looks := map[string]*template.Template{}
	for _, name := range append([]string{problemPage, sessionPage}, s.names()...) {
		look, err := base.Clone()
		if err != nil {
			return nil, err
		}
		if looks[name], err = look.ParseFS(templateFiles, "templates/"+name+".html"); err != nil {
			return nil, fmt.Errorf("parse the page %s: %w", name, err)
		}
	}
	return looks, nil
}

// names are those of the pages that have a template.
func (s *server) names() (names []string) {
	for _, p := range s.pages {
		if p.raw == nil {
			names = append(names, p.name)
		}
	}
	return names
}

// attrs are attributes whose values are constants of this package's templates.
func liveAttrs(part string) template.HTMLAttr {
	if strings.Trim(part, "abcdefghijklmnopqrstuvwxyz-") != "" {
		return ""
	}
	return template.HTMLAttr(fmt.Sprintf(`sse-swap=%q hx-swap="morph:innerHTML"`, part)) //nolint:gosec // letters and dashes
}
