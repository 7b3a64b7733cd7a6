package config

import (
	"fmt"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/document"
)

// Defaults of a file.
const (
	defaultWait     = 2 * time.Second
	defaultEvery    = 5 * time.Minute
	defaultMessages = 20
	defaultPer      = time.Minute
	defaultTimeout  = 10 * time.Second
	defaultPoll     = 5 * time.Second
	defaultAbove    = 0.05
	defaultKeys     = 10
	defaultHitsFor  = 30 * time.Second
	defaultLag      = 30 * time.Second
	defaultFor      = 10 * time.Second
)

// Load reads a file. getenv looks into the environment, for secrets that have to be there.
func Load(file string, getenv func(string) string) (*Config, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read --notify: %w", err)
	}
	return Parse(file, src, getenv)
}

// Parse reads a file's text, and tells every mistake in it. No error shows what may be a secret.
func Parse(name string, src []byte, getenv func(string) string) (*Config, error) {
	r := &reader{receive.Fields{File: document.New(name, src, words), Getenv: getenv}, &Config{}}
	if r.Parse(src) {
		r.file(r.Root)
	}
	if err := r.Err(); err != nil {
		return nil, masked(err)
	}
	return r.c, nil
}

type reader struct {
	receive.Fields
	c *Config
}

func (r *reader) file(n *yaml.Node) {
	o, ok := r.Object(n, "the file", "receivers", "routes", "watch", "console")
	if !ok {
		return
	}
	if n := r.Required(o, "receivers", "as in receivers: [{name: chat, slack: {url_file: /etc/tallygate/slack-url}}]"); n != nil {
		for _, item := range r.List(n, "receivers") {
			r.receiver(item)
		}
	}
	if n := r.Required(o, "routes", "as in routes: [{name: oncall, on: [fuse, enforcer-stale], to: [chat]}]"); n != nil {
		for _, item := range r.List(n, "routes") {
			r.route(item)
		}
	}
	r.watch(o.Get("watch"))
	if n := o.Get("console"); n != nil {
		if text, ok := r.Text(n, "console"); ok {
			if u, err := url.Parse(text); err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http" || u.User != nil {
				r.Fail(n, "as in console: https://console.example.com", "console is the console's address")
			}
			r.c.Console = text
		}
	}
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

func (r *reader) name(o *document.Object, what string) string {
	n := r.Required(o, "name", "as in name: oncall")
	if n == nil {
		return ""
	}
	name, ok := r.Text(n, what+"'s name")
	if ok && !validName.MatchString(name) {
		r.Fail(n, "", "%s's name has 1 to 64 of a-z, 0-9 and `-`", what)
	}
	return name
}

func (r *reader) route(n *yaml.Node) {
	o, ok := r.Object(n, "a route", "name", "on", "rules", "to", "wait", "every", "rate", "resolved", "title", "text")
	if !ok {
		return
	}
	to := &Route{Name: r.name(o, "a route"), Wait: defaultWait, Every: defaultEvery, Messages: defaultMessages, Per: defaultPer, Resolved: true}
	if slices.ContainsFunc(r.c.Routes, func(other *Route) bool { return other.Name == to.Name && to.Name != "" }) {
		r.Fail(o.At("name"), "", "there are two routes of this name")
	}
	if n := r.Required(o, "on", "as in on: [fuse, enforcer-stale]"); n != nil {
		for _, item := range r.OneOrMore(n, "on") {
			if word, ok := r.Word(item, "on", kinds()...); ok {
				to.On = append(to.On, note.Kind(word))
			}
		}
	}
	if n := o.Get("rules"); n != nil {
		for _, item := range r.OneOrMore(n, "rules") {
			pattern, ok := r.Text(item, "a rule's name")
			if _, err := path.Match(pattern, "x"); ok && err != nil {
				r.Fail(item, "* stands for any characters, ? for one", "this is no pattern of rules' names")
			}
			to.Rules = append(to.Rules, pattern)
		}
	}
	if n := r.Required(o, "to", "as in to: [chat]"); n != nil {
		for _, item := range r.OneOrMore(n, "to") {
			if name, ok := r.Text(item, "a receiver's name"); ok {
				r.routeTo(item, to, name)
			}
		}
	}
	r.SpanOf(o, "wait", &to.Wait)
	r.SpanOf(o, "every", &to.Every)
	r.rate(o.Get("rate"), to)
	if n := o.Get("resolved"); n != nil {
		to.Resolved = r.Bool(n, "resolved")
	}
	to.Title, to.Text = r.template(o, to, "title"), r.template(o, to, "text")
	r.c.Routes = append(r.c.Routes, to)
}

