package receive

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// message is one about a rule's verdicts, with what others would like to smuggle in.
func message() *note.Message {
	n := &note.Note{Kind: note.Verdict, State: note.Happened, At: noon, Rule: "card-testing", What: "block until later: 11 of 10", Key: []event.Dim{{Name: "api", Value: "pay"}, {Name: "uid", Value: "42"}}, Reason: "<!channel> & [x](http://evil)\r\nBcc: all@example.com"}
	m := &note.Message{Version: 1, ID: "k7q2lujagj5mqk5y2zj3rsdfqa", Kind: n.Kind, State: n.State, Route: "fraud", Rule: n.Rule, Count: 3, Dropped: 2, First: noon, Last: noon.Add(time.Minute), Examples: []note.Example{note.ExampleOf(n, false)}, Link: "https://console.example.com/rules/card-testing"}
	m.Describe()
	return m
}

// inbox is a receiver's server: it keeps what it gets, and answers what it is told to.
type inbox struct {
	*httptest.Server
	requests []*http.Request
	bodies   [][]byte
	answer   func(w http.ResponseWriter, r *http.Request)
}

func newInbox(t *testing.T) *inbox {
	b := &inbox{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		b.requests, b.bodies = append(b.requests, r), append(b.bodies, body)
		if b.answer != nil {
			b.answer(w, r)
		}
	}))
	t.Cleanup(b.Close)
	return b
}

func receiver(t *testing.T, c *Config) Receiver {
	t.Helper()
	if c.Timeout == 0 {
		c.Timeout = 5 * time.Second
	}
	r, err := New(c, testrun.Getenv, func() time.Time { return noon.Add(time.Hour) }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	return r
}

func secretFile(t *testing.T, text string) Value {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return Value{File: path}
}

// A webhook's body is as docs/api says, with masked keys, and both signatures are right by the program that
// docs/notify.md shows, which is not ours.
func TestAWebhook(t *testing.T) {
	t.Parallel()
	b := newInbox(t)
	secrets := []Value{secretFile(t, "new-secret\n"), secretFile(t, "old-secret")}
	to := receiver(t, &Config{Type: "webhook", URL: Value{Plain: b.URL + "/hook"}, Secrets: secrets, Token: secretFile(t, "hush")})
	if err := to.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	r, body := b.requests[0], b.bodies[0]
	if r.URL.Path != "/hook" || r.Header.Get("Authorization") != "Bearer hush" || r.Header.Get("Tallygate-Delivery") != message().ID || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("%s %v", r.URL, r.Header)
	}
	schema, err := apitest.CompileClosed(apidocs.Notification)
	if err != nil {
		t.Fatal(err)
	}
	if err := schema.Validate(body); err != nil {
		t.Errorf("%v\n%s", err, body)
	}
	if strings.Contains(string(body), `42`) || !strings.Contains(string(body), `"api":"pay"`) || strings.Contains(string(body), "\\r") {
		t.Errorf("%s", body)
	}
	for _, secret := range []string{"new-secret", "old-secret"} {
		if out := verify(t, secret, r.Header.Get("Tallygate-Signature"), body); out != "good" {
			t.Errorf("with %s: %s", secret, out)
		}
	}
	for what, out := range map[string]string{
		"another secret": verify(t, "secret", r.Header.Get("Tallygate-Signature"), body),
		"another body":   verify(t, "new-secret", r.Header.Get("Tallygate-Signature"), append(body, ' ')),
		"another time":   verify(t, "new-secret", strings.Replace(r.Header.Get("Tallygate-Signature"), "t=1", "t=2", 1), body),
	} {
		if out != "bad" {
			t.Errorf("%s: %s", what, out)
		}
	}
}

// verify runs the page's program for a receiver.
func verify(t *testing.T, secret, signature string, body []byte) string {
	t.Helper()
	page, err := os.ReadFile("../../../docs/notify.md")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```python\n")
	program, _, ok := strings.Cut(rest, "```")
	if !ok {
		t.Fatal("docs/notify.md shows no program in Python")
	}
	program = "import hmac, time\n" + program + "\nimport sys\nprint('good' if genuine(sys.argv[1].encode(), sys.argv[2], sys.stdin.buffer.read(), now=float(sys.argv[3])) else 'bad')\n"
	cmd := exec.Command("python3", "-c", program, secret, signature, fmt.Sprint(noon.Add(time.Hour+time.Minute).Unix()))
	cmd.Stdin, cmd.Stderr = strings.NewReader(string(body)), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(out))
}

