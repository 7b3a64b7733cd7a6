package session

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
)

// Each answer has the headers that bound what a browser does with it, and with TLS that it comes back
// with TLS only.
func TestHeadersOfEachAnswer(t *testing.T) {
	a := anAggregator(t, true, nil)
	for about, k := range map[string]struct {
		change func(*Config)
		hsts   string
	}{
		"without TLS": {func(*Config) {}, ""},
		"with TLS":    {func(c *Config) { c.TLS = true }, "max-age=31536000"},
		"a proxy's":   {func(c *Config) { c.External = "https://console.example.com" }, "max-age=31536000"},
	} {
		c := aConsole(t, a, k.change)
		for _, path := range []string{"/", "/login", "/nothing"} {
			resp, err := http.Get(c.URL + path)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
			for name, want := range map[string]string{
				"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; font-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'",
				"X-Content-Type-Options":  "nosniff", "Referrer-Policy": "same-origin", "Cache-Control": "no-store",
				"Cross-Origin-Opener-Policy": "same-origin", "Strict-Transport-Security": k.hsts,
			} {
				if got := resp.Header.Get(name); got != want {
					t.Errorf("%s: %s has %s %q, want %q", about, path, name, got, want)
				}
			}
		}
	}
	if strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
}

// What changes something comes from a page of the console, or from no page; and on loopback under a
// name of this machine.
func TestRequestsOfOtherSites(t *testing.T) {
	a := anAggregator(t, false, nil)
	c := aConsole(t, a)
	for about, k := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"its own page":            {header("Sec-Fetch-Site", "same-origin"), 200},
		"no page":                 {func(r *http.Request) { r.Header.Del("Origin") }, 200},
		"another origin":          {header("Origin", "http://evil.example"), 403},
		"another scheme's opaque": {header("Origin", "null"), 403},
		"another port":            {header("Origin", "http://127.0.0.1:1"), 403},
		"two origins":             {func(r *http.Request) { r.Header.Add("Origin", "http://evil.example") }, 403},
		"contradicting itself": {func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "same-origin")
			r.Header.Set("Origin", "http://evil.example")
		}, 403},
		"another site":             {header("Sec-Fetch-Site", "cross-site"), 403},
		"another host of the site": {header("Sec-Fetch-Site", "same-site"), 403},
		"a rebound name":           {func(r *http.Request) { r.Host = "evil.example"; r.Header.Set("Origin", "http://evil.example") }, 403},
		"another loopback name":    {func(r *http.Request) { r.Host = "localhost:9"; r.Header.Set("Origin", "http://localhost:9") }, 200},
	} {
		one := &http.Client{Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
		status, _, text := c.post(one, "/login", url.Values{"token": {"viewer"}}, k.change)
		one.CloseIdleConnections()
		if status == http.StatusSeeOther {
			status = 200
		}
		if status != k.want {
			t.Errorf("%s: %d %s", about, status, text)
		}
	}
	if status, _, _ := get(t, browser(t), c.URL+"/login", func(r *http.Request) { r.Host = "evil.example" }); status != 403 {
		t.Errorf("a page of a rebound name: %d", status)
	}
	proxied := aConsole(t, a, func(cfg *Config) { cfg.External, cfg.Addr = "https://console.example.com", anywhere })
	for origin, want := range map[string]int{"https://console.example.com": 303, "http://console.example.com": 403, "https://evil.example": 403} {
		b := browser(t)
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		if status, _, text := proxied.post(b, "/login", url.Values{"token": {"viewer"}}, header("Origin", origin)); status != want {
			t.Errorf("behind a proxy from %s: %d %s", origin, status, text)
		}
	}
}

// The cookie is for this host alone, for no script, for TLS alone where there is TLS, and for no
// request of another site.
func TestTheCookie(t *testing.T) {
	a := anAggregator(t, false, nil)
	for name, change := range map[string]func(*Config){
		"tallygate": func(*Config) {}, "__Host-tallygate": func(c *Config) { c.External = "https://console.example.com" },
	} {
		c := aConsole(t, a, change)
		b := browser(t)
		b.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		req := httptest.NewRequest(http.MethodPost, "/login", strings.NewReader("token=viewer"))
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		w := httptest.NewRecorder()
		c.serveToken(w, req)
		cookies := w.Result().Cookies()
		if len(cookies) != 1 {
			t.Fatalf("%v", cookies)
		}
		k := cookies[0]
		if k.Name != name || !k.HttpOnly || k.Secure != strings.HasPrefix(name, "__Host-") || k.SameSite != http.SameSiteStrictMode || k.Path != "/" || k.Domain != "" || k.Expires.IsZero() {
			t.Errorf("%s", k.Raw)
		}
		if strings.Contains(k.Value, "viewer") || len(k.Raw) > 4096 {
			t.Errorf("%s", k.Raw)
		}
	}
}

// Where a login goes on to is a page of the console, whatever the link says.
func TestOnlyLocalPathsAreGoneOnTo(t *testing.T) {
	for next, want := range map[string]string{
		"/": "/", "/keys?key=uid%3D42": "/keys?key=uid%3D42", "/a//b": "/a//b", "/rules#x": "/rules#x",
		"": "/", "keys": "/", "//evil.example": "/", "/\\evil.example": "/", "\\\\evil.example": "/", "/\t/evil.example": "/", "/ /evil": "/",
		"http://evil.example": "/", "https:evil.example": "/", "javascript:alert(1)": "/", "/%5Cevil": "/%5Cevil", "/%2F/evil.example": "/",
		"///evil.example": "/", "/x\r\nSet-Cookie: a=b": "/", "/login": "/", "/login/start": "/", "/logout": "/", "/loginx": "/loginx",
		"/" + strings.Repeat("a", maxNext): "/",
	} {
		if got := local(next); got != want {
			t.Errorf("%q: %q, want %q", next, got, want)
		}
	}
}

func FuzzLocal(f *testing.F) {
	for _, seed := range []string{"/a", "//a", "/\\a", "/a?b=//c", "http://a", "/%2f/a", "/.//a"} {
		f.Add(seed)
	}
	base, _ := url.Parse("https://console.example.com/login")
	f.Fuzz(func(t *testing.T, next string) {
		u, err := url.Parse(local(next))
		if err != nil {
			t.Fatal(err)
		}
		to := base.ResolveReference(u)
		if to.Host != base.Host || to.Scheme != base.Scheme {
			t.Errorf("%q leads to %s", next, to)
		}
	})
}
