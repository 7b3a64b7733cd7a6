package console

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/health/watch"
)

// pages returns the table of pages. Those with a nav are in the navigation, in this order.
func pages() []page {
	return []page{
		overviewPage(),
		blockedPage(),
		blockedExport(),
		keySearchPage(),
		keyPage(),
		keyActPage(),
		rulesPage(),
		rulePage(),
		versionsPage(),
		diffPage(),
		backPage(),
		tryPage(),
		exemptionsPage(),
		clusterPage(),
		qualityPage(),
		auditPage(),
		auditExport(),
	}
}

// page is a page of the console. Its template is templates/NAME.html, which defines "NAME", and one template
// for each of parts.
type page struct {
	name  string      // of its template, such as overview
	path  string      // pattern of package http without the method: /, /rules/{name}
	title string      // of the page; load may set another
	nav   string      // in the navigation; "": it is not there
	under string      // the name of the page that the navigation marks for this one; "": itself
	least access.Role // who may read it

	// load returns what the template shows, as .Data. An error is shown as one: see Problem.
	load func(*request) (any, error)
	// glance is load for a guest: a reader whom nobody can be asked about while no aggregator answers. It shows
	// nothing about users, and nothing that acts. nil: guests do not get the page.
	glance func(*request) (any, error)
	open   bool // glance serves every guest, not only those who are near
	// parts are the templates that are rendered again and pushed while the page is open, whenever their text
	// has changed: {{live "NAME"}} marks the element whose content is the part. Empty: the page stands still.
	parts []string
	every time.Duration // between two renderings of parts; 0 is whenever the chain's state changes, about once a second

	// actions serve the forms of the page, by the value of their field "action" ({{action "NAME"}}). A field by which
	// the form names what it is about is a field of the form, never a path with a user's id.
	actions map[string]action
	// extra are static files beside app.js and app.css: .js and .css.
	extra []string
	// raw answers by itself, for downloads: no template, no layout.
	raw func(*request, http.ResponseWriter) error
}

// action serves a form.
type action struct {
	least access.Role
	// do returns what to say afterwards, on the page that it names. After an error the page is shown again
	// with it, and what was typed stays: .Form has it.
	do func(*request) (result, error)
	// show is in the place of do for a form that changes nothing: its answer is the page, with what show returns
	// as .Data and what was typed as .Form.
	show func(*request) (any, error)
	// raw is in the place of do for a script: it answers by itself.
	raw func(*request, http.ResponseWriter)
}

// result is the result of a form.
type result struct {
	Text string // for people, a sentence: "42 is exempt until 14:03 UTC."
	To   string // the page that says so; "" is the form's own
	Undo *undo  // a form that undoes it; nil: none

	cookies []*http.Cookie // to set
}

// undo is a form of one button, beside a result.
type undo struct {
	Label  string            // of the button
	Path   string            // where it posts
	Fields map[string]string // with "action"
}

// request is one look at a page, or one form.
type request struct {
	*http.Request
	Who   session.Session
	API   *api.Client  // shows the reader's credential; every action goes through it
	State *watch.State // as it is now
	Now   time.Time
	Title string // load may set it

	server *server
}

// data loads a page for its reader.
func (r *request) data(p *page) (any, error) {
	if !r.Who.Guest {
		return p.load(r)
	}
	if !r.mayOpen(p) {
		return nil, errGuest
	}
	return p.glance(r)
}

// errGuest is why a guest does not get a page.
var errGuest = &Problem{Status: http.StatusServiceUnavailable, Title: "No aggregator answers", Detail: "Nobody can be asked who you are, and what you may see.",
	Do: "The overview shows the chain meanwhile.", Link: "/"}

// ctx ends with the request.
func (r *request) ctx() context.Context { return r.Request.Context() }

// may reports whether the reader has a role.
func (r *request) may(least access.Role) bool { return r.Who.May(least) == nil }

// mayOpen reports whether a reader gets a page.
func (r *request) mayOpen(p *page) bool {
	if r.Who.Guest {
		return p.glance != nil && (r.Who.Near || p.open)
	}
	return r.may(p.least)
}

// query is the address's parameters, of a GET.
func (r *request) query() url.Values { return r.URL.Query() }
