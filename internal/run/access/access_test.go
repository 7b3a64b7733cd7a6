package access

import (
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var (
	loopback = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8081}
	anywhere = &net.TCPAddr{IP: net.IPv4zero, Port: 8081}
)

func hashOf(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// staff is a file with a token for each role, called as the role is, and a certificate's name.
func staff(t *testing.T) string {
	t.Helper()
	return tokens(t, fmt.Sprintf(`
- {name: vera, role: viewer, sha256: %s}
- {name: otto, role: operator, sha256: %s}
- {name: ada, role: admin, sha256: %s}
- {name: shop, role: service, sha256: %s}
- {name: pager, role: operator, certificate: pager.example.com}
`, hashOf("viewer"), hashOf("operator"), strings.ToUpper(hashOf("admin")), hashOf("service")))
}

func tokens(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func guard(t *testing.T, cfg Config) *Guard {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	}
	g, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// ask sends a request to what needs a role, and returns the answer's status, and who the handler
// was told asks.
func ask(g *Guard, least Role, change ...func(*http.Request)) (int, string) {
	r := httptest.NewRequest(http.MethodGet, "http://127.0.0.1:8081/v1/explain?uid=1", nil)
	for _, c := range change {
		c(r)
	}
	w := httptest.NewRecorder()
	g.Require(least, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := From(r.Context())
		_, _ = io.WriteString(w, id.Name+" "+id.Role.String())
	})).ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

func header(name, value string) func(*http.Request) {
	return func(r *http.Request) { r.Header.Add(name, value) }
}

func bearer(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }

func body(contentType string) func(*http.Request) {
	return func(r *http.Request) {
		r.Method, r.Body, r.ContentLength = http.MethodPost, io.NopCloser(strings.NewReader("{}")), 2
		if contentType != "" {
			r.Header.Set("Content-Type", contentType)
		}
	}
}

// A service may ask for permits and nothing else, and so may those who may command.
func TestServices(t *testing.T) {
	g := guard(t, Config{Tokens: staff(t), Addr: anywhere})
	for token, may := range map[string][]Role{"viewer": {Viewer}, "operator": {Viewer, Operator, Service}, "admin": {Viewer, Operator, Admin, Service}, "service": {Service}} {
		for _, role := range []Role{Viewer, Operator, Admin, Service} {
			want := http.StatusForbidden
			if slices.Contains(may, role) {
				want = http.StatusOK
			}
			if got, who := ask(g, role, bearer(token)); got != want {
				t.Errorf("%s asks what needs %v: %d %s, want %d", token, role, got, who, want)
			}
		}
	}
	if got, told := ask(guard(t, Config{Addr: anywhere}), Service); got != http.StatusUnauthorized || !strings.Contains(told, "--tokens FILE") {
		t.Errorf("without credentials, elsewhere: %d %s", got, told)
	}
	if got, who := ask(guard(t, Config{Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}}), Service); got != http.StatusOK {
		t.Errorf("on loopback: %d %s", got, who)
	}
}