func kinds() (words []string) {
	for _, k := range note.Kinds() {
		words = append(words, string(k))
	}
	return words
}

func (r *reader) routeTo(n *yaml.Node, to *Route, name string) {
	var names []string
	for _, known := range r.c.Receivers {
		names = append(names, known.Name)
	}
	switch {
	case !slices.Contains(names, name):
		r.Fail(n, "the receivers here are "+strings.Join(names, ", "), "there is no receiver of this name%s", document.DidYouMean(name, names))
	case slices.Contains(to.To, name):
		r.Fail(n, "", "this receiver is named twice")
	default:
		to.To = append(to.To, name)
	}
}

// rate reads a bound, such as 20/1m.
func (r *reader) rate(n *yaml.Node, to *Route) {
	if n == nil {
		return
	}
	const hint = "as in rate: 20/1m; rate: none has no bound"
	text, ok := r.Text(n, "rate")
	if !ok {
		return
	}
	if text == "none" {
		to.Messages, to.Per = 0, 0
		return
	}
	count, per, ok := strings.Cut(text, "/")
	messages, err := strconv.Atoi(strings.TrimSpace(count))
	span, spanErr := parseSpan(strings.TrimSpace(per))
	if !ok || err != nil || spanErr != nil || messages < 1 || messages > 100_000 || span <= 0 {
		r.Fail(n, hint, "rate is a number of messages in a time")
		return
	}
	to.Messages, to.Per = messages, span
}

func parseSpan(text string) (time.Duration, error) {
	span, err := rules.ParseDuration(text)
	return span.Duration(), err
}

// template reads one, and tries it with a message of each kind.
func (r *reader) template(o *document.Object, to *Route, field string) *template.Template {
	n := o.Get(field)
	if n == nil {
		return nil
	}
	text, ok := r.Text(n, field)
	if !ok {
		return nil
	}
	t, err := template.New(field).Option("missingkey=error").Funcs(template.FuncMap{"clock": note.Clock}).Parse(text)
	if err == nil {
		for _, kind := range to.On {
			if _, err = render(t, sample(to.Name, kind), note.MaxText); err != nil {
				break
			}
		}
	}
	if err != nil {
		message := strings.TrimPrefix(strings.TrimPrefix(err.Error(), "fill in a template: "), "template: ")
		r.Fail(n, "the fields are .Title, .Kind, .State, .Route, .Rule, .Subject, .Count, .Dropped, .First, .Last, .Link, .ID and, of each of .Examples, .At, .Rule, .Subject, .What, .Key, .KeyText, .By, .For, .Reason, .Line", "%s: %s", field, message)
		return nil
	}
	return t
}

// sample is a message to try a template with.
func sample(route string, kind note.Kind) *note.Message {
	at := time.Date(2026, 11, 21, 10, 0, 0, 0, time.UTC)
	e := note.Example{At: at, Rule: "search-combined", Subject: "enforcer-1", What: "block", Key: map[string]string{"uid": note.Mask}, KeyText: "uid=" + note.Mask, By: "alice", For: "bob", Reason: "stolen card"}
	m := &note.Message{Version: 1, ID: "sample", Kind: kind, State: note.Happened, Route: route, Rule: e.Rule, Subject: e.Subject, Count: 2, Dropped: 1, First: at, Last: at, Examples: []note.Example{e, e}, Link: "https://console.example.com/"}
	m.Describe()
	return m
}
