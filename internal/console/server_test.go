package console

import (
	"bufio"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/tools/doctor"
)

func containsAll(text string, words ...string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// visitor is a browser's memory: cookies, and no redirects by itself.
func visitor(t testing.TB) *http.Client {
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := &http.Client{Jar: jar, Transport: &http.Transport{}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	t.Cleanup(c.CloseIdleConnections)
	return c
}

func logIn(t testing.TB, site, role string) *http.Client {
	t.Helper()
	c := visitor(t)
	if status, body, _ := fetch(t, c, http.MethodPost, site+"/login", "token="+role); status != http.StatusSeeOther {
		t.Fatalf("%d %s", status, body)
	}
	return c
}

// Pages work without a script, and name what is broken.
func TestOverview(t *testing.T) {
	site := start(t, broken(), false)
	status, body, header := fetch(t, visitor(t), http.MethodGet, site+"/", "")
	if status != http.StatusOK || !containsAll(body, "Broken: Redis, orders, search", "Redis does not answer: dial tcp 10.0.0.7:6379", "A kill switch is on: orders (file) allow everything",
		"The rule file of agg-1 is rejected, and version 7 applies on", "not heard of for 12 s", "counting is 9 s behind in partition 3", "runbooks.md#tallygatekillswitch") || strings.Contains(body, "?.") {
		t.Errorf("%d\n%s", status, body)
	}
	for name, want := range map[string]string{"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"} {
		if got := header.Get(name); got != want {
			t.Errorf("%s: %s", name, got)
		}
	}
	if p := header.Get("Content-Security-Policy"); !strings.Contains(p, "default-src 'none'") || strings.Contains(p, "unsafe") {
		t.Errorf("policy %s", p)
	}
	for _, inline := range []string{"<style", " style=", "onclick=", "<script>", "javascript:"} {
		if strings.Contains(body, inline) {
			t.Errorf("the page has %s", inline)
		}
	}
	above := works()
	above.Numbers.Overshoot = 3
	if _, body, _ := fetch(t, visitor(t), http.MethodGet, start(t, above, false)+"/", ""); !strings.Contains(body, `<a href="/rules?only=overshoot&amp;sort=overshoot&amp;order=down">3.0/s got through above a limit</a>`) {
		t.Error(mainOf(body))
	}
	_, body, _ = fetch(t, visitor(t), http.MethodGet, start(t, works(), false)+"/", "")
	if !containsAll(body, "Everything works", "3 enforcers, all up to date", "1\u202f204") || strings.Contains(body, "What to look at") {
		t.Error(body)
	}
}

// Each member has a line with its partitions; what is wrong with one is in words, and what nobody has is there.
func TestWhoCountsWhat(t *testing.T) {
	r := readings()
	all := r.Cluster.Value.Members
	all[0].Aggregator.Partitions[1].State = "recovering"
	all[1].Aggregator.Partitions = all[1].Aggregator.Partitions[:1]
	all[1].Aggregator.Partitions[0].LagSeconds, all[1].Aggregator.Partitions[0].Lag = 9, 4120
	r.Cluster.Value.Missing = []api.MissingMember{{Instance: "agg-2", Reason: "it has not answered within 1.2s"}}
	r.Cluster.Value.Unowned = []api.MissingPartition{{Partition: 3, Reason: "its owner agg-2 did not answer"}}
	_, body, _ := fetch(t, visitor(t), http.MethodGet, start(t, stateOf(r), false)+"/cluster", "")
	_, body, _ = strings.Cut(body, `id="owners"`)
	body, _, _ = strings.Cut(body, `id="partitions-h"`)
	if !containsAll(body, `<ul class="chips"><li class="ok"><a href="#p0">0</a></li><li class="warn"><a href="#p1">1 recovering</a></li></ul>`, `<li class="warn"><a href="#p2">2 9 s behind</a></li>`, "4\u202f120",
		"agg-2", "does not answer", `<li class="bad"><a href="#p3">3 no owner</a></li>`) {
		t.Error(body)
	}
}

// What was never read, and what is old, is shown as unknown.
func TestPagesBeforeTheFirstLook(t *testing.T) {
	site := start(t, nil, false)
	for _, path := range []string{"/", "/cluster"} {
		status, body, _ := fetch(t, visitor(t), http.MethodGet, site+path, "")
		if status != http.StatusOK || strings.Contains(body, `class="icon ok"`) {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
	if status, _, _ := fetch(t, visitor(t), http.MethodGet, site+"/readyz", ""); status != http.StatusServiceUnavailable {
		t.Errorf("ready: %d", status)
	}
}

// Parts are pushed at once, each with its beat.
func TestLiveParts(t *testing.T) {
	site := start(t, works(), false)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, site+"/live/cluster", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	resp, err := visitor(t).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var events []string
	for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			if events = append(events, name); name == "beat" {
				break
			}
		}
	}
	if got := strings.Join(events, " "); got != "owners partitions members topics enforcers beat" {
		t.Errorf("events: %s", got)
	}
}

// Roles: who may not, is told so; who is nobody, logs in.
func TestRoles(t *testing.T) {
	site := start(t, works(), true, func(p *Program, _ *http.ServeMux) {
		p.Doctor = doctor.Config{Kafka: &kafkaconn.Kafka{Brokers: []string{"127.0.0.1:1"}}}
	})
	if status, _, header := fetch(t, visitor(t), http.MethodGet, site+"/cluster", ""); status != http.StatusSeeOther || header.Get("Location") != "/login?next=%2Fcluster" {
		t.Errorf("nobody: %d %s", status, header.Get("Location"))
	}
	viewer := logIn(t, site, "viewer")
	if status, body, _ := fetch(t, viewer, http.MethodGet, site+"/", ""); status != http.StatusOK || !strings.Contains(body, "Only operators may start it") {
		t.Errorf("a viewer: %d %s", status, body)
	}
	if status, body, _ := fetch(t, viewer, http.MethodPost, site+"/", "action=doctor"); status != http.StatusForbidden || !strings.Contains(body, "needs the role operator") {
		t.Errorf("a viewer starts the doctor: %d %s", status, body)
	}
	operator := logIn(t, site, "operator")
	if status, _, header := fetch(t, operator, http.MethodPost, site+"/", "action=doctor"); status != http.StatusSeeOther || header.Get("Location") != "/#doctor" {
		t.Errorf("an operator starts the doctor: %d", status)
	}
	if _, body, _ := fetch(t, operator, http.MethodGet, site+"/", ""); !strings.Contains(body, "The doctor has begun") {
		t.Error("the page does not say that the doctor has begun")
	}
	if _, body, _ := fetch(t, operator, http.MethodGet, site+"/", ""); strings.Contains(body, "The doctor has begun") {
		t.Error("it says so again")
	}
	if status, body, _ := fetch(t, operator, http.MethodPost, site+"/", "action=nothing"); status != http.StatusBadRequest || !strings.Contains(body, "no such action") {
		t.Errorf("an action that there is not: %d", status)
	}
}

// A form that a foreign page sends is refused.
func TestForeignPages(t *testing.T) {
	site := start(t, works(), false)
	for name, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, site+"/theme", strings.NewReader("theme=dark"))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set(name, value)
		resp, err := visitor(t).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
			t.Errorf("%s: %d", name, resp.StatusCode)
		}
	}
}

