package dev_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/programs/dev"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

func TestMain(m *testing.M) {
	if os.Getenv(asTool) != "" {
		ctx, stop := ops.Stoppable(context.Background())
		status := cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, testrun.Getenv)
		stop()
		os.Exit(status)
	}
	goleak.VerifyTestMain(m,
		// Sarama's metrics have one for good.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

const within = 2 * time.Minute

// running is a `tallygate dev` inside of this process.
type running struct {
	t           *testing.T
	screen, log testrun.Output
	stop        context.CancelFunc
	status      chan int
}

func start(t *testing.T, stdin io.Reader, args ...string) *running {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	r := &running{t: t, stop: stop, status: make(chan int, 1)}
	args = append([]string{"--listen", "127.0.0.1:0"}, args...)
	go func() { r.status <- dev.Command(ctx, args, stdin, &r.screen, &r.log, testrun.NoEnv) }()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the screen:\n%s\nthe log:\n%s", &r.screen, &r.log)
		}
	})
	return r
}

// sees waits until the screen shows what the expression matches, and returns its groups.
func (r *running) sees(expression string) []string {
	r.t.Helper()
	re := regexp.MustCompile("(?m)" + expression)
	for end := time.Now().Add(within); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if m := re.FindStringSubmatch(r.screen.String()); m != nil {
			return m
		}
		select {
		case status := <-r.status:
			r.t.Fatalf("dev ended with status %d", status)
		default:
		}
	}
	r.t.Fatalf("the screen never shows %s", expression)
	return nil
}

// ends stops dev, and checks that it went well.
func (r *running) ends() {
	r.t.Helper()
	r.endsWell()
	if !strings.HasSuffix(r.screen.String(), "\nstopped\n") {
		r.t.Error("dev does not say that it stopped")
	}
}

// endsWell is ends for what writes lines of JSON.
func (r *running) endsWell() {
	r.t.Helper()
	r.stop()
	select {
	case status := <-r.status:
		if status != 0 {
			r.t.Errorf("dev ends with status %d", status)
		}
	case <-time.After(within):
		r.t.Fatal("dev does not end")
	}
	if log := r.log.String(); log != "" {
		r.t.Errorf("a normal run logs errors:\n%s", log)
	}
	http.DefaultClient.CloseIdleConnections()
}

func file(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

const threeLogins = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  rules:
    - {name: logins, match: {api: login}, limit: 3, per: 1h, then: {block: 10m}}
`

// logins are n logins of a user, an hour apart from each other.
func logins(n int, uid string) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `{"id": "%s-%d", "time": "2026-11-21T%02d:00:00Z", "uid": %q, "api": "login"}`+"\n", uid, i, i, uid)
	}
	return b.String()
}

// The whole story: events in, a verdict on the screen, a request denied, and why.
func TestDev(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "--rules", file(t, "rules.yaml", threeLogins), "--input", file(t, "events.ndjson", logins(5, "42")), "--speed", "0")
	r.sees(`^Traffic: 5 events of .*events.ndjson, as fast as it goes\.$`)
	r.sees(`^[0-9:]{8}  block +uid=42 +logins +4 of 3, until [0-9:]{8}$`)
	r.sees(`the input has ended$`)
	try := r.sees(`try it:  curl -i (http://\S+) -H 'X-Tallygate-Uid: (\S+)' -H 'X-Tallygate-Api: (\S+)'$`)

	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, try[1], nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Tallygate-Uid", try[2])
	req.Header.Set("X-Tallygate-Api", try[3])
	testrun.Eventually(t, "a request is denied", func() bool { // the screen may be ahead of the decision server
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusTooManyRequests && resp.Header.Get("Retry-After") != "" &&
			resp.Header.Get("Content-Type") == "application/problem+json"
	})

	why := r.sees(`and why: tallygate explain (uid=42) --aggregator (\S+)$`)
	var out, errs bytes.Buffer
	testrun.Eventually(t, "all five are counted", func() bool { // the verdict fell at the fourth
		out.Reset()
		if status := cli.Main(testrun.Context(t), []string{"explain", why[1], "--aggregator", why[2]}, strings.NewReader(""), &out, &errs, testrun.NoEnv); status != 0 {
			t.Fatalf("explain ends with %d: %s", status, &errs)
		}
		return regexp.MustCompile(`(?m)^logins +5 +3 .*block until .*, by event 42-3, over the limit until `).Match(out.Bytes())
	})

	metrics := get(t, r.sees(`metrics +(http://\S+)$`)[1])
	for _, name := range []string{"tallygate_events_total{result=\"counted\"} 5", "tallygate_emit_dropped_total 0", "tallygate_blocklist_entries 1"} {
		if !strings.Contains(metrics, "\n"+name+"\n") {
			t.Errorf("no %s in the metrics", name)
		}
	}
	if n := strings.Count(r.screen.String(), "block  "); n != 1 {
		t.Errorf("the verdict is shown %d times", n)
	}
	r.ends()
}

// An app's own events, and a summary of what happened.
func TestDevWithoutTraffic(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "--input", "none", "--rules", file(t, "rules.yaml", threeLogins))
	r.sees(`^Traffic: none; emit some of your own\.$`)
	em, err := emit.New(emit.Config{Brokers: []string{r.sees(`Kafka +(\S+), topic tallygate\.events$`)[1]}})
	if err != nil {
		t.Fatal(err)
	}
	for range 4 {
		em.Emit(event.Event{UID: "7", API: "login"})
	}
	r.sees(`block +uid=7 +logins +4 of 3`)
	if err := em.Close(t.Context()); err != nil {
		t.Error(err)
	}
	// Where all this takes long, the line with the latency may be written before the key is
	// counted.
	r.sees(`; verdict latency [0-9.]+ ms`)
	r.sees(`-- 4 events \([01]/s\), 1 keys, 1 in force`)
	r.ends()
}

