package proxies

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// recipe is how one proxy is run, and what of its configuration makes it deny while the decision
// server is away.
type recipe struct {
	program  string
	file     string
	more     []string // files beside it
	args     func(dir, file string) []string
	closed   []string // changes to the file, as pairs of old and new
	down     int      // the status then
	never    bool     // it cannot be open
	misnamed []string // a change to the file by which the caller is no longer identified; nil: it always is
	stale    int      // the status of a rule that is closed while the blocklist is stale; 0 is 503
	section  string   // of the page
}

func envoy(file, open, closed string, down int) recipe {
	return recipe{program: "envoy", file: file, section: "Envoy", closed: []string{open, closed}, down: down, args: func(_, file string) []string {
		return []string{"-c", file, "--use-dynamic-base-id", "--concurrency", "1", "--log-level", "warning"}
	}}
}

var recipes = map[string]recipe{
	"nginx": {program: "nginx", section: "nginx", file: "nginx.conf", down: http.StatusServiceUnavailable,
		closed: []string{"error_page 500 502 504 = @away;", ""}, misnamed: []string{"X-Tallygate-Ip ", "X-Ip "},
		args: func(dir, _ string) []string { return []string{"-p", dir, "-c", "main.conf", "-e", "stderr"} }},
	"haproxy": {program: "haproxy", section: "HAProxy", file: "haproxy.cfg", more: []string{"tallygate.lua"}, down: http.StatusServiceUnavailable,
		closed: []string{"#closed ", ""},
		args:   func(_, file string) []string { return []string{"-db", "-f", file} }},
	"caddy": {program: "caddy", section: "Caddy", file: "Caddyfile", down: http.StatusBadGateway,
		closed: []string{"reverse_proxy @away 127.0.0.1:8000", ""}, misnamed: []string{"X-Tallygate-Ip", "X-Ip"},
		args: func(_, file string) []string { return []string{"run", "--config", file, "--adapter", "caddyfile"} }},
	"traefik": {program: "traefik", section: "Traefik", file: "traefik.yaml", more: []string{"traefik-static.yaml"}, never: true, down: http.StatusInternalServerError,
		args: func(string, string) []string { return []string{"--configFile=traefik-static.yaml"} }},
	"envoy-ratelimit":      only429(envoy("envoy-ratelimit.yaml", "failure_mode_deny: false", "failure_mode_deny: true", http.StatusInternalServerError)),
	"envoy-ext-authz-grpc": envoy("envoy-ext-authz-grpc.yaml", "failure_mode_allow: true", "failure_mode_allow: false", http.StatusServiceUnavailable),
	"envoy-ext-authz-http": only429(envoy("envoy-ext-authz-http.yaml", "failure_mode_allow: true", "failure_mode_allow: false", http.StatusServiceUnavailable)),
}

// only429 is for those who take a 5xx of the decision server for its failure, or have no other
// denial than this.
func only429(c recipe) recipe {
	c.stale = http.StatusTooManyRequests
	return c
}

// nginxMain is what /etc/nginx/nginx.conf does around conf.d, with everything in a folder of the
// test's.
const nginxMain = `daemon off; pid nginx.pid; worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    include nginx.conf;
}
`

// run starts the proxy with its file, changed or not.
func (c recipe) run(r *rig, changes ...string) {
	r.t.Helper()
	path, dir := program(r.t, c.program), r.t.TempDir()
	for _, name := range c.more {
		r.config(dir, name)
	}
	file := r.config(dir, c.file, changes...)
	if c.program == "nginx" {
		if err := os.WriteFile(filepath.Join(dir, "main.conf"), []byte(nginxMain), 0o600); err != nil {
			r.t.Fatal(err)
		}
	}
	r.start(dir, path, c.args(dir, file)...)
	if c.program == "traefik" { // it listens before it knows its routes
		r.eventually("it has routes", func() bool { return r.ask(http.MethodGet, "/").status != http.StatusNotFound })
	}
}

