package console

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/tallygate/tallygate/internal/console/browsertest"
	"github.com/tallygate/tallygate/internal/console/workbench"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What a page may cost a reader.
const (
	mostBytes = 200 << 10
	mostPaint = 300 * time.Millisecond // measured, and reported; a machine with other things to do takes longer
)

// looks are those in which every page is looked at.
var looks = map[string]browsertest.Look{"light": {}, "dark": {Dark: true}, "phone": {Phone: true}}

// Every page of the foundation, when all is well and when it is not: everybody can use it, it looks as it did, it
// complains about nothing, and it is small.
func TestPagesInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	for name, state := range map[string]*watch.State{"well": works(), "broken": broken(), "begins": nil} {
		site := start(t, state, false)
		for _, path := range []string{"/", "/cluster"} {
			for look, how := range looks {
				if state == nil && look != "light" {
					continue
				}
				about := fmt.Sprint(name, path, " ", look)
				p := b.Open(site+path, how)
				p.Axe(about)
				if n := p.Bytes(); n == 0 || n > mostBytes {
					t.Errorf("%s: %d bytes over the wire; at most %d", about, n, mostBytes)
				} else if look == "light" {
					t.Logf("%s: %d bytes over the wire", about, n)
				}
				if path == "/" && state != nil {
					p.Golden("overview-" + name + "-" + look)
				}
			}
		}
	}
	p := b.Open(start(t, works(), false)+"/nowhere", browsertest.Look{})
	p.Axe("a page that there is not")
	p.Wrong() // the browser mentions the status of what it loaded
}

// What changes is pushed, and a page that hears nothing any more says so, instead of staying green.
func TestLiveInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	var w *watch.Watch
	site, stop := startStoppable(t, works(), false, func(p *Program, _ *http.ServeMux) { w = p.Health })
	p := b.Open(site+"/", browsertest.Look{})
	says := func(words ...string) func() bool {
		return func() bool { return containsAll(p.Text(), words...) }
	}
	testrun.Eventually(t, "the page is live", says("Everything works", "live, 12:00:00"))
	w.Show(broken())
	testrun.Eventually(t, "the page says what is broken now", says("Broken: Redis, orders, search", "A kill switch is on"))
	w.Show(works())
	testrun.Eventually(t, "and that all is well again", says("Everything works"))
	stop()
	testrun.Eventually(t, "the page says that it is old", says("This page is not updated any more", "not live since"))
	p.Wrong() // the browser mentions that the console is away
}

// Without a script there is the same page, with the times in UTC.
func TestWithoutAScript(t *testing.T) {
	b := browsertest.Start(t)
	p := b.Open(start(t, broken(), false)+"/", browsertest.Look{NoScript: true})
	if text := p.Text(); !containsAll(text, "Broken: Redis, orders, search", "as of 12:00:00 UTC", "Set") {
		t.Error(text)
	}
}

// Some times of a page were in the reader's zone, and those in sentences, charts and forms in UTC. All are in UTC now,
// and the reader's own time is in a title.
func TestOneZoneOnAPage(t *testing.T) {
	b := browsertest.Start(t)
	s := serve(t, &group{texts: []string{shopRules(3, "90"), shopRules(3, "100")}}, access.Admin, workbench.Config{})
	const times = `[...document.querySelectorAll("main time")]`
	for _, path := range []string{"/versions", "/rules/rule-001"} {
		p := b.Open(s.URL+path, browsertest.Look{Zone: "Asia/Shanghai"})
		got := browsertest.Get(p, chromedp.Poll[string](times+`.every((t) => t.title.includes("GMT+8")) && `+times+`.map((t) => t.textContent + "; " + t.title).join("\n")`))
		for line := range strings.Lines(got) {
			if text, title, _ := strings.Cut(line, "; "); !strings.HasSuffix(text, " UTC") || !containsAll(title, " UTC, ", "GMT+8") {
				t.Errorf("%s: %s", path, line)
			}
		}
	}
	p := b.Open(start(t, broken(), false)+"/", browsertest.Look{Zone: "Asia/Shanghai"})
	testrun.Eventually(t, "the page is live, in the zone of its other times", func() bool { return containsAll(p.Text(), "live, 12:00:00 UTC") })
}

// The first thing is seen at most 300 ms after the request on a machine that does nothing else. One that does is
// compared with an empty page.
func TestFirstPaint(t *testing.T) {
	b := browsertest.Start(t)
	empty := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>empty</title><p>empty"))
	}))
	defer empty.Close()
	site := start(t, broken(), false)
	best := func(address string) time.Duration {
		shortest := time.Hour
		for range 5 {
			shortest = min(shortest, b.Open(address, browsertest.Look{}).FirstPaint())
		}
		return shortest
	}
	base, paint := best(empty.URL), best(site+"/")
	t.Logf("first contentful paint: %v; of an empty page %v", paint, base)
	if paint > mostPaint && paint > 10*base && paint-base > 3*mostPaint {
		t.Errorf("the overview is seen after %v, an empty page after %v", paint, base)
	}
}

// A reader without a token sees the form; with one, the page.
func TestLogInInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	site := start(t, works(), true)
	p := b.Open(site+"/cluster", browsertest.Look{})
	p.Axe("the login")
	p = b.Open(site+"/cluster", browsertest.Look{Token: "viewer"})
	if text := p.Text(); !containsAll(text, "Partitions", "agg-1", "ann", "viewer") {
		t.Errorf("a viewer sees %s", text)
	}
	p.Axe("a viewer's page")
}