// No answer's text, redirect or error shows an address, and each says whether to try again.
func TestFailures(t *testing.T) {
	t.Parallel()
	b := newInbox(t)
	to := receiver(t, &Config{Type: "slack", URL: secretFile(t, b.URL+"/services/T0/B0/hush"), Timeout: time.Second})
	for _, c := range []struct {
		status int
		header string
		body   string
		want   Failure
		says   string
	}{
		{status: 429, header: "7", want: Failure{Reason: Limited, After: 7 * time.Second}, says: "it answers 429"},
		{status: 429, header: "99999999", want: Failure{Reason: Limited, After: maxAfter}},
		{status: 503, want: Failure{Reason: Broken}},
		{status: 500, header: "-5", body: "hush", want: Failure{Reason: Broken}, says: "it answers 500"},
		{status: 404, body: "no_service\n", want: Failure{Reason: Denied}, says: "it answers 404: no_service"},
		{status: 403, body: "/services/T0/B0/hush", want: Failure{Reason: Denied}},
		{status: 400, body: "invalid_payload", want: Failure{Reason: Refused, Lost: true}},
		{status: 413, want: Failure{Reason: Refused, Lost: true}},
		{status: 302, header: "/elsewhere", want: Failure{Reason: Denied}, says: "a redirect"},
		{status: 408, want: Failure{Reason: Broken}},
	} {
		b.answer = func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", c.header)
			w.Header().Set("Location", b.URL+"/elsewhere")
			w.WriteHeader(c.status)
			_, _ = io.WriteString(w, c.body)
		}
		seen := len(b.requests)
		f := Failed(to.Send(t.Context(), message()))
		if f.Reason != c.want.Reason || f.Lost != c.want.Lost || f.After != c.want.After || !strings.Contains(f.Error(), c.says) || len(b.requests) != seen+1 {
			t.Errorf("%d: %+v, %d requests", c.status, f, len(b.requests)-seen)
		}
		if strings.Contains(f.Error(), "hush") || strings.Contains(f.Error(), "/services") {
			t.Errorf("%d: the error shows the address: %v", c.status, f)
		}
	}
	if after := retryAfter(time.Now().Add(time.Minute).UTC().Format(http.TimeFormat)); after < 50*time.Second || after > time.Minute {
		t.Errorf("a date: %v", after)
	}
	b.answer = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	if f := Failed(to.Send(t.Context(), message())); f.Reason != Unreachable || f.Error() != "no answer in time" {
		t.Errorf("a slow one: %v", f)
	}
	b.Close()
	if f := Failed(to.Send(t.Context(), message())); f.Reason != Unreachable || strings.Contains(f.Error(), "hush") {
		t.Errorf("one that is away: %v", f)
	}
}

