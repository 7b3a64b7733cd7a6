package receive

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
)

// Config is one receiver of the file.
type Config struct {
	Name string
	Type string // the name of one of Types

	URL       Value   // but email
	Secrets   []Value // webhook: that sign, each one
	Token     Value   // webhook, alertmanager: a bearer token
	CA        string  // a file with the certificates to trust; "" is the system's
	PlainHTTP bool    // http also beyond this machine

	Shown   bool          // keys are shown
	Timeout time.Duration // of one attempt
	MaxAge  time.Duration // older notes are dropped; 0: none are

	Repeat time.Duration     // alertmanager: how often a state that lasts is told again
	Keep   time.Duration     // alertmanager: how long what merely happened is an alert
	Labels map[string]string // alertmanager: beside ours

	Email *Email
}

// Value is a text that stands in the file, in a file of its own, or in the environment.
type Value struct{ Plain, File, Env string }

// Given reports whether there is one.
func (v Value) Given() bool { return v != Value{} }

// Read returns the text as it is now. Its error does not tell it.
func (v Value) Read(getenv func(string) string) (string, error) {
	switch {
	case v.File != "":
		text, err := os.ReadFile(v.File)
		if err != nil {
			return "", fmt.Errorf("read a secret: %w", err)
		}
		secret := strings.TrimRight(string(text), "\r\n")
		if secret == "" {
			return "", fmt.Errorf("read a secret: %s is empty", v.File)
		}
		return secret, nil
	case v.Env != "":
		if secret := getenv(v.Env); secret != "" {
			return secret, nil
		}
		return "", fmt.Errorf("read a secret: %s is not in the environment", v.Env)
	}
	return v.Plain, nil
}

// Fields reads the fields of a file.
type Fields struct {
	*document.File
	Getenv func(string) string
}

// Required returns a field; without it, it reports the mistake.
func (r *Fields) Required(o *document.Object, field, hint string) *yaml.Node {
	n := o.Get(field)
	if n == nil && !o.Spoilt(field) {
		r.Fail(o.Node, hint, "there is no `%s`", field)
	}
	return n
}

// SpanOf reads a duration, if it is there.
func (r *Fields) SpanOf(o *document.Object, field string, into *time.Duration) {
	if n := o.Get(field); n != nil {
		if span, ok := r.Span(n, field); ok {
			*into = span.Duration()
		}
	}
}

// http reads the fields of those that are posted to.
func (r *Fields) http(o *document.Object, to *Config) {
	if n := o.Get("plain_http"); n != nil {
		to.PlainHTTP = r.Bool(n, "plain_http")
	}
	hint := "name a file with the address, as in url_file: /etc/tallygate/" + to.Name + "-url"
	if to.URL = r.value(o, "url"); !to.URL.Given() && o.Sound() {
		r.Fail(o.Node, hint, "%s needs an address", to.Type)
	}
	if text, err := to.URL.Read(r.Getenv); err == nil && to.URL.Given() {
		if problem := checkURL(text, to.PlainHTTP); problem != "" {
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
	r.SpanOf(o, "repeat", &to.Repeat)
	r.SpanOf(o, "keep", &to.Keep)
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

// checkURL returns a receiver's address's mistake, without the address; "" if it is good.
func checkURL(text string, plain bool) string {
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
func (r *Fields) value(o *document.Object, field string) (v Value) {
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
func (r *Fields) readable(n *yaml.Node, v Value) Value {
	if v.Given() && v.Plain == "" {
		if _, err := v.Read(r.Getenv); err != nil {
			r.Fail(n, "", "%v", err)
		}
	}
	return v
}

func (r *Fields) textIf(o *document.Object, field string, into *string) {
	if n := o.Get(field); n != nil {
		*into, _ = r.Text(n, field)
	}
}