// Each role may do what those before it may, and a request without a credential nothing.
func TestTokensAndRoles(t *testing.T) {
	g := guard(t, Config{Tokens: staff(t), Addr: anywhere})
	if err := g.Exposed(); err != nil {
		t.Error(err)
	}
	for i, role := range []Role{Viewer, Operator, Admin} {
		for j, token := range []string{"viewer", "operator", "admin"} {
			want, name := http.StatusOK, []string{"vera", "otto", "ada"}[j]+" "+token
			if j < i {
				want = http.StatusForbidden
			}
			if got, who := ask(g, role, bearer(token)); got != want || got == http.StatusOK && who != name {
				t.Errorf("%s asks what needs %v: %d %s, want %d", token, role, got, who, want)
			}
		}
	}
	for about, change := range map[string]func(*http.Request){
		"nothing":          func(*http.Request) {},
		"an unknown token": bearer("nobody"),
		"the hash":         bearer(hashOf("admin")),
		"an empty token":   bearer(""),
		"a long token":     bearer(strings.Repeat("x", 1<<20)),
		"two tokens":       func(r *http.Request) { bearer("admin")(r); bearer("viewer")(r) },
		"a password":       func(r *http.Request) { r.SetBasicAuth("ada", "admin") },
		"a query":          func(r *http.Request) { r.URL.RawQuery += "&access_token=admin" },
	} {
		r := httptest.NewRequest(http.MethodGet, "/v1/explain?uid=1", nil)
		change(r)
		w := httptest.NewRecorder()
		g.Require(Viewer, http.NotFoundHandler()).ServeHTTP(w, r)
		if w.Code != http.StatusUnauthorized || w.Header().Get("WWW-Authenticate") == "" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %v", about, w.Code, w.Header())
		}
		if told := w.Body.String(); strings.Contains(told, "ada") || strings.Contains(told, hashOf("admin")) {
			t.Errorf("%s: the answer tells who there is: %s", about, told)
		}
	}
	if got, who := ask(g, Viewer, header("Authorization", "bearer  admin")); got != http.StatusOK {
		t.Errorf("the scheme in lower case: %d %s", got, who)
	}
}

// A certificate has the role of one of its names; only what the listener has verified is one.
func TestCertificates(t *testing.T) {
	shows := func(verified bool, cert *x509.Certificate) func(*http.Request) {
		return func(r *http.Request) {
			r.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{cert}}
			if verified {
				r.TLS.VerifiedChains = [][]*x509.Certificate{{cert}}
			}
		}
	}
	pager := &x509.Certificate{Subject: pkix.Name{CommonName: "pager.example.com"}}
	also := &x509.Certificate{Subject: pkix.Name{CommonName: "x"}, DNSNames: []string{"y", "pager.example.com"}}
	other := &x509.Certificate{Subject: pkix.Name{CommonName: "shop"}, DNSNames: []string{"pager.example.com.evil.example"}}
	g := guard(t, Config{Tokens: staff(t), Certificates: true, Addr: anywhere})
	for about, c := range map[string]struct {
		change []func(*http.Request)
		status int
		who    string
	}{
		"by its common name":     {[]func(*http.Request){shows(true, pager)}, http.StatusOK, "pager operator"},
		"by an alternative name": {[]func(*http.Request){shows(true, also)}, http.StatusOK, "pager operator"},
		"one without a role":     {[]func(*http.Request){shows(true, other)}, http.StatusForbidden, ""},
		"one without a name":     {[]func(*http.Request){shows(true, &x509.Certificate{})}, http.StatusForbidden, ""},
		"not verified":           {[]func(*http.Request){shows(false, pager)}, http.StatusUnauthorized, ""},
		"a token decides":        {[]func(*http.Request){shows(true, other), bearer("admin")}, http.StatusOK, "ada admin"},
		"a wrong token, too":     {[]func(*http.Request){shows(true, pager), bearer("x")}, http.StatusUnauthorized, ""},
	} {
		if got, who := ask(g, Viewer, c.change...); got != c.status || c.who != "" && who != c.who {
			t.Errorf("%s: %d %s, want %d %s", about, got, who, c.status, c.who)
		}
	}
	plain := guard(t, Config{Certificates: true, Addr: anywhere})
	if got, who := ask(plain, Viewer, shows(true, other)); got != http.StatusOK || who != "shop viewer" {
		t.Errorf("without a file a certificate is a viewer's: %d %s", got, who)
	}
	if got, _ := ask(plain, Operator, shows(true, other)); got != http.StatusForbidden {
		t.Errorf("and no more: %d", got)
	}
	if got, _ := ask(plain, Viewer, bearer("admin")); got != http.StatusUnauthorized {
		t.Errorf("no token is known there: %d", got)
	}
}

