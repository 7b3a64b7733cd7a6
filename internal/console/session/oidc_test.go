package session

import (
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/access/issuer"
	"github.com/tallygate/tallygate/internal/testing/oidctest"
)

// withIssuer is a console at whose issuer readers log in, and an aggregator that accepts its tokens.
func withIssuer(t *testing.T, p *oidctest.Provider) (*console, *aggregator) {
	t.Helper()
	verifier := provider(t, p)
	a := anAggregator(t, false, verifier)
	c := aConsole(t, a, func(cfg *Config) {
		cfg.Login = issuer.NewFlow(verifier, p.Client, func() (string, error) { return p.Secret, nil }, []string{"openid", "email"})
		cfg.External = "http://127.0.0.1:1" // until the server has its address
	})
	c.external, _ = url.Parse(c.URL)
	return c, a
}

func provider(t *testing.T, p *oidctest.Provider) *issuer.Issuer {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	i, err := issuer.New(issuer.Config{URL: p.URL, Audiences: []string{p.Client}, Client: &http.Client{Transport: transport}})
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func fay(groups ...string) map[string]any {
	return map[string]any{"email": "fay@example.com", "email_verified": true, "groups": groups}
}

// A reader logs in at the issuer, comes back to a page that goes on by itself, and has the role of
// their groups under the name that the issuer gives.
func TestALoginAtTheIssuer(t *testing.T) {
	p := oidctest.New(t)
	c, _ := withIssuer(t, p)
	for role, groups := range map[string][]string{"viewer": {"team-viewer"}, "operator": {"team-viewer", "x", "team-operator"}, "admin": {"team-admin"}} {
		p.User(fay(groups...))
		b := browser(t)
		if _, at, text := get(t, b, c.URL+"/keys?key=1"); !strings.Contains(text, `href="/login/start?next=%2fkeys%3fkey%3d1"`) {
			t.Errorf("%s: no way to the issuer: %s", at, text)
		}
		status, at, text := get(t, b, c.URL+"/login/start?next=/keys?key=1")
		if status != 200 || !strings.HasPrefix(at, "/login/callback?") || !strings.Contains(text, `http-equiv="refresh" content="0; url=/keys?key=1"`) || strings.Contains(text, "<script") {
			t.Fatalf("the way back: %d %s %s", status, at, text)
		}
		if status, _, text := get(t, b, c.URL+"/keys?key=1"); status != 200 || !strings.HasPrefix(text, "fay@example.com "+role+" ey") {
			t.Errorf("the page: %d %s", status, text)
		}
	}
}

func TestLoginsThatTheIssuerOrTheAggregatorRefuses(t *testing.T) {
	p := oidctest.New(t)
	c, _ := withIssuer(t, p)
	for about, k := range map[string]struct {
		user   map[string]any
		status int
		want   string
	}{
		"the issuer says no":  {nil, 502, "The issuer did not let you in"},
		"no group has a role": {fay("others"), 403, "fay@example.com has the role none"},
		"a service":           {fay("team-service"), 403, "has the role service"},
		"an unverified name":  {map[string]any{"email": "ada@example.com", "email_verified": false}, 401, "does not accept logins of this issuer"},
		"another audience":    {map[string]any{"email": "ada@example.com", "aud": "shop"}, 502, "The login at the issuer failed"},
		"another nonce":       {map[string]any{"email": "ada@example.com", "groups": "team-admin", "nonce": "x"}, 502, "The login at the issuer failed"},
	} {
		p.User(k.user)
		b := browser(t)
		status, _, text := get(t, b, c.URL+"/login/start")
		if status != k.status || !strings.Contains(text, k.want) {
			t.Errorf("%s: %d %s", about, status, text)
		}
		if _, at, _ := get(t, b, c.URL+"/"); (at == "/login") != (k.status != 200) {
			t.Errorf("%s: then %s", about, at)
		}
	}
	if said := c.log.String(); strings.Contains(said, "eyJ") || strings.Contains(said, p.Secret) || strings.Contains(said, "code=") {
		t.Errorf("the log has a secret: %s", said)
	}
}

// What comes back has to be of the login that this browser has begun, and is good once.
func TestAnswersThatNobodyAskedFor(t *testing.T) {
	p := oidctest.New(t)
	p.User(fay("team-admin"))
	c, _ := withIssuer(t, p)
	stop := func(b *http.Client, at string) *url.URL { // where a redirect leads
		t.Helper()
		one := *b
		one.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		resp, err := one.Get(at)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		to, err := resp.Location()
		if err != nil {
			t.Fatal(err)
		}
		return to
	}
	b := browser(t)
	login := stop(b, c.URL+"/login/start?next=/rules")
	if q := login.Query(); q.Get("code_challenge_method") != "S256" || q.Get("nonce") == "" || q.Get("state") == "" || strings.Contains(login.String(), "rules") {
		t.Errorf("the login is begun at %s", login)
	}
	back := stop(b, login.String())
	if status, _, _ := get(t, browser(t), back.String()); status != 400 {
		t.Errorf("in a browser that began none: %d", status)
	}
	other := browser(t)
	stop(other, c.URL+"/login/start")
	if status, _, text := get(t, other, back.String()); status != 502 || !strings.Contains(text, "failed") {
		t.Errorf("in a browser that began another one: %d", status)
	}
	if status, _, _ := get(t, b, back.String()); status != 200 {
		t.Errorf("in the browser that began it: %d", status)
	}
	if status, _, _ := get(t, b, back.String()); status != 400 {
		t.Errorf("once more: %d", status)
	}
	if _, at, _ := get(t, other, c.URL+"/"); at != "/login" {
		t.Errorf("the other browser is logged in: %s", at)
	}
}

// A login is renewed before its token expires, once for all requests that come with it, and ends with
// the token if the issuer does not renew it.
func TestALoginIsRenewed(t *testing.T) {
	p := oidctest.New(t)
	p.User(fay("team-operator"))
	p.Lasting(renewBefore-time.Second, true) // each request is in time to renew it
	c, _ := withIssuer(t, p)
	b := browser(t)
	get(t, b, c.URL+"/login/start")
	token := func() string {
		t.Helper()
		status, at, text := get(t, b, c.URL+"/rules")
		if status != 200 || at != "/rules" {
			t.Fatalf("%d %s %s", status, at, text)
		}
		return strings.Fields(text)[2]
	}
	first := token()
	before := b.Jar
	var wg sync.WaitGroup
	for range 8 { // with one cookie, as the parts of a page are asked for
		wg.Go(func() {
			one := &http.Client{Jar: fixed{before}, Transport: b.Transport}
			if status, at, _ := get(t, one, c.URL+"/rules"); status != 200 || at != "/rules" {
				t.Errorf("beside others: %d %s", status, at)
			}
		})
	}
	wg.Wait()
	if first == "" || token() == "" {
		t.Error("no token")
	}
	if n := p.Spent.Load(); n != 0 {
		t.Errorf("a refresh token came to the issuer %d times too often", n)
	}
	p.User(nil) // the issuer renews nothing any more
	now := time.Now()
	old := ticket{Token: first, Refresh: "unknown", Until: now.Add(time.Minute)}
	if got, changed, err := c.renew(t.Context(), old, now); err != nil || changed || got != old {
		t.Errorf("a token that is good for a minute yet: %v %v", changed, err)
	}
	if _, _, err := c.renew(t.Context(), old, now.Add(time.Hour)); !errors.Is(err, errNoSession) {
		t.Errorf("a token that has expired: %v", err)
	}
	p.Down.Store(true)
	old.Refresh = "another"
	if _, _, err := c.renew(t.Context(), old, now.Add(time.Hour)); !errors.Is(err, errNoAnswer) {
		t.Errorf("while the issuer is down: %v", err)
	}
	if _, _, err := c.renew(t.Context(), ticket{Token: "x", Until: now}, now); !errors.Is(err, errNoSession) {
		t.Errorf("without a refresh token: %v", err)
	}
	if _, changed, err := c.renew(t.Context(), ticket{Token: "x", Until: now.Add(time.Second)}, now); err != nil || changed {
		t.Errorf("without a refresh token, yet good: %v %v", changed, err)
	}
}

// fixed is a jar that takes nothing in.
type fixed struct{ http.CookieJar }

func (fixed) SetCookies(*url.URL, []*http.Cookie) {}
