package e2e

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/chromedp/chromedp"

	"github.com/tallygate/tallygate/internal/console/browsertest"
)

const clickRules = `
    - name: searches
      match: {api: search.query}
      limit: 5
      per: 1h
      then: {block: 30m}
`

// clickRig is an installation with a console whose readers have roles.
type clickRig struct {
	*rig
	a, guard, console *Process
}

// with is the rig as a subtest uses it.
func (w *clickRig) with(t *testing.T) *clickRig {
	return &clickRig{w.in(t), w.a, w.guard, w.console}
}

func startClicks(t *testing.T) *clickRig {
	t.Helper()
	w := &clickRig{rig: newRig(t, clickRules)}
	folder := t.TempDir()
	var tokens strings.Builder
	for _, role := range []string{"viewer", "operator", "admin"} {
		fmt.Fprintf(&tokens, "- {name: ann-%s, role: %[1]s, sha256: %x}\n", role, sha256.Sum256([]byte("token-"+role)))
	}
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	w.a = w.aggregator("a", "--tokens", write("tokens.yaml", tokens.String())).Start().Ready()
	w.guard = newProcess(t, "guard", program(t, "enforcer"), "--redis", w.redisAddr, "--prefix", w.prefix, "--instance-id", "guard").Start().Ready()
	w.console = newProcess(t, "console", program(t, "tallygate"), "--kafka", w.brokers[0], "--redis", w.redisAddr, "--prefix", w.prefix, "--aggregator", w.a.addr,
		"--token-file", write("token", "token-viewer"))
	w.console.args = append([]string{"console"}, w.console.args...)
	w.console.Start().Ready()
	return w
}

// emits sends so many searches of a user.
func (w *clickRig) emits(uid string, n int) {
	w.t.Helper()
	var all []*sarama.ProducerMessage
	for range n {
		all = append(all, w.record(uid, fmt.Sprintf(`{"api":"search.query","uid":%q}`, uid)))
	}
	w.put(all)
}

func (w *clickRig) denied(uid string) bool {
	w.t.Helper()
	return !check(w.t, w.guard, "search.query", []string{uid})[0].Allowed
}

func (w *clickRig) denies(uid string) {
	w.t.Helper()
	eventually(w.t, "the enforcer denies "+uid, func() bool { return w.denied(uid) })
}

func (w *clickRig) allows(uid string) {
	w.t.Helper()
	eventually(w.t, "the enforcer allows "+uid, func() bool { return !w.denied(uid) })
}

// audit has the entries of a type, as they are in the topic.
func (w *clickRig) audit(kind string) (entries []string) {
	w.t.Helper()
	for p := range w.partitions {
		w.records(w.names.Audit, p, func(m *sarama.ConsumerMessage) {
			if text := string(m.Key) + " " + string(m.Value); strings.Contains(text, kind) {
				entries = append(entries, text)
			}
		})
	}
	return entries
}

// audits waits for an entry with these words.
func (w *clickRig) audits(words ...string) {
	w.t.Helper()
	eventually(w.t, fmt.Sprintf("the audit has %q", words), func() bool {
		for _, entry := range w.audit(words[0]) {
			if containsEach(entry, words) {
				return true
			}
		}
		return false
	})
}

func containsEach(text string, words []string) bool {
	for _, word := range words {
		if !strings.Contains(text, word) {
			return false
		}
	}
	return true
}