// The choice of colours needs no script, and leads back to the page; never to another site.
func TestTheme(t *testing.T) {
	site, c := start(t, works(), false), visitor(t)
	for to, want := range map[string]string{"/cluster": "/cluster", "//evil.example": "/", "https://evil.example": "/", `/\evil.example`: "/"} {
		status, _, header := fetch(t, c, http.MethodPost, site+"/theme", "theme=dark&to="+to)
		if status != http.StatusSeeOther || header.Get("Location") != want {
			t.Errorf("%s: %d %s", to, status, header.Get("Location"))
		}
	}
	if _, body, _ := fetch(t, c, http.MethodGet, site+"/", ""); !strings.Contains(body, `<html lang="en" data-theme="dark">`) {
		t.Error("the page is not dark")
	}
}

// The console says about itself what all programs say.
func TestStatus(t *testing.T) {
	site := start(t, works(), true)
	if status, _, _ := fetch(t, visitor(t), http.MethodGet, site+"/v1/status", ""); status != http.StatusSeeOther {
		t.Errorf("nobody: %d", status)
	}
	status, body, _ := fetch(t, logIn(t, site, "viewer"), http.MethodGet, site+"/v1/status?metrics=tallygate_build_info", "")
	if status != http.StatusOK || !containsAll(body, `"component":"console"`, `"ready":true`, `"tallygate_build_info":[`) {
		t.Errorf("%d %s", status, body)
	}
}

// Static files are kept for good, under an address that changes with them.
func TestAssets(t *testing.T) {
	site := start(t, works(), false)
	_, body, _ := fetch(t, visitor(t), http.MethodGet, site+"/", "")
	n := 0
	for _, part := range strings.Split(body, `"/static/`)[1:] {
		name, _, _ := strings.Cut(part, `"`)
		status, _, header := fetch(t, visitor(t), http.MethodGet, site+"/static/"+name, "")
		if status != http.StatusOK || header.Get("Cache-Control") != "public, max-age=31536000, immutable" || header.Get("Content-Type") == "" {
			t.Errorf("%s: %d %v", name, status, header)
		}
		n++
	}
	if n < 6 {
		t.Errorf("%d files", n)
	}
	if status, _, _ := fetch(t, visitor(t), http.MethodGet, site+"/static/000000000000/app.css", ""); status != http.StatusNotFound {
		t.Errorf("an old address: %d", status)
	}
}
