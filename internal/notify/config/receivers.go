package config

import (
	"net"
	"net/mail"
	"net/url"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/document"
)

// Types are what a receiver may be.
var types = []string{"webhook", "slack", "teams", "alertmanager", "email"}

// The fields of each type. A plain url is for those whose address is no secret.
var typeFields = map[string][]string{
	"webhook":      {"url", "url_file", "url_env", "secret_file", "secret_env", "secret_files", "token_file", "token_env", "ca", "plain_http"},
	"slack":        {"url_file", "url_env", "ca", "plain_http"},
	"teams":        {"url_file", "url_env", "ca", "plain_http"},
	"alertmanager": {"url", "url_file", "url_env", "token_file", "token_env", "ca", "plain_http", "repeat", "keep", "labels"},
	"email":        {"server", "tls", "from", "to", "user", "password_file", "password_env", "ca"},
}

func (r *reader) receiver(n *yaml.Node) {
	o, ok := r.Object(n, "a receiver", append([]string{"name", "keys", "timeout", "max_age"}, types...)...)
	if !ok {
		return
	}
	to := &Receiver{Name: r.name(o, "a receiver"), Timeout: defaultTimeout, Repeat: defaultRepeat, Keep: defaultKeep}
	if r.c.Receiver(to.Name) != nil && to.Name != "" {
		r.Fail(o.At("name"), "", "there are two receivers of this name")
	}
	if n := o.Get("keys"); n != nil {
		word, _ := r.Word(n, "keys", "masked", "shown")
		to.Shown = word == "shown"
	}
	r.span(o, "timeout", &to.Timeout)
	r.span(o, "max_age", &to.MaxAge)
	if to.Timeout < 100*time.Millisecond || to.Timeout > time.Minute {
		r.Fail(o.At("timeout"), "", "timeout is from 100ms to 1m")
	}
	given := slices.DeleteFunc(slices.Clone(types), func(t string) bool { return !o.Has(t) })
	if len(given) != 1 {
		r.Fail(o.Node, "as in {name: chat, slack: {url_file: /etc/tallygate/slack-url}}", "a receiver is one of %s", strings.Join(types, ", "))
		return
	}
	if to.Type = given[0]; o.Get(to.Type) != nil {
		r.reached(o.Get(to.Type), to)
	}
	r.c.Receivers = append(r.c.Receivers, to)
}

// reached reads how a receiver is.
func (r *reader) reached(n *yaml.Node, to *Receiver) {
	o, ok := r.Object(n, to.Type, typeFields[to.Type]...)
	if !ok {
		return
	}
	r.textIf(o, "ca", &to.CA)
	if to.Type == "email" {
		r.email(o, to)
		return
	}
	if n := o.Get("plain_http"); n != nil {
		to.PlainHTTP = r.Bool(n, "plain_http")
	}
	hint := "name a file with the address, as in url_file: /etc/tallygate/" + to.Name + "-url"
	if to.URL = r.value(o, "url"); !to.URL.Given() && o.Sound() {
		r.Fail(o.Node, hint, "%s needs an address", to.Type)
	}
	if text, err := to.URL.Read(r.getenv); err == nil && to.URL.Given() {
		if problem := CheckURL(text, to.PlainHTTP); problem != "" {
			r.Fail(firstOf(o, "url", "url_file", "url_env"), "", "%s", problem)
		}
	}
	to.Token = r.value(o, "token")
	if secret := r.value(o, "secret"); secret.Given() {
		to.Secrets = append(to.Secrets, secret)
	}
	if n := o.Get("secret_files"); n != nil {
		for _, item := range r.List(n, "secret_files") {
			if file, ok := r.Text(item, "a file"); ok {
				to.Secrets = append(to.Secrets, r.readable(item, Value{File: file}))
			}
		}
	}
	r.span(o, "repeat", &to.Repeat)
	r.span(o, "keep", &to.Keep)
	if n := o.Get("labels"); n != nil {
		pairs, _ := r.Pairs(n, "labels")
		to.Labels = map[string]string{}
		for _, p := range pairs {
			to.Labels[p.Key.Value], _ = r.Text(p.Value, "a label")
		}
	}
	if to.Repeat < time.Second || to.Keep < time.Second {
		r.Fail(firstOf(o, "repeat", "keep"), "", "repeat and keep are at least 1s")
	}
}

func firstOf(o *document.Object, fields ...string) *yaml.Node {
	for _, field := range fields {
		if n := o.Get(field); n != nil {
			return n
		}
	}
	return o.Node
}

// CheckURL says what is wrong with a receiver's address, without the address; "" if nothing is.
func CheckURL(text string, plain bool) string {
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return "the address is not as in https://HOST/PATH"
	case u.User != nil:
		return "the address has a user in it: name a token by token_file"
	case u.Scheme == "https", u.Scheme == "http" && (plain || isLoopback(u.Hostname())):
		return ""
	case u.Scheme == "http":
		return "the address is http://, beyond this machine: use https://, or say plain_http: true"
	}
	return "the address is neither https:// nor http://"
}