// Behind every proxy, who is blocked gets 429 and is told when to come back; others get to the app.
// With the decision server away, the proxy does what its configuration says.
func TestProxies(t *testing.T) {
	for name, c := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program(t, c.program)
			t.Run("open", func(t *testing.T) {
				r := newRig(t, runsWith(t, c.file))
				c.run(r)
				passes(r)
				denies(r)
				spoofs(r)
				if c.never {
					return
				}
				r.stopOnce()
				r.eventually("requests pass while the decision server is away", func() bool {
					a := r.ask(http.MethodGet, "/search", "X-User: 42")
					return a.status == http.StatusOK && strings.HasPrefix(a.body, "the app got GET /search")
				})
				if a := r.ask(http.MethodPost, "/search?q=1", "X-User: 42"); a.status != http.StatusOK || a.body != `the app got POST /search and "what was posted"` {
					t.Errorf("POST while the decision server is away: %+v", a)
				}
			})
			t.Run("closed", func(t *testing.T) {
				r := newRig(t, runsWith(t, c.file))
				c.run(r, c.closed...)
				if a := r.ask(http.MethodGet, "/search", "X-User: 43"); a.status != http.StatusOK {
					t.Errorf("another user: %+v", a)
				}
				if a := r.ask(http.MethodGet, "/search", "X-User: 42"); a.status != http.StatusTooManyRequests {
					t.Errorf("who is blocked: %+v", a)
				}
				r.stopOnce()
				r.eventually("requests are denied while the decision server is away", func() bool {
					return r.ask(http.MethodGet, "/search", "X-User: 43").status == c.down
				})
			})
			if c.misnamed != nil {
				t.Run("nobody", func(t *testing.T) {
					r := newRig(t, runsWith(t, c.file))
					c.run(r, c.misnamed...)
					if a := r.ask(http.MethodGet, "/search", "X-User: 43"); a.status != http.StatusOK {
						t.Errorf("a user: %+v", a)
					}
					if a := r.ask(http.MethodGet, "/search"); a.status != http.StatusBadRequest {
						t.Errorf("nobody: %+v", a)
					}
				})
			}
			t.Run("stale", func(t *testing.T) {
				r := newDoubtfulRig(t, runsWith(t, c.file))
				c.run(r)
				if a := r.ask(http.MethodGet, "/search", "X-User: 43"); a.status != http.StatusOK {
					t.Errorf("what isn't closed: %+v", a)
				}
				a := r.ask(http.MethodGet, "/orders", "X-User: 43")
				if a.status != cmp.Or(c.stale, http.StatusServiceUnavailable) || a.header.Get("Retry-After")+a.header.Get("RateLimit") != "" {
					t.Errorf("what is closed, behind a proxy that is open: %+v", a)
				}
			})
		})
	}
}

// passes checks what is let through to the app, as it came.
func passes(r *rig) {
	r.t.Helper()
	for _, c := range []struct{ method, path, header string }{
		{http.MethodGet, "/search?q=x", "X-User: 43"},
		{http.MethodGet, "/search", "X-Nobody: 42"},
		{http.MethodGet, "/orders", "X-User: 42"}, // the verdict is about another API
		{http.MethodGet, "/", "X-User: 42"},
		{http.MethodPost, "/search", "X-User: 42"}, // a GET is blocked
		{http.MethodGet, "/search", "X-User: 7"},   // a POST is blocked
	} {
		a := r.ask(c.method, c.path, c.header)
		path, _, _ := strings.Cut(c.path, "?")
		if a.status != http.StatusOK || !strings.HasPrefix(a.body, "the app got "+c.method+" "+path+" and ") {
			r.t.Errorf("%s %s of %s: %+v", c.method, c.path, c.header, a)
		}
		if c.method == http.MethodPost && !strings.Contains(a.body, "what was posted") {
			r.t.Errorf("the body is lost: %+v", a)
		}
		for _, h := range []string{"Retry-After", "RateLimit"} {
			if a.header.Get(h) != "" {
				r.t.Errorf("%s on a request that passed: %+v", h, a)
			}
		}
	}
	if a := r.ask(http.MethodGet, "/forbidden", "X-User: 43"); a.status != http.StatusForbidden || !strings.Contains(a.body, "the app says no") {
		r.t.Errorf("the app's own 403: %+v", a)
	}
}