// Without credentials, only this machine's programs may ask, unless somebody said otherwise.
func TestWithoutCredentials(t *testing.T) {
	for _, addr := range []net.Addr{loopback, &net.TCPAddr{IP: net.IPv6loopback}, &net.UnixAddr{Name: "/run/x", Net: "unix"}} {
		g := guard(t, Config{Addr: addr})
		if got, who := ask(g, Admin); g.Exposed() != nil || got != http.StatusOK || who != " admin" {
			t.Errorf("%v: %v %d %q", addr, g.Exposed(), got, who)
		}
	}
	for _, addr := range []net.Addr{anywhere, nil, &net.TCPAddr{IP: net.IPv6unspecified}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1)}} {
		g := guard(t, Config{Addr: addr, Listen: "0.0.0.0:8081"})
		err := g.Exposed()
		if err == nil || !strings.Contains(err.Error(), "--tokens") || !strings.Contains(err.Error(), "--open-api") {
			t.Errorf("%v: %v", addr, err)
		}
		if got, _ := ask(g, Viewer); got != http.StatusUnauthorized {
			t.Errorf("%v: %d", addr, got)
		}
	}
	open := guard(t, Config{Addr: anywhere, Open: true})
	if got, _ := ask(open, Admin, func(r *http.Request) { r.Host = "aggregator.example.com" }); open.Exposed() != nil || got != http.StatusOK {
		t.Errorf("open: %v %d", open.Exposed(), got)
	}
	if _, err := New(Config{Open: true, Tokens: staff(t)}); err == nil {
		t.Error("open, and with tokens: which?")
	}
}

// No request that a page has a browser send passes: not from another site, not from this machine's
// other ports, not by a name that was made to point here.
func TestWebPagesAreRefused(t *testing.T) {
	host := func(name string) func(*http.Request) { return func(r *http.Request) { r.Host = name } }
	local := guard(t, Config{Addr: loopback, Listen: "this-machine:8081", Name: "10.7.0.1:18081"})
	open := guard(t, Config{Addr: anywhere, Open: true})
	closed := guard(t, Config{Addr: anywhere, Tokens: staff(t)})
	all := map[string]*Guard{"loopback": local, "open": open, "tokens": closed}
	json := body("application/json")
	for about, c := range map[string]struct {
		want   int
		where  string // "": all three
		change []func(*http.Request)
	}{
		"a program":                 {200, "", []func(*http.Request){json}},
		"with a charset":            {200, "", []func(*http.Request){body("application/json; charset=utf-8")}},
		"typed by hand":             {200, "", []func(*http.Request){header("Sec-Fetch-Site", "none")}},
		"another site":              {403, "", []func(*http.Request){json, header("Origin", "https://evil.example")}},
		"no site":                   {403, "", []func(*http.Request){json, header("Origin", "null")}},
		"another port":              {403, "", []func(*http.Request){json, header("Origin", "http://127.0.0.1:3000")}},
		"two origins":               {403, "", []func(*http.Request){json, header("Origin", "http://127.0.0.1:8081"), header("Origin", "https://evil.example")}},
		"fetched":                   {403, "", []func(*http.Request){header("Sec-Fetch-Site", "cross-site")}},
		"fetched, same site":        {403, "", []func(*http.Request){header("Sec-Fetch-Site", "same-site")}},
		"a form":                    {415, "", []func(*http.Request){body("text/plain")}},
		"curl -d":                   {415, "", []func(*http.Request){body("application/x-www-form-urlencoded")}},
		"a body without a type":     {415, "", []func(*http.Request){body("")}},
		"nearly JSON":               {415, "", []func(*http.Request){body("application/json+x")}},
		"an older instance":         {200, "", []func(*http.Request){body(""), header("X-Tallygate-Forwarded", "1")}},
		"no page is the API's own":  {403, "open", []func(*http.Request){json, header("Origin", "http://127.0.0.1:8081")}},
		"nor is one fetched there":  {403, "open", []func(*http.Request){header("Sec-Fetch-Site", "same-origin")}},
		"a rebound name":            {403, "loopback", []func(*http.Request){host("evil.example:8081")}},
		"its own origin, too":       {403, "loopback", []func(*http.Request){json, host("evil.example"), header("Origin", "http://evil.example")}},
		"another machine":           {403, "loopback", []func(*http.Request){host("10.0.0.1:8081")}},
		"no host":                   {403, "loopback", []func(*http.Request){host("")}},
		"a name that begins well":   {403, "loopback", []func(*http.Request){host("localhost.evil.example")}},
		"and an address that does":  {403, "loopback", []func(*http.Request){host("127.0.0.1.evil.example")}},
		"localhost":                 {200, "loopback", []func(*http.Request){host("LOCALHOST:9000")}},
		"localhost, rooted":         {200, "loopback", []func(*http.Request){host("localhost.:8081")}},
		"IPv6":                      {200, "loopback", []func(*http.Request){host("[::1]:8081")}},
		"IPv6 without a port":       {200, "loopback", []func(*http.Request){host("[::1]")}},
		"what --listen says":        {200, "loopback", []func(*http.Request){host("this-machine:8081")}},
		"what --advertise says":     {200, "loopback", []func(*http.Request){host("10.7.0.1:18081")}},
		"any host with credentials": {200, "tokens", []func(*http.Request){host("aggregator.example.com")}},
	} {
		for name, g := range all {
			if c.where != "" && c.where != name {
				continue
			}
			if got, said := ask(g, Admin, append(c.change, bearer("admin"))...); got != c.want {
				t.Errorf("%s, at %s: %d %s, want %d", about, name, got, said, c.want)
			}
		}
	}
}

