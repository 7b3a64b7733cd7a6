package httplimit

import (
	"bufio"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// namesOfThePage are the rows of the reference's table of names.
func namesOfThePage(t *testing.T) (rows [][3]string) {
	t.Helper()
	page, err := os.ReadFile("../../../docs/reference/requests.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## Names of requests\n")
	section, _, _ = strings.Cut(section, "\n## ")
	for line := range strings.SplitSeq(section, "\n") {
		cells := strings.Split(line, "|")
		if len(cells) < 5 || !strings.HasPrefix(cells[1], " `") {
			continue
		}
		method, target, ok := strings.Cut(strings.Trim(cells[1], " `"), " ")
		if !ok {
			t.Fatalf("%q is no request", line)
		}
		rows = append(rows, [3]string{method, target, strings.Trim(cells[2], " `")})
	}
	return rows
}

// Percent-encoding one letter, or HEAD, evaded both counting and blocking.
func TestNamesAreThoseOfTheReference(t *testing.T) {
	rows := namesOfThePage(t)
	if len(rows) < 30 {
		t.Fatalf("the table has %d rows, want at least 30", len(rows))
	}
	for _, row := range rows {
		if got := PathAPI(row[0], row[1]); got != row[2] {
			t.Errorf("PathAPI(%q, %q) = %q, want %q", row[0], row[1], got, row[2])
		}
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(row[0] + " " + row[1] + " HTTP/1.1\r\nHost: shop.example\r\n\r\n")))
		if err != nil {
			continue // net/http refuses it
		}
		if got := RouteAPI(r); got != row[2] {
			t.Errorf("RouteAPI of %s %s is %q, want %q", row[0], row[1], got, row[2])
		}
	}
}

// sameHandler checks the name of a target by the handler that a ServeMux finds for it. The handlers have exact patterns, of which the
// name is known.
func sameHandler(t interface{ Errorf(string, ...any) }, mux *http.ServeMux, method, target string) {
	r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(method + " " + target + " HTTP/1.1\r\nHost: h\r\n\r\n")))
	if err != nil {
		return
	}
	w := httptest.NewRecorder()
	mux.ServeHTTP(w, r)
	want := w.Header().Get("Name")
	if want == "" {
		return
	}
	if got := RouteAPI(r); got != want {
		t.Errorf("%s %q reaches %s, and RouteAPI is %s", method, target, want, got)
	}
	if got := PathAPI(method, target); got != want {
		t.Errorf("%s %q reaches %s, and PathAPI is %s", method, target, want, got)
	}
}

// exactMux has handlers of exact paths, each of which answers with the name that all ways to it have.
func exactMux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, name := range map[string]string{
		"GET /{$}": "get", "GET /search": "get.search", "POST /search": "post.search", "GET /search/query": "get.search.query",
		"GET /search/query/{$}": "get.search.query", "GET /a;b": "get.a", "GET /a b/c": "get.a-b.c", "GET /%zz": "get.-zz", "GET /é": "get.-",
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Name", name) })
	}
	return mux
}

// drawTarget draws a way of writing one of a few paths, or something near one.
func drawTarget(t *rapid.T) string {
	path := rapid.SampledFrom([]string{"/", "/search", "/search/query", "/search/query/", "/a;b", "/a b/c", "/é", "/%zz"}).Draw(t, "path")
	var out strings.Builder
	for i := range len(path) {
		switch c := path[i]; rapid.IntRange(0, 12).Draw(t, "how") {
		case 0, 1:
			out.WriteString("%" + string("0123456789abcdef"[c>>4]) + string("0123456789ABCDEF"[c&15]))
		case 2:
			out.WriteString(rapid.SampledFrom([]string{"/", "/./", "/x/../", "/%2e/", "//", "/%2E%2e/", ";x", "%2f", "?", "#", "\\", "%00", "%", "/..;/"}).Draw(t, "more") + string(c))
		default:
			if c <= ' ' || c > '~' {
				out.WriteString("%" + string("0123456789abcdef"[c>>4]) + string("0123456789ABCDEF"[c&15]))
			} else {
				out.WriteByte(c)
			}
		}
	}
	return rapid.SampledFrom([]string{"", "", "", "http://h", "HTTP:"}).Draw(t, "before") + out.String() + rapid.SampledFrom([]string{"", "", "/", "?q", "/..", ";p=1"}).Draw(t, "behind")
}

// Whatever reaches the same handler has the same name.
func TestNamesAgreeWithServeMux(t *testing.T) {
	mux := exactMux()
	rapid.Check(t, func(t *rapid.T) {
		sameHandler(t, mux, rapid.SampledFrom([]string{"GET", "HEAD", "POST"}).Draw(t, "method"), drawTarget(t))
	})
}

func FuzzNamesAgreeWithServeMux(f *testing.F) {
	for _, target := range []string{"/search", "/%73earch", "//search", "/a%3bb", "/a;b", "/%25zz", "http://h/search", "http:/search", "/x/../search", "/search/query/", "/%C3%A9"} {
		f.Add("GET", target)
		f.Add("HEAD", target)
	}
	mux := exactMux()
	f.Fuzz(func(t *testing.T, method, target string) {
		sameHandler(t, mux, method, target)
		name := PathAPI(method, target)
		if len(name) > event.MaxAPI || strings.Trim(name, "abcdefghijklmnopqrstuvwxyz0123456789.-") != "" || strings.Contains(name, "..") {
			t.Errorf("PathAPI(%q, %q) = %q", method, target, name)
		}
		if strings.HasPrefix(name, "head.") {
			t.Errorf("PathAPI(%q, %q) = %q: HEAD is not GET", method, target, name)
		}
	})
}

// A clean path costs the name alone.
func TestNamesOfCleanPathsAreOneAllocation(t *testing.T) {
	r := httptest.NewRequest("GET", "/Orders/42/items?x=1", nil)
	for about, name := range map[string]func() string{
		"RouteAPI": func() string { return RouteAPI(r) },
		"PathAPI":  func() string { return PathAPI("GET", "/Orders/42/items?x=1") },
	} {
		if n := testrun.Allocs(100, func() { _ = name() }); n > 1 {
			t.Errorf("%s: %v allocations, want 1", about, n)
		}
	}
}

func BenchmarkRouteAPI(b *testing.B) {
	r := httptest.NewRequest("GET", "/Orders/42/items?x=1", nil)
	b.ReportAllocs()
	for b.Loop() {
		_ = RouteAPI(r)
	}
}