// denies checks what a denied client is told.
func denies(r *rig) {
	r.t.Helper()
	for about, a := range map[string]answer{
		"GET":        r.ask(http.MethodGet, "/search?q=x", "X-User: 42"),
		"deeper":     r.ask(http.MethodGet, "//search/", "X-User: 42"),
		"encoded":    r.ask(http.MethodGet, "/%73earch", "X-User: 42"),
		"dots":       r.ask(http.MethodGet, "/x/%2e%2e/search", "X-User: 42"),
		"POST":       r.ask(http.MethodPost, "/search", "X-User: 7"),
		"by address": r.askFrom("127.0.0.9", http.MethodGet, "/anything"),
	} {
		if a.status != http.StatusTooManyRequests {
			r.t.Errorf("%s: %+v", about, a)
			continue
		}
		if after, err := strconv.Atoi(a.header.Get("Retry-After")); err != nil || after < 200 || after > 300 {
			r.t.Errorf("%s: Retry-After is %q", about, a.header.Get("Retry-After"))
		}
		for name, begin := range map[string]string{"RateLimit": `"searches";r=0;t=`, "RateLimit-Policy": `"searches";q=100`,
			"Content-Type": "application/problem+json", "Cache-Control": "no-store"} {
			if v := a.header.Values(name); len(v) != 1 || !strings.HasPrefix(v[0], begin) {
				r.t.Errorf("%s: %s is %q", about, name, v)
			}
		}
		if told := fmt.Sprint(a.header, a.body); strings.Contains(told, "detector") {
			r.t.Errorf("%s: the rule's own name is told: %s", about, told)
		}
		var problem struct {
			Type   string
			Status int
			After  int `json:"retry_after"`
		}
		if err := json.Unmarshal([]byte(a.body), &problem); err != nil || problem.Status != 429 || problem.After < 200 || !strings.Contains(problem.Type, "quota-exceeded") {
			r.t.Errorf("%s: the body is %s", about, a.body)
		}
	}
	if a := r.ask(http.MethodHead, "/search", "X-User: 42"); a.status != http.StatusTooManyRequests {
		r.t.Errorf("HEAD of what is blocked: %+v", a)
	}
	if a := r.ask(http.MethodHead, "/nothing", "X-User: 42"); a.status != http.StatusOK {
		r.t.Errorf("HEAD: %+v", a)
	}
}

// spoofs checks that a client can neither get out of its own verdict nor into another's.
func spoofs(r *rig) {
	r.t.Helper()
	for _, h := range []string{"X-Tallygate-Uid: 43", "X-Tallygate-Api: harmless", "X-Original-Uri: /harmless", "X-Original-Url: http://x/harmless",
		"X-Forwarded-Uri: /harmless", "X-Original-Method: PUT", "X-Forwarded-Method: PUT"} {
		if a := r.ask(http.MethodGet, "/search", "X-User: 42", h); a.status != http.StatusTooManyRequests {
			r.t.Errorf("%s gets around the verdict: %+v", h, a)
		}
	}
	for _, h := range []string{"X-Tallygate-Ip: 127.0.0.1", "X-Forwarded-For: 127.0.0.1", "X-Real-Ip: 127.0.0.1"} {
		if a := r.askFrom("127.0.0.9", http.MethodGet, "/", h); a.status != http.StatusTooManyRequests {
			r.t.Errorf("%s gets around the verdict: %+v", h, a)
		}
	}
	for _, h := range []string{"X-Tallygate-Uid: 42", "X-Tallygate-Ip: 127.0.0.9", "X-Forwarded-For: 127.0.0.9"} {
		if a := r.ask(http.MethodGet, "/search", h); a.status != http.StatusOK {
			r.t.Errorf("%s gets into another's verdict: %+v", h, a)
		}
	}
}