// Events that come through a pipe count as they come, and what is none is told.
func TestDevFromStandardInput(t *testing.T) {
	t.Parallel()
	in, pipe := io.Pipe()
	r := start(t, in, "--input", "-", "--rules", file(t, "rules.yaml", threeLogins), "--speed", "0")
	r.sees(`^Traffic: events from standard input, as fast as it goes\.$`)
	_, _ = io.WriteString(pipe, "no event\n"+logins(4, "42"))
	r.sees(`-- standard input: line 1: `)
	r.sees(`block +uid=42 +logins`)
	_, _ = io.WriteString(pipe, logins(4, "43"))
	r.sees(`block +uid=43 +logins`)
	_ = pipe.Close()
	r.sees(`the input has ended`)
	r.ends()
}

// Ctrl-C works without any input.
func TestDevStopsWhileItsInputWaits(t *testing.T) {
	t.Parallel()
	in, pipe := io.Pipe()
	r := start(t, in, "--input", "-")
	r.sees(`Rules: dev, \d+ of them`)
	r.ends()
	_ = pipe.Close() // lets the reader end
}

// The sample's first verdict comes within seconds, and the curl for it is right.
func TestDevSample(t *testing.T) {
	if testing.Short() {
		t.Skip("takes ten seconds")
	}
	t.Parallel()
	r := start(t, nil)
	began := time.Now()
	api := r.sees(`aggregator +(http://[0-9.:]+)/`)
	r.sees(`^Traffic: 9999 requests of a public web server in four days, 600 times as fast as they came\.$`)
	r.sees(`block +uid=83\.149\.9\.216 +reading +20 of 20`)
	t.Logf("the first verdict after %v", time.Since(began).Round(10*time.Millisecond))
	metrics := r.sees(`metrics +(http://\S+)$`)[1]
	testrun.Eventually(t, "a request of the sample is denied", func() bool {
		return strings.Contains(get(t, metrics), `tallygate_checks_total{result="block"}`)
	})
	if !strings.Contains(get(t, metrics), `tallygate_admits_total{result="in_doubt"} 0`) {
		t.Error("something was in doubt, in a stack that has just begun")
	}
	// The sample is in no file: nothing looks for one, and nobody can have it read again.
	resp, err := http.Post(api[1]+"/-/reload", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusNotImplemented {
		t.Errorf("a reload of the sample: %s", resp.Status)
	}
	r.ends()
}

// A strict rule at work: of eight requests at once exactly three are let in, and the next customer's
// fourth is denied, though nothing was counted in between.
func TestDevIsStrict(t *testing.T) {
	if testing.Short() {
		t.Skip("takes some seconds")
	}
	t.Parallel()
	r := start(t, nil)
	began := time.Now()
	r.sees(`^[0-9:]{8}  permits +uid=customer-1 +coupons +8 asked at once: 3 admitted, 5 denied before the action$`)
	t.Logf("permits after %v", time.Since(began).Round(10*time.Millisecond))
	r.sees(`^[0-9:]{8}  block +uid=customer-1 +coupons +3 of 3, until [0-9:]{8}$`)
	try := r.sees(`try it:  for i in 1 2 3 4; do curl -s (http://\S+) -H 'Content-Type: (\S+)' -d '(.*)'; echo; done$`)
	var admitted []bool
	for range 4 {
		resp, err := http.Post(try[1], try[2], strings.NewReader(try[3]))
		if err != nil {
			t.Fatal(err)
		}
		var a struct{ Admitted, Limited bool }
		if err := json.NewDecoder(resp.Body).Decode(&a); err != nil || a.Admitted == a.Limited {
			t.Fatalf("%+v, %v", a, err)
		}
		resp.Body.Close()
		admitted = append(admitted, a.Admitted)
	}
	if want := []bool{true, true, true, false}; !slices.Equal(admitted, want) {
		t.Errorf("admitted %v, want %v", admitted, want)
	}
	api := r.sees(`aggregator +http://(\S+)/v1/explain`)[1]
	standing := regexp.MustCompile(`(?m)^coupons +0 +3 +3 +0 +\S+ +3, the oldest since `)
	last := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("explain said last:\n%s", last)
		}
	})
	testrun.Eventually(t, "explain says what is under way", func() bool { // a Redis that is busy is waited for a second
		var out, errs bytes.Buffer
		if status := cli.Main(testrun.Context(t), []string{"explain", "uid=you", "--api", "coupon.redeem", "--aggregator", api}, strings.NewReader(""), &out, &errs, testrun.NoEnv); status != 0 {
			t.Fatalf("explain ends with %d: %s", status, &errs)
		}
		last = out.String()
		return standing.MatchString(last)
	})
	r.ends()
}

func get(t *testing.T, url string) string {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(body)
}
