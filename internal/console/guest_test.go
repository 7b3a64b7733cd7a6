package console

import (
	"bufio"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/chromedp/chromedp"

	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/console/browsertest"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/internal/tools/doctor"
)

// unled is an installation whose aggregators are gone since before the console began.
func unled() *watch.State {
	r := readings()
	r.Cluster = health.Reading[health.Cluster]{Err: errors.New("agg-0:8081: dial tcp 10.0.0.7:8081: connect: connection refused"), Failing: noon.Add(-40 * 1e9)}
	r.Enforcers.Value[1].Error = "dial tcp 10.0.0.9:6379: i/o timeout"
	return stateOf(r)
}

// startUnled starts a console while no aggregator answers; they do after back is set.
func startUnled(t *testing.T, tune ...func(*Program, *http.ServeMux)) (site string, back *atomic.Bool) {
	t.Helper()
	back = &atomic.Bool{}
	away := func(p *Program, mux *http.ServeMux) {
		gate := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if !back.Load() {
				httpjson.Problem(w, http.StatusBadGateway, "nothing is behind this proxy")
				return
			}
			mux.ServeHTTP(w, r)
		}))
		t.Cleanup(gate.Close)
		client := &http.Client{Transport: &http.Transport{}}
		t.Cleanup(client.CloseIdleConnections)
		p.API = apiclient.New(gate.URL, client)
		p.Doctor = doctor.Config{Kafka: &kafkaconn.Kafka{Brokers: []string{"127.0.0.1:1"}}}
		withKeys(unreachable(t))(p, mux)
	}
	return start(t, unled(), false, append([]func(*Program, *http.ServeMux){away}, tune...)...), back
}

// behindAProxy is a console that others than this machine's programs reach.
func behindAProxy(p *Program, _ *http.ServeMux) { p.Session.External = "https://console.example.com" }

// The console had shown nobody anything when it was started while all aggregators were gone, which is when its
// overview is needed.
func TestTheOverviewNeedsNoAggregator(t *testing.T) {
	site, _ := startUnled(t)
	status, body, _ := fetch(t, visitor(t), http.MethodGet, site+"/", "")
	if status != http.StatusOK || !containsAll(body, "Broken: Aggregators, orders", "no aggregator answers: agg-0:8081: dial tcp 10.0.0.7:8081", "Start them. If they run, check --aggregator",
		"nobody can be asked who you are", "it cannot follow the blocklist", "Events in", `href="/cluster"`) {
		t.Errorf("%d %s", status, mainOf(body))
	}
	for _, not := range []string{`action="/"`, "Examine now", "Doctor", `href="/key"`, `href="/blocked"`, `href="/audit"`} {
		if strings.Contains(body, not) {
			t.Errorf("the overview has %s", not)
		}
	}
	if _, body, _ = fetch(t, visitor(t), http.MethodGet, site+"/cluster", ""); !containsAll(body, "tallygate.events", "decision-0") || strings.Contains(body, "checkpoint-every") || strings.Contains(body, `action="/cluster"`) {
		t.Error(mainOf(body))
	}
}

// Whoever reaches the console sees lights and what to do: no name, no address, no text of a program.
func TestGuestsFromElsewhere(t *testing.T) {
	site, _ := startUnled(t, behindAProxy)
	status, body, _ := fetch(t, visitor(t), http.MethodGet, site+"/", "")
	if status != http.StatusOK || !containsAll(body, "Broken: Aggregators, Enforcers", "no aggregator answers", "Start them. If they run, check --aggregator", "1 of 3 need a look", "lights of the chain") {
		t.Errorf("%d %s", status, mainOf(body))
	}
	for _, not := range []string{"dial tcp", "10.0.0", "agg-0", "orders", "Events in", "1\u202f204", `href="/cluster`, "Examine"} {
		if strings.Contains(body, not) {
			t.Errorf("a guest is told %q: %s", not, mainOf(body))
		}
	}
	if status, body, _ := fetch(t, visitor(t), http.MethodGet, site+"/cluster", ""); status != http.StatusServiceUnavailable || strings.Contains(body, "orders") {
		t.Errorf("the cluster page: %d %s", status, mainOf(body))
	}
}

// No page about users, and no action, is for a reader whose role nobody can be asked for.
func TestGuestsGetNothingElse(t *testing.T) {
	for about, tune := range map[string][]func(*Program, *http.ServeMux){"on this machine": nil, "from elsewhere": {behindAProxy}} {
		site, _ := startUnled(t, tune...)
		asked := 0
		for _, p := range pages() {
			path := strings.NewReplacer("{ref}", "abc", "{do}", "unblock", "{name}", "daily").Replace(p.path)
			if strings.Contains(path, "{") {
				t.Fatalf("what is %s?", path)
			}
			if p.glance == nil {
				for _, at := range []string{path, livePath(path)} {
					asked++
					if status, body, _ := fetch(t, visitor(t), http.MethodGet, site+at, ""); status != http.StatusServiceUnavailable && (at == path || status != http.StatusNotFound || len(p.parts) > 0) {
						t.Errorf("%s, GET %s: %d %s", about, at, status, mainOf(body))
					}
				}
			}
			for action := range p.actions {
				asked++
				if status, body, _ := fetch(t, visitor(t), http.MethodPost, site+path, url.Values{"action": {action}}.Encode()); status != http.StatusServiceUnavailable {
					t.Errorf("%s, POST %s %s: %d %s", about, path, action, status, mainOf(body))
				}
			}
		}
		if asked < 25 {
			t.Errorf("only %d requests", asked)
		}
		if status, _, _ := fetch(t, visitor(t), http.MethodGet, site+"/v1/status", ""); status != http.StatusServiceUnavailable {
			t.Errorf("%s: the status: %d", about, status)
		}
	}
}

// When an aggregator answers, a guest's page loads itself again, and is whole.
func TestGuestsAreKnownAgain(t *testing.T) {
	t.Parallel()
	site, back := startUnled(t)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site+"/live/", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := visitor(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	heard := map[string]bool{}
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if heard[name] = true; name == "beat" {
				back.Store(true)
			}
		}
	}
	if !heard["chain"] || !heard["ended"] {
		t.Errorf("heard: %v", heard)
	}
	if status, body, _ := fetch(t, visitor(t), http.MethodGet, site+"/", ""); status != http.StatusOK || !containsAll(body, "Examine now", `href="/blocked"`) {
		t.Errorf("%d %s", status, mainOf(body))
	}
}

func TestGuestsInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	site, back := startUnled(t)
	elsewhere, _ := startUnled(t, behindAProxy)
	for look, how := range looks {
		for _, at := range []string{site + "/", site + "/cluster", elsewhere + "/"} {
			b.Open(at, how).Axe("a guest's page, " + look)
		}
	}
	p := b.Open(site+"/", browsertest.Look{})
	back.Store(true)
	testrun.Eventually(t, "the page has loaded itself again", func() bool {
		text, err := chromedp.Run(p.Context(), chromedp.Text(chromedp.CSS("body"))) // it fails meanwhile
		return err == nil && strings.Contains(text, "Examine now")
	})
}
