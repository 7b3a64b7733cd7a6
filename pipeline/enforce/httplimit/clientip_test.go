package httplimit

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/verdict"
)

var proxies = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("2001:db8:ff::/48")}

func TestClientIPCannotBeSpoofed(t *testing.T) {
	const fwd, std, real = "X-Forwarded-For", "Forwarded", "X-Real-Ip"
	quiet(t)
	for _, c := range []struct {
		name, remote, field string
		values              []string
		want                string
	}{
		{"nobody in between", "192.0.2.1:99", fwd, nil, "192.0.2.1"},
		{"a client claims to be another", "192.0.2.1:99", fwd, []string{"198.51.100.7"}, "192.0.2.1"},
		{"through a proxy", "10.0.0.1:99", fwd, []string{"192.0.2.1"}, "192.0.2.1"},
		{"spoofed, through a proxy", "10.0.0.1:99", fwd, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
		{"spoofed in a field of its own", "10.0.0.1:99", fwd, []string{"198.51.100.7", "192.0.2.1"}, "192.0.2.1"},
		{"spoofed as a proxy of ours", "10.0.0.1:99", fwd, []string{"10.0.0.9, 192.0.2.1"}, "192.0.2.1"},
		{"through two proxies", "10.0.0.1:99", fwd, []string{"198.51.100.7, 192.0.2.1, 10.0.0.2"}, "192.0.2.1"},
		{"a proxy asks for itself", "10.0.0.1:99", fwd, []string{"10.0.0.3, 10.0.0.2"}, ""}, // a key that all would share
		{"a proxy names itself", "10.0.0.1:99", fwd, []string{"10.0.0.1"}, ""},
		{"with ports", "10.0.0.1:99", fwd, []string{"198.51.100.7:1, 192.0.2.1:4711"}, "192.0.2.1"},
		{"IPv6 in brackets", "[2001:db8:ff::1]:99", fwd, []string{"[2001:db8::7]:80"}, "2001:db8::7"},
		{"IPv4 as IPv6", "[::ffff:10.0.0.1]:99", fwd, []string{"::ffff:192.0.2.1"}, "::ffff:192.0.2.1"},
		{"what is no address", "10.0.0.1:99", fwd, []string{"198.51.100.7, unknown"}, ""},
		{"nothing", "10.0.0.1:99", fwd, []string{"198.51.100.7,"}, ""},
		{"the proxy names nobody", "10.0.0.1:99", fwd, nil, ""},
		{"the other field, which the proxy passes on", "10.0.0.1:99", std, []string{"for=198.51.100.7"}, ""},
		{"a Unix socket", "@", fwd, []string{"198.51.100.7, 192.0.2.1"}, "192.0.2.1"},
	} {
		if got := from(c.remote, c.field, c.values, ClientIP(proxies...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, c := range []struct{ name, value, want string }{
		{"one", `for=192.0.2.1;proto=http;by=10.0.0.1`, "192.0.2.1"},
		{"spoofed", `for=198.51.100.7, for=192.0.2.1`, "192.0.2.1"},
		{"quoted, in brackets, with a port", `For="[2001:db8::7]:4711"`, "2001:db8::7"},
		{"a comma in quotes", `for=192.0.2.1;host="a,b"`, "192.0.2.1"},
		{"an open quote that would swallow the rest", `for="198.51.100.7, for=192.0.2.1`, "192.0.2.1"},
		{"an open quote before a quoted one", `for="x, for="[2001:db8::7]"`, "2001:db8::7"},
		{"an escaped quote", `for="\", for="[2001:db8::7]"`, "2001:db8::7"},
		{"hidden", `for=198.51.100.7, for=_hidden`, ""},
		{"no for", `for=198.51.100.7, by=10.0.0.1`, ""},
	} {
		if got := from("10.0.0.1:99", std, []string{c.value}, ForwardedIP(proxies...)); got != c.want {
			t.Errorf("Forwarded, %s: %q, want %q", c.name, got, c.want)
		}
	}
	if got := from("10.0.0.1:99", real, []string{"192.0.2.1"}, HeaderIP(real, proxies...)); got != "192.0.2.1" {
		t.Errorf("X-Real-Ip by a proxy: %q", got)
	}
	if got := from("10.0.0.1:99", real, []string{"198.51.100.7", "192.0.2.1"}, HeaderIP(real, proxies...)); got != Ambiguous {
		t.Errorf("X-Real-Ip by a client and by a proxy: %q", got)
	}
	if got := from("10.0.0.1:99", real, []string{"10.0.0.2"}, HeaderIP(real, proxies...)); got != "" {
		t.Errorf("X-Real-Ip is a proxy's: %q", got)
	}
	if got := from("192.0.2.1:99", real, []string{"198.51.100.7"}, HeaderIP(real, proxies...)); got != "192.0.2.1" {
		t.Errorf("X-Real-Ip by a client: %q", got)
	}
	if got := from("192.0.2.1:99", fwd, []string{"198.51.100.7"}, ClientIP()); got != "192.0.2.1" {
		t.Errorf("without proxies: %q", got)
	}
}

// quiet keeps what is said once out of the test's output, and returns it.
func quiet(t *testing.T) *bytes.Buffer {
	var said bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&said, nil)))
	t.Cleanup(func() { slog.SetDefault(before) })
	return &said
}

// A trusted proxy's own address was a key: a verdict on it denied everyone behind it.
func TestAProxysAddressIsNoKeyAndThatIsSaidOnce(t *testing.T) {
	said := quiet(t)
	table := newTable(t)
	table.Replace(0, []verdict.Verdict{block("r", "ip=10.0.0.1", func(v *verdict.Verdict) { v.Since = 0 })})
	h := Middleware(table, Options{IP: ClientIP(proxies...)})(ok)
	for range 3 {
		for _, forwarded := range []string{"", "10.0.0.1", "10.0.0.1, 10.0.0.2"} {
			r := httptest.NewRequest("GET", "/", nil)
			r.RemoteAddr = "10.0.0.1:99"
			if forwarded != "" {
				r.Header.Set("X-Forwarded-For", forwarded)
			}
			w := httptest.NewRecorder()
			if h.ServeHTTP(w, r); w.Code != 200 {
				t.Errorf("%q: %d", forwarded, w.Code)
			}
		}
	}
	if n := strings.Count(said.String(), "a trusted proxy names no client"); n != 1 {
		t.Errorf("said %d times:\n%s", n, said)
	}
}

func from(remote, field string, values []string, of func(*http.Request) string) string {
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = remote
	r.Header[field] = values
	return of(r)
}

// What the proxy added last decides, whatever a client sent before it.
func FuzzForwarded(f *testing.F) {
	for _, s := range []string{`for=1.2.3.4`, `for="`, `for="\"`, `"`, `;`, `,`, `for="[::1]", "`} {
		f.Add(s)
	}
	of := ForwardedIP(proxies...)
	f.Fuzz(func(t *testing.T, sent string) {
		for _, added := range []string{`for=192.0.2.1`, `for="192.0.2.1:80";proto=https`, `by=10.0.0.1;for=192.0.2.1`} {
			if got := from("10.0.0.1:99", "Forwarded", []string{sent + ", " + added}, of); got != "192.0.2.1" {
				t.Errorf("%q: %q", sent+", "+added, got)
			}
		}
	})
}
