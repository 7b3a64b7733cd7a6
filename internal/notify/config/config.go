// Package config reads the file of tallygate notify: receivers, routes, and what is watched. Secrets are in
// files or in the environment that it names, never in it.
package config

import (
	"bytes"
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
)

// Config is a whole file.
type Config struct {
	Receivers []*Receiver
	Routes    []*Route
	Watch     Watch
	Console   string // where the console is, for links; "" is none
}

// Receiver is one that messages are sent to.
type Receiver = receive.Config

// Route selects notes for receivers.
type Route struct {
	Name     string
	On       []note.Kind
	Rules    []string // patterns; none: all, and what is about no rule
	To       []string
	Wait     time.Duration
	Every    time.Duration
	Messages int
	Per      time.Duration
	Resolved bool // the end of a state is told, too

	Title, Text *template.Template // nil: the default
}

// Watch sets the thresholds of states.
type Watch struct {
	Poll      time.Duration // how often is looked
	HitsAbove float64       // a share of the active keys, 0 to 1
	HitsBelow float64       // at which the state ends again
	HitsFor   time.Duration // how long it must last
	HitsKeys  int           // fewer blocked keys are none
	LagAbove  time.Duration
	LagFor    time.Duration
	StaleFor  time.Duration // an enforcer must be stale, or gone, for so long
	GoneFor   time.Duration // aggregators must not answer for so long
}

// Receiver finds one by its name; nil if there is none.
func (c *Config) Receiver(name string) *Receiver {
	if i := slices.IndexFunc(c.Receivers, func(r *Receiver) bool { return r.Name == name }); i >= 0 {
		return c.Receivers[i]
	}
	return nil
}

// RoutesTo are the routes that lead to a receiver.
func (c *Config) RoutesTo(receiver string) (all []*Route) {
	for _, r := range c.Routes {
		if slices.Contains(r.To, receiver) {
			all = append(all, r)
		}
	}
	return all
}

// Needs reports whether some route is about one of these kinds.
func (c *Config) Needs(kinds ...note.Kind) bool {
	return slices.ContainsFunc(c.Routes, func(r *Route) bool {
		return slices.ContainsFunc(kinds, func(k note.Kind) bool { return slices.Contains(r.On, k) })
	})
}

// Wants reports whether a route tells a note.
func (r *Route) Wants(n *note.Note) bool {
	switch {
	case !slices.Contains(r.On, n.Kind):
		return false
	case n.State == note.Resolved && !r.Resolved:
		return false
	case len(n.Routes) > 0 && !slices.Contains(n.Routes, r.Name):
		return false
	case len(r.Rules) == 0:
		return true
	}
	rule, _, _ := strings.Cut(n.Rule, "/")
	return slices.ContainsFunc(r.Rules, func(pattern string) bool {
		ok, err := path.Match(pattern, rule)
		return ok && err == nil
	})
}

// Render fills in a message's title and text.
func (r *Route) Render(m *note.Message) error {
	title, titleErr := render(r.Title, m, note.MaxTitle)
	text, textErr := render(r.Text, m, note.MaxText)
	m.Title, m.Text = title, text
	m.Describe()
	return cmp.Or(titleErr, textErr)
}

func render(t *template.Template, m *note.Message, most int) (string, error) {
	if t == nil {
		return "", nil
	}
	out := bounded{most: most}
	if err := t.Execute(&out, m); err != nil && !out.full {
		return "", fmt.Errorf("fill in a template: %w", err)
	}
	return strings.TrimSpace(out.String()), nil
}

// bounded takes a little more than fits, so that what was cut shows.
type bounded struct {
	bytes.Buffer
	most int
	full bool
}

func (b *bounded) Write(p []byte) (int, error) {
	if room := b.most + 4 - b.Len(); len(p) > room {
		b.full = true
		b.Buffer.Write(p[:max(room, 0)])
		return 0, errFull
	}
	return b.Buffer.Write(p)
}

var errFull = fmt.Errorf("more than fits")
