package session

import (
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8090}
	anywhere = &net.TCPAddr{IP: net.IPv4zero, Port: 8090}
)

// aggregator answers GET /v1/whoami as the program does: by the same guard.
type aggregator struct {
	*httptest.Server
	tokens string // the file
	asked  atomic.Int32
	down   atomic.Bool
}

// anAggregator knows tokens that are called as their roles; with open it requires none.
func anAggregator(t *testing.T, open bool, v access.Verifier) *aggregator {
	t.Helper()
	a := &aggregator{}
	cfg := access.Config{Addr: loopback, Verifier: v, Logger: logger(t)}
	if !open {
		a.tokens = filepath.Join(t.TempDir(), "tokens.yaml")
		a.give(t, "viewer", "operator", "admin", "service")
		cfg.Tokens = a.tokens
	}
	guard, err := access.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	whoami := guard.Require(access.Viewer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := access.From(r.Context())
		by := string(id.By)
		if by == "" {
			by = "none"
		}
		httpjson.Reply(w, map[string]string{"name": id.Name, "role": id.Role.String(), "credential": by})
	}))
	a.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.asked.Add(1)
		if a.down.Load() {
			httpjson.Problem(w, http.StatusServiceUnavailable, "it starts")
			return
		}
		whoami.ServeHTTP(w, r)
	}))
	t.Cleanup(a.Close)
	return a
}

// give makes the file one with these roles' tokens, and with groups of the same names.
func (a *aggregator) give(t *testing.T, roles ...string) {
	t.Helper()
	var text strings.Builder
	text.WriteString("- {name: nobody, role: viewer, group: nobody}\n")
	for _, role := range roles {
		fmt.Fprintf(&text, "- {name: the-%[1]s, role: %[1]s, sha256: %[2]x, group: team-%[1]s}\n", role, sha256.Sum256([]byte(role)))
	}
	if err := os.WriteFile(a.tokens, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}

func logger(t *testing.T) *slog.Logger { return slog.New(slog.NewTextHandler(t.Output(), nil)) }

// console is one with a page for each role, /events, and what a reader does with a form.
type console struct {
	*httptest.Server
	*Manager
	t     *testing.T
	log   *testrun.Output
	pages *http.ServeMux
}

func aConsole(t *testing.T, a *aggregator, change ...func(*Config)) *console {
	t.Helper()
	c := &console{t: t, log: &testrun.Output{}}
	client := &http.Client{Transport: &http.Transport{}}
	t.Cleanup(client.CloseIdleConnections)
	cfg := Config{Aggregator: apiclient.New(a.URL, client), Addr: loopback, Listen: "127.0.0.1:8090", Logger: slog.New(slog.NewTextHandler(c.log, nil))}
	for _, f := range change {
		f(&cfg)
	}
	var err error
	if c.Manager, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	c.pages = mux
	c.Handlers(mux)
	for path, least := range map[string]access.Role{"/{$}": access.Viewer, "/keys": access.Viewer, "/rules": access.Operator, "/admin": access.Admin} {
		mux.Handle(path, c.Require(least, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			s := From(r.Context())
			fmt.Fprintf(w, "%s %s %s %v", s.Name, s.Role, s.Token, s.Unconfirmed)
		})))
	}
	mux.Handle("GET /events", c.Require(access.Viewer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: "+From(r.Context()).Name+"\n\n")
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})))
	c.Server = httptest.NewServer(c.Protect(mux))
	t.Cleanup(c.Close)
	return c
}

// browser keeps cookies, as a browser does, and goes where it is sent to within the console.
func browser(t *testing.T) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	b := &http.Client{Jar: jar, Transport: &http.Transport{}}
	t.Cleanup(b.CloseIdleConnections)
	return b
}

// get asks for a page, and returns the status, the path where it ended, and the text.
func get(t *testing.T, b *http.Client, address string, change ...func(*http.Request)) (int, string, string) {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, address, nil)
	if err != nil {
		t.Fatal(err)
	}
	return do(t, b, req, change...)
}

func do(t *testing.T, b *http.Client, req *http.Request, change ...func(*http.Request)) (int, string, string) {
	t.Helper()
	for _, f := range change {
		f(req)
	}
	resp, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, resp.Request.URL.RequestURI(), string(body)
}