func isLoopback(host string) bool {
	if host == "localhost" {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// value reads a text from a field, a file or the environment.
func (r *reader) value(o *document.Object, field string) (v Value) {
	given := 0
	for suffix, into := range map[string]*string{"": &v.Plain, "_file": &v.File, "_env": &v.Env} {
		if n := o.Get(field + suffix); n != nil {
			given++
			*into, _ = r.Text(n, field+suffix)
		}
	}
	if given > 1 {
		r.Fail(firstOf(o, field, field+"_file", field+"_env"), "", "give one of %s, %s_file and %s_env", field, field, field)
		return v
	}
	return r.readable(firstOf(o, field, field+"_file", field+"_env"), v)
}

// readable reports a secret that cannot be read now.
func (r *reader) readable(n *yaml.Node, v Value) Value {
	if v.Given() && v.Plain == "" {
		if _, err := v.Read(r.getenv); err != nil {
			r.Fail(n, "", "%v", err)
		}
	}
	return v
}

func (r *reader) textIf(o *document.Object, field string, into *string) {
	if n := o.Get(field); n != nil {
		*into, _ = r.Text(n, field)
	}
}

func (r *reader) email(o *document.Object, to *Receiver) {
	e := &Email{TLS: "starttls"}
	to.Email = e
	if n := r.required(o, "server", "as in server: smtp.example.com:587"); n != nil {
		e.Server, _ = r.Text(n, "server")
		if host, port, err := net.SplitHostPort(e.Server); err != nil || host == "" || port == "" {
			r.Fail(n, "as in server: smtp.example.com:587", "server is HOST:PORT")
		}
	}
	if n := o.Get("tls"); n != nil {
		e.TLS, _ = r.Word(n, "tls", "starttls", "tls", "none")
	}
	if n := r.required(o, "from", "as in from: tallygate@example.com"); n != nil {
		e.From = r.address(n)
	}
	if n := r.required(o, "to", "as in to: [oncall@example.com]"); n != nil {
		for _, item := range r.OneOrMore(n, "to") {
			e.To = append(e.To, r.address(item))
		}
	}
	r.textIf(o, "user", &e.User)
	e.Password = r.value(o, "password")
	host, _, _ := net.SplitHostPort(e.Server)
	switch {
	case (e.User == "") == e.Password.Given():
		r.Fail(o.Node, "as in user: tallygate, password_file: /etc/tallygate/smtp-password", "user and password need each other")
	case e.TLS == "none" && e.User != "" && !isLoopback(host):
		r.Fail(o.At("tls"), "use starttls or tls", "without TLS everybody on the way reads the password")
	}
}

// address reads one of e-mail. A mail's headers have it, so it is one line, and nothing but an address.
func (r *reader) address(n *yaml.Node) string {
	text, ok := r.Text(n, "an address")
	if a, err := mail.ParseAddress(text); ok && (err != nil || a.Address != text) {
		r.Fail(n, "as in oncall@example.com, without a name", "this is no address of e-mail")
	}
	return text
}

func parseSpan(text string) (time.Duration, error) {
	span, err := rules.ParseDuration(text)
	return span.Duration(), err
}

// watch reads when states begin.
func (r *reader) watch(n *yaml.Node) {
	w := &r.c.Watch
	*w = Watch{Poll: defaultPoll, HitsAbove: defaultAbove, HitsFor: defaultHitsFor, HitsKeys: defaultKeys, LagAbove: defaultLag, LagFor: defaultFor, StaleFor: defaultFor, GoneFor: defaultFor}
	defer func() {
		if w.HitsBelow == 0 {
			w.HitsBelow = w.HitsAbove * 0.8
		}
	}()
	if n == nil {
		return
	}
	o, ok := r.Object(n, "watch", "poll", "hits", "lag", "enforcers", "aggregators")
	if !ok {
		return
	}
	r.span(o, "poll", &w.Poll)
	if w.Poll < time.Second || w.Poll > time.Minute {
		r.Fail(o.At("poll"), "", "poll is from 1s to 1m")
	}
	inside := func(field string, known ...string) *document.Object {
		if n := o.Get(field); n != nil {
			if o, ok := r.Object(n, field, known...); ok {
				return o
			}
		}
		return &document.Object{Node: n}
	}
	hits := inside("hits", "above", "below", "for", "keys")
	r.share(hits, "above", &w.HitsAbove)
	r.share(hits, "below", &w.HitsBelow)
	r.span(hits, "for", &w.HitsFor)
	if n := hits.Get("keys"); n != nil {
		w.HitsKeys = r.number(n, "keys")
	}
	if w.HitsBelow > w.HitsAbove {
		r.Fail(hits.At("below"), "the state ends below it, so it is the smaller one", "below is more than above")
	}
	lag := inside("lag", "above", "for")
	r.span(lag, "above", &w.LagAbove)
	r.span(lag, "for", &w.LagFor)
	r.span(inside("enforcers", "for"), "for", &w.StaleFor)
	r.span(inside("aggregators", "for"), "for", &w.GoneFor)
}