// Another instance speaks for who asked it; one that claims to be one and is not gets nowhere.
func TestPeers(t *testing.T) {
	g := guard(t, Config{Tokens: staff(t), Addr: anywhere, Peer: func(r *http.Request) (Identity, bool, error) {
		switch r.Header.Get("X-Peer") {
		case "":
			return Identity{}, false, nil
		case "good":
			return Identity{Name: "otto", Role: Operator}, true, nil
		}
		return Identity{}, false, io.ErrUnexpectedEOF
	}})
	if got, who := ask(g, Operator, header("X-Peer", "good")); got != 200 || who != "otto operator" {
		t.Errorf("a peer: %d %s", got, who)
	}
	if got, _ := ask(g, Admin, header("X-Peer", "good")); got != 403 {
		t.Errorf("a peer for who may not: %d", got)
	}
	if got, _ := ask(g, Viewer, header("X-Peer", "bad"), bearer("admin")); got != 401 {
		t.Errorf("who is none: %d", got)
	}
	if got, _ := ask(g, Viewer, bearer("viewer")); got != 200 {
		t.Errorf("who does not claim to be one: %d", got)
	}
}

// TestFalseClaimsAreSaidSeldom: whoever reached the API could fill the log, without a credential.
func TestFalseClaimsAreSaidSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log strings.Builder
		g := guard(t, Config{Tokens: staff(t), Addr: anywhere, Logger: slog.New(slog.NewTextHandler(&log, nil)),
			Peer: func(*http.Request) (Identity, bool, error) { return Identity{}, false, io.ErrUnexpectedEOF }})
		for range 100 {
			ask(g, Viewer)
		}
		time.Sleep(time.Minute)
		ask(g, Viewer)
		if said := log.String(); strings.Count(said, "claims to come from another instance") != 2 || !strings.Contains(said, "left_out=0") || !strings.Contains(said, "left_out=99") {
			t.Errorf("%.2000s", said)
		}
	})
}

// Without credentials no name but this machine's passes on loopback.
func FuzzHost(f *testing.F) {
	for _, host := range []string{"localhost", "127.0.0.1:1", "[::1]:2", "[::ffff:127.0.0.1]", "evil.example", "localhost:8081:1", "127.1", "::1%lo"} {
		f.Add(host)
	}
	g, err := New(Config{Addr: loopback, Listen: "127.0.0.1:8081"})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, host string) {
		if !g.ours(host) {
			return
		}
		name := hostOf(host)
		if ip := net.ParseIP(name); name != "localhost" && (ip == nil || !ip.IsLoopback()) {
			t.Errorf("%q passes as %q", host, name)
		}
	})
}