func (c *console) post(b *http.Client, path string, form url.Values, change ...func(*http.Request)) (int, string, string) {
	c.t.Helper()
	req, err := http.NewRequest(http.MethodPost, c.URL+path, strings.NewReader(form.Encode()))
	if err != nil {
		c.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", c.URL)
	return do(c.t, b, req, change...)
}

func (c *console) logIn(b *http.Client, token, next string) (int, string, string) {
	c.t.Helper()
	return c.post(b, "/login", url.Values{"token": {token}, "next": {next}})
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Set(name, value) }
}

// A reader asks for a page, logs in with a token, is on the page, may what the role may, and logs out.
func TestALoginWithAToken(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a, func(cfg *Config) { cfg.Addr = anywhere })
	for role, pages := range map[string]map[string]int{
		"viewer":   {"/": 200, "/rules": 403, "/admin": 403},
		"operator": {"/": 200, "/rules": 200, "/admin": 403},
		"admin":    {"/": 200, "/rules": 200, "/admin": 200},
	} {
		b := browser(t)
		if status, at, text := get(t, b, c.URL+"/keys?key=1"); status != 200 || at != "/login?next=%2Fkeys%3Fkey%3D1" || !strings.Contains(text, `value="/keys?key=1"`) {
			t.Errorf("without a session: %d %s %s", status, at, text)
		}
		if status, at, text := c.logIn(b, role, "/keys?key=1"); status != 200 || at != "/keys?key=1" || text != "the-"+role+" "+role+" "+role+" false" {
			t.Errorf("a login of %s: %d %s %s", role, status, at, text)
		}
		for page, want := range pages {
			status, _, text := get(t, b, c.URL+page)
			if status != want || want == 403 && !strings.Contains(text, "this needs the role") {
				t.Errorf("%s asks for %s: %d %s", role, page, status, text)
			}
		}
		if _, at, _ := get(t, b, c.URL+"/login?next=/rules"); at != "/rules" {
			t.Errorf("who has a session logs in: %s", at)
		}
		if _, at, _ := c.post(b, "/logout", nil); at != "/login" {
			t.Errorf("a logout: %s", at)
		}
		if _, at, _ := get(t, b, c.URL+"/"); at != "/login" {
			t.Errorf("after a logout: %s", at)
		}
	}
	for token, want := range map[string]int{"wrong": 401, "service": 403, "": 422, "a b": 422} {
		b := browser(t)
		if status, _, text := c.logIn(b, token, "/"); status != want || !strings.Contains(text, `role="alert"`) || token != "" && strings.Contains(text, ">"+token) {
			t.Errorf("a login with %q: %d %s", token, status, text)
		}
		if _, at, _ := get(t, b, c.URL+"/"); at != "/login" {
			t.Errorf("after a login with %q: %s", token, at)
		}
	}
	if said := c.log.String(); strings.Contains(said, "wrong") || !strings.Contains(said, "a login was refused") {
		t.Errorf("the log: %s", said)
	}
}

// A token that was taken back ends its sessions within a minute of use, and one that has another role
// now has it.
func TestARevokedTokenEndsItsSession(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a)
	b := browser(t)
	c.logIn(b, "viewer", "/")
	asked := a.asked.Load()
	for range 20 {
		get(t, b, c.URL+"/")
	}
	if n := a.asked.Load() - asked; n != 0 {
		t.Errorf("pages of one minute ask %d times who reads", n)
	}
	a.give(t, "admin")
	c.who.age(confirmEach)
	if _, at, _ := get(t, b, c.URL+"/"); at != "/login" {
		t.Errorf("a revoked token: %s", at)
	}
	if u, _ := url.Parse(c.URL); len(b.Jar.Cookies(u)) > 0 {
		t.Errorf("the browser keeps %v", b.Jar.Cookies(u))
	}
}

// age makes all that is known older.
func (a *asker) age(by time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for hash, k := range a.known {
		k.at = k.at.Add(-by)
		a.known[hash] = k
	}
	a.down = a.down.Add(-by)
}