// Addresses and secrets are read at each attempt: a file that was replaced is in effect at once.
func TestSecretsAreReadEachTime(t *testing.T) {
	b := newInbox(t)
	url := secretFile(t, b.URL+"/one")
	to := receiver(t, &Config{Type: "slack", URL: url})
	for _, path := range []string{"/one", "/two"} {
		if err := os.WriteFile(url.File, []byte(b.URL+path+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := to.Send(t.Context(), message()); err != nil || b.requests[len(b.requests)-1].URL.Path != path {
			t.Errorf("%v", err)
		}
	}
	for _, bad := range []string{"", "http://example.com/hush", "nonsense"} {
		if err := os.WriteFile(url.File, []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if f := Failed(to.Send(t.Context(), message())); f.Reason != Setup || strings.Contains(f.Error(), "hush") {
			t.Errorf("%q: %v", bad, f)
		}
	}
}

func TestSlack(t *testing.T) {
	b := newInbox(t)
	to := receiver(t, &Config{Type: "slack", URL: Value{Plain: b.URL}})
	long := message()
	long.Text = strings.Repeat("<&> ", 1024)
	for _, m := range []*note.Message{message(), long} {
		if err := to.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var got struct {
		Text   string
		Blocks []struct {
			Type string
			Text struct{ Type, Text string }
		}
	}
	for i, body := range b.bodies {
		if err := json.Unmarshal(body, &got); err != nil {
			t.Fatal(err)
		}
		section := got.Blocks[1].Text.Text
		if got.Text != "3 verdicts: rule card-testing" || len(got.Blocks) != 3 || len(section) > 3000 || strings.Contains(section, "<") {
			t.Errorf("%d: %+v", i, got)
		}
		if i == 0 && !strings.Contains(section, "uid=•••  block until later: 11 of 10: &lt;!channel&gt; &amp;") {
			t.Errorf("%s", section)
		}
	}
}

func TestTeams(t *testing.T) {
	b := newInbox(t)
	to := receiver(t, &Config{Type: "teams", URL: Value{Plain: b.URL}})
	if err := to.Send(t.Context(), message()); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Type        string
		Attachments []struct {
			ContentType string
			Content     struct {
				Type, Version string
				Body          []struct {
					Type    string
					Inlines []struct{ Type, Text string }
				}
				Actions []struct{ Type, URL string }
			}
		}
	}
	if err := json.Unmarshal(b.bodies[0], &got); err != nil {
		t.Fatal(err)
	}
	c := got.Attachments[0].Content
	if got.Type != "message" || got.Attachments[0].ContentType != "application/vnd.microsoft.card.adaptive" || c.Type != "AdaptiveCard" || len(c.Body) != 5 || c.Actions[0].URL != message().Link {
		t.Errorf("%s", b.bodies[0])
	}
	for _, item := range c.Body {
		if item.Type != "RichTextBlock" || item.Inlines[0].Type != "TextRun" {
			t.Errorf("%+v has markup", item)
		}
	}
	b.answer = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "Webhook message delivery failed with error: Microsoft Teams endpoint returned HTTP error 429")
	}
	if f := Failed(to.Send(t.Context(), message())); f.Reason != Limited || f.Lost {
		t.Errorf("%+v", f)
	}
}

// A real Alertmanager has an alert while a state lasts, and has it no more when its end is told.
func TestAlertmanager(t *testing.T) {
	program, err := exec.LookPath("prometheus-alertmanager")
	if err != nil {
		t.Skip("no prometheus-alertmanager is installed")
	}
	dir, addr := t.TempDir(), servers.FreeAddr(t)
	if err := os.WriteFile(filepath.Join(dir, "am.yml"), []byte("route: {receiver: none}\nreceivers: [{name: none}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "am.yml"), "--storage.path="+dir, "--web.listen-address="+addr, "--cluster.listen-address=")
	cmd.Stderr = t.Output()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	testrun.Eventually(t, "it listens", func() bool {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", addr)
		if err == nil {
			_ = conn.Close()
		}
		return err == nil
	})
	now := time.Now()
	to, err := New(&Config{Type: "alertmanager", URL: Value{Plain: "http://" + addr}, Timeout: 5 * time.Second, Repeat: time.Minute, Keep: time.Minute, Labels: map[string]string{"team": "shop"}}, testrun.Getenv, func() time.Time { return now }, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Close()
	testrun.Eventually(t, "it is ready", func() bool { return status(t, "http://"+addr+"/-/ready") == http.StatusOK })
	stale := &note.Message{Version: 1, ID: "x", Kind: note.EnforcerStale, State: note.Firing, Route: "oncall", Subject: "enforcer-1", Title: "an enforcer is stale", Text: "31 s", Count: 1, First: now.Add(-time.Minute), Last: now}
	for _, m := range []*note.Message{stale, message()} {
		if err := to.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	alerts := func() string {
		var list []struct {
			Labels, Annotations map[string]string
			Status              struct{ State string }
		}
		if err := json.Unmarshal(fetch(t, "http://"+addr+"/api/v2/alerts"), &list); err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, a := range list {
			names = append(names, a.Labels["alertname"]+" "+a.Labels["subject"]+a.Labels["rule"]+" "+a.Labels["team"]+" "+a.Annotations["summary"])
		}
		return strings.Join(names, "; ")
	}
	testrun.Eventually(t, "both are there", func() bool {
		is := alerts()
		return strings.Contains(is, "TallygateEnforcerStale enforcer-1 shop an enforcer is stale") && strings.Contains(is, "TallygateVerdict card-testing shop 3 verdicts")
	})
	now = time.Now()
	stale.State, stale.First, stale.Last = note.Resolved, now, now
	if err := to.Send(t.Context(), stale); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the state is over", func() bool {
		return !strings.Contains(alerts(), "EnforcerStale") && strings.Contains(alerts(), "TallygateVerdict")
	})
}

func status(t *testing.T, url string) int {
	resp, err := get(t, url)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

func fetch(t *testing.T, url string) []byte {
	t.Helper()
	resp, err := get(t, url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func get(t *testing.T, url string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(context.WithoutCancel(t.Context()), http.MethodGet, url, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Close = true
	return http.DefaultClient.Do(req)
}
