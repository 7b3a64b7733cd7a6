package session

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Where the aggregator requires no credentials, everybody on this machine is an admin without a login;
// and beyond this machine the console has no reader.
func TestAnAggregatorWithoutCredentials(t *testing.T) {
	a := anAggregator(t, true, nil)
	c := aConsole(t, a)
	if err := c.Manager.Start(t.Context()); err != nil {
		t.Error(err)
	}
	if status, at, text := get(t, browser(t), c.URL+"/admin"); status != 200 || at != "/admin" || text != " admin  false" {
		t.Errorf("%d %s %q", status, at, text)
	}
	if _, at, _ := get(t, browser(t), c.URL+"/login?next=/rules"); at != "/rules" {
		t.Errorf("the login leads to %s", at)
	}
	beyond := aConsole(t, a, func(cfg *Config) { cfg.Addr, cfg.Listen = anywhere, "0.0.0.0:8090" })
	err := beyond.Manager.Start(t.Context())
	if err == nil || !strings.HasPrefix(err.Error(), "--listen 0.0.0.0:8090: without credentials the console is served on loopback only") {
		t.Errorf("beyond this machine: %v", err)
	}
	proxied := aConsole(t, a, func(cfg *Config) { cfg.External = "https://console.example.com" })
	if err := proxied.Manager.Start(t.Context()); err == nil || !strings.HasPrefix(err.Error(), "--external-url https://console.example.com: without credentials") {
		t.Errorf("behind a proxy on this machine: %v", err)
	}
	if err := aConsole(t, a, func(cfg *Config) { cfg.External = "http://localhost:8090" }).Manager.Start(t.Context()); err != nil {
		t.Errorf("under another name of this machine: %v", err)
	}
	now := time.Now()
	r, _, err := beyond.with(ticket{Token: "x", Begun: now, Seen: now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := beyond.identify(httptest.NewRecorder(), r); err == nil || !strings.Contains(err.Error(), "without credentials") {
		t.Errorf("a session from before: %v", err)
	}
	for _, path := range []string{"/", "/login"} { // as when the aggregator was down at the start
		if status, _, text := get(t, browser(t), beyond.URL+path); status != 403 || !strings.Contains(text, "without credentials") {
			t.Errorf("%s beyond this machine: %d %s", path, status, text)
		}
	}
	if status, _, text := beyond.logIn(browser(t), "viewer", "/"); status != 403 || !strings.Contains(text, "without credentials") {
		t.Errorf("a login beyond this machine: %d %s", status, text)
	}
}

// The console's own certificate is no credential of its readers.
func TestTheConsolesCertificateIsNotItsReaders(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"name":"console.example.com","role":"admin","credential":"certificate"}`)
	}))
	defer s.Close()
	c := aConsole(t, &aggregator{Server: s})
	if _, at, _ := get(t, browser(t), c.URL+"/admin"); !strings.HasPrefix(at, "/login") {
		t.Errorf("without a login: %s", at)
	}
}

// While the aggregator does not answer, who was logged in goes on reading for an hour, and is told so.
func TestTheAggregatorDoesNotAnswer(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a)
	b := browser(t)
	c.logIn(b, "operator", "/")
	a.down.Store(true)
	c.who.age(confirmEach)
	if status, _, text := get(t, b, c.URL+"/rules"); status != 200 || text != "the-operator operator operator true" {
		t.Errorf("a reader: %d %s", status, text)
	}
	asked := a.asked.Load()
	for range 9 {
		get(t, b, c.URL+"/rules")
	}
	if n := a.asked.Load() - asked; n > 1 {
		t.Errorf("it is asked %d times at once", n)
	}
	if status, _, text := get(t, browser(t), c.URL+"/"); status != 503 || !strings.Contains(text, "no aggregator answers") || strings.Contains(text, "127.0.0.1") {
		t.Errorf("who was not logged in: %d %s", status, text)
	}
	if status, _, _ := c.logIn(browser(t), "operator", "/"); status != 503 {
		t.Errorf("a login: %d", status)
	}
	now := time.Now()
	r, _, err := c.with(ticket{Token: "operator", Role: "operator", Begun: now.Add(-2 * confirmedBy), Seen: now.Add(-confirmedBy)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.identify(httptest.NewRecorder(), r); err == nil || !strings.Contains(err.Error(), errNoAnswer.Error()) {
		t.Errorf("after an hour: %v", err)
	}
	a.down.Store(false)
	c.who.age(askAgain)
	if status, _, text := get(t, b, c.URL+"/rules"); status != 200 || text != "the-operator operator operator false" {
		t.Errorf("it answers again: %d %s", status, text)
	}
	gone := aConsole(t, a, func(cfg *Config) { cfg.Aggregator = apiclient.New("http://127.0.0.1:1", &http.Client{}) })
	if err := gone.Manager.Start(t.Context()); err != nil {
		t.Errorf("a start without an aggregator: %v", err)
	}
}

// While nobody can be asked, pages that serve guests get one without a role or a token: on this machine or with a
// session that is too old to be believed it is near. A guest does nothing, and is none when somebody says who it is.
func TestGuests(t *testing.T) {
	a := anAggregator(t, false, nil)
	a.down.Store(true)
	now := time.Now()
	for about, k := range map[string]struct {
		tune func(*Config)
		old  bool
		near bool
	}{
		"on this machine":                        {func(*Config) {}, false, true},
		"from elsewhere":                         {func(cfg *Config) { cfg.Addr = anywhere }, false, false},
		"through a proxy":                        {func(cfg *Config) { cfg.External = "https://console.example.com" }, false, false},
		"from elsewhere, after an hour of quiet": {func(cfg *Config) { cfg.Addr = anywhere }, true, true},
	} {
		c := aConsole(t, a, k.tune)
		r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1/", nil)
		if k.old {
			var err error
			if r, _, err = c.with(ticket{Token: "admin", Role: "admin", Begun: now.Add(-2 * confirmedBy), Seen: now.Add(-confirmedBy)}); err != nil {
				t.Fatal(err)
			}
		}
		var got Session
		h := c.RequireOr(access.Viewer, http.NotFoundHandler(), http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = From(r.Context()) }))
		h.ServeHTTP(httptest.NewRecorder(), r)
		if !got.Guest || got.Near != k.near || got.Role != access.None || got.Token != "" || got.Name != "" || got.May(access.Viewer) == nil {
			t.Errorf("%s: %+v", about, got)
		}
		if got.Met(t.Context()) {
			t.Errorf("%s: it is known who this is", about)
		}
		r.Method, got = http.MethodPost, Session{}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != http.StatusServiceUnavailable || got.Guest {
			t.Errorf("%s: a form: %d %+v", about, w.Code, got)
		}
		r.Method = http.MethodGet
		r.Header.Set("Sec-Fetch-Site", "cross-site")
		w, got = httptest.NewRecorder(), Session{}
		h.ServeHTTP(w, r)
		if got.Guest != k.near || strings.Contains(w.Body.String(), `http-equiv="refresh"`) == k.near { // it may have a cookie
			t.Errorf("%s: from another site: %+v %s", about, got, w.Body)
		}
		a.down.Store(false)
		c.who.age(askAgain)
		if !guestOf(c.Manager, r).Met(t.Context()) {
			t.Errorf("%s: it is not known who this is", about)
		}
		a.down.Store(true)
	}
}

// What asks for no page is told that a login is needed; a page is led to it.
func TestRequestsWithoutASession(t *testing.T) {
	c := aConsole(t, anAggregator(t, false, nil))
	for about, k := range map[string]struct {
		change func(*http.Request)
		status int
		at     string
		want   string
	}{
		"a page":              {header("Sec-Fetch-Mode", "navigate"), 200, "/login?next=%2Fkeys%3Fa%3Db", `name="token"`},
		"an event stream":     {header("Accept", "text/event-stream"), 401, "/keys?a=b", `"status":401`},
		"a script":            {header("Sec-Fetch-Mode", "cors"), 401, "/keys?a=b", `"status":401`},
		"a program":           {header("Accept", "application/json"), 401, "/keys?a=b", `"status":401`},
		"another site's link": {header("Sec-Fetch-Site", "cross-site"), 200, "/keys?a=b", `content="0; url=/keys?a=b"`},
	} {
		status, at, text := get(t, browser(t), c.URL+"/keys?a=b", k.change)
		if status != k.status || at != k.at || !strings.Contains(text, k.want) {
			t.Errorf("%s: %d %s %s", about, status, at, text)
		}
	}
	if status, at, text := c.post(browser(t), "/keys", nil); status != 401 || at != "/keys" || !strings.Contains(text, "nothing was done") {
		t.Errorf("a form: %d %s %s", status, at, text)
	}
	forged := browser(t)
	if status, at, _ := get(t, forged, c.URL+"/admin", header("Cookie", "tallygate=AAAA; tallygate.1=BBBB")); status != 200 || !strings.HasPrefix(at, "/login") {
		t.Errorf("a forged cookie: %d %s", status, at)
	}
}

// An event stream ends when its session does, and the next one is refused.
func TestAnEventStreamEndsWithItsSession(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a)
	b := browser(t)
	c.logIn(b, "viewer", "/")
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, c.URL+"/events", nil)
	req.Header.Set("Accept", "text/event-stream")
	resp, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	line := make([]byte, 18)
	if _, err := io.ReadFull(resp.Body, line); err != nil || string(line) != "data: the-viewer\n\n" {
		t.Fatalf("%q %v", line, err)
	}
	ctx, stop := c.while(t.Context(), Session{Token: "viewer", Role: access.Viewer, Expires: time.Now().Add(50 * time.Millisecond)})
	defer stop()
	testrun.Eventually(t, "a stream ends when the session expires", func() bool { return ctx.Err() != nil })
	going, end := context.WithCancel(t.Context())
	if c.revoked(going, Session{Token: "viewer", Role: access.Viewer}) {
		t.Error("a session that is good is revoked")
	}
	if !c.revoked(going, Session{Token: "viewer", Role: access.Admin}) {
		t.Error("another role is not noticed")
	}
	a.give(t, "admin")
	if !c.revoked(going, Session{Token: "viewer", Role: access.Viewer}) {
		t.Error("a revoked token is not noticed")
	}
	a.down.Store(true)
	if c.revoked(going, Session{Token: "viewer", Role: access.Viewer}) {
		t.Error("a stream ends because the aggregator is down")
	}
	end()
	a.down.Store(false)
	c.who.age(confirmEach)
	if status, _, _ := get(t, b, c.URL+"/events", header("Accept", "text/event-stream")); status != 401 {
		t.Errorf("the next stream: %d", status)
	}
}