// version is the one of the rules that the aggregator runs.
func (w *clickRig) version() int64 {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), http.MethodGet, w.a.url("/v1/rules"), nil)
	if err != nil {
		w.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer token-viewer")
	resp, err := client.Do(req)
	if err != nil {
		w.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var is struct {
		Version int64 `json:"version"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&is); err != nil {
		w.t.Fatal(err)
	}
	return is.Version
}

// posts is a reader who sends forms by hand, and has to be refused each.
func (w *clickRig) posts(role string) func(path, form string) {
	w.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		w.t.Fatal(err)
	}
	by := &http.Client{Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	w.t.Cleanup(by.CloseIdleConnections)
	send := func(path, form string) int {
		resp, err := by.Post(w.console.url(path), "application/x-www-form-urlencoded", strings.NewReader(form))
		if err != nil {
			w.t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	if status := send("/login", "token=token-"+role); status != http.StatusSeeOther {
		w.t.Fatalf("a login as %s: %d", role, status)
	}
	return func(path, form string) {
		w.t.Helper()
		if status := send(path, form); status != http.StatusForbidden {
			w.t.Errorf("a %s posts %s to %s: %d", role, form, path, status)
		}
	}
}

// clicker is a reader before a page.
type clicker struct {
	*browsertest.Page
	t    *testing.T
	site string
}

func (w *clickRig) logsIn(b *browsertest.Browser, role, path string) *clicker {
	w.t.Helper()
	return &clicker{b.Open(w.console.url(path), browsertest.Look{Token: "token-" + role}), w.t, w.console.url("")}
}

func (c *clicker) opens(path string) {
	c.t.Helper()
	c.do(chromedp.Navigate(c.site + path))
}

func (c *clicker) click(selector string) {
	c.t.Helper()
	c.do(chromedp.Click(chromedp.CSS(selector)))
}

// follows clicks, and waits for the page to which that leads.
func (c *clicker) follows(selector string) {
	c.t.Helper()
	browsertest.Get(c.Page, chromedp.Evaluate[bool]("window.before = true"))
	c.click(selector)
	began := time.Now()
	eventually(c.t, "a click on "+selector+" leads somewhere", func() bool {
		if time.Since(began) > patience {
			text, _ := c.text()
			c.t.Fatalf("a click on %s leads nowhere, on the page\n%s", selector, text)
		}
		is, err := chromedp.Run(c.Context(), chromedp.Evaluate[bool]("window.before === undefined && document.readyState === 'complete'"))
		return err == nil && is
	})
}

// types in the rules' text, as somebody does who replaces a part.
func (c *clicker) types(from, to string) {
	c.t.Helper()
	c.evaluates(fmt.Sprintf(`(() => { const a = document.getElementById("f-rules"); a.value = a.value.replace(%q, %q); a.dispatchEvent(new Event("input", {bubbles: true})); return a.value.includes(%[2]q) })()`, from, to))
}

// fills a field by its name, and waits for it first.
func (c *clicker) fills(name, text string) {
	c.t.Helper()
	c.do(chromedp.SetValue(chromedp.CSS("#f-"+name), text))
}

// does an action: its reason, and its button.
func (c *clicker) does(reason string) {
	c.t.Helper()
	c.fills("reason", reason)
	c.follows("form.act button")
}

func (c *clicker) searches(key string) {
	c.t.Helper()
	c.fills("key", key)
	c.follows("form.search button")
}

// patience is for one thing on a page. It is not that of eventually: what a page does not have, it never gets.
const patience = 30 * time.Second

// do acts on the page.
func (c *clicker) do(actions ...chromedp.Action[chromedp.Void]) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	if err := chromedp.Do(ctx, actions...); err != nil {
		text, _ := c.text()
		c.t.Fatalf("%v, on the page\n%s", err, text)
	}
}

// text is what the page says, and what stands in its fields of several lines.
func (c *clicker) text() (string, error) {
	return chromedp.Run(c.Context(), chromedp.Evaluate[string](`document.querySelector("main").innerText + [...document.querySelectorAll("main textarea")].map((a) => "\n" + a.value).join("")`))
}

// sees waits until the page has these words.
func (c *clicker) sees(words ...string) {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, fmt.Sprintf("the page has %q", words), func() bool {
		text, err := c.text() // it fails while the page changes
		if time.Since(began) > patience {
			c.t.Fatalf("the page has not %q: %v\n%s", words, err, text)
		}
		return err == nil && containsEach(text, words)
	})
}

// offered waits until the page, loaded again and again, has these words.
func (c *clicker) offered(words ...string) {
	c.t.Helper()
	at := c.path()
	eventually(c.t, fmt.Sprintf("the page offers %q", words), func() bool {
		c.opens(at)
		text, err := c.text()
		return err == nil && containsEach(text, words)
	})
}

func (c *clicker) evaluates(expression string) {
	c.t.Helper()
	if !browsertest.Get(c.Page, chromedp.Poll[bool](expression)) {
		c.t.Errorf("this is not so: %s", expression)
	}
}

func (c *clicker) has(selector string) bool {
	c.t.Helper()
	return browsertest.Get(c.Page, chromedp.Evaluate[bool](fmt.Sprintf("document.querySelector(%q) !== null", selector)))
}

// path is where the page is.
func (c *clicker) path() string {
	c.t.Helper()
	path, _, _ := strings.Cut(strings.TrimPrefix(browsertest.Get(c.Page, chromedp.Location()), c.site), "#")
	return path
}
