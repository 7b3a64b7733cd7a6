package emitcmd

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

func TestMain(m *testing.M) {
	if os.Getenv(inChild) != "" {
		runAsCommand()
	}
	goleak.VerifyTestMain(m,
		// go-metrics, which sarama links, has one ticker for the life of the process.
		goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

const topic = "tallygate.events"

// command is one call of the command, on an in-process Kafka.
type command struct {
	kafka          *kfake.Cluster
	stdout, stderr testrun.Output
	env            map[string]string
}

func newCommand(t *testing.T) *command {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, topic, "other.events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &command{kafka: c, env: map[string]string{
		"TALLYGATE_KAFKA": strings.Join(c.ListenAddrs(), ","), "XDG_STATE_HOME": t.TempDir(),
	}}
}

func (c *command) run(ctx context.Context, stdin io.Reader, args ...string) int {
	return Command(ctx, args, stdin, &c.stdout, &c.stderr, testrun.Env(c.env))
}

// events are all that is in the topic.
func (c *command) events(t *testing.T, topic string) (all []event.Event) {
	t.Helper()
	want := c.count(topic)
	cl, err := kgo.NewClient(kgo.SeedBrokers(c.kafka.ListenAddrs()...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for int64(len(all)) < want {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			decoded, err := event.NewDecoder().Decode(r.Value, nil, r.Key, nil)
			if err != nil {
				t.Fatalf("%s: %v", r.Value, err)
			}
			all = append(all, decoded...)
		})
	}
	return all
}

func (c *command) count(topic string) (n int64) {
	for _, p := range c.kafka.PartitionInfos(topic) {
		n += p.HighWatermark
	}
	return n
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func logLine(at time.Time, path string) string {
	return fmt.Sprintf("203.0.113.9 - frank [%s] \"GET %s HTTP/1.1\" 200 2326 \"-\" \"test\"\n", at.Format("02/Jan/2006:15:04:05 -0700"), path)
}

func TestEventsFromStandardInput(t *testing.T) {
	c := newCommand(t)
	in := `{"uid":"42","api":"order.create","cost":0}
{"uid":"43","api":"order.create","time":"2026-11-21T10:00:00Z","cost":2.5}

{"uid":"44","api":"order.create","attrs":{"device":"d1"}}
`
	if code := c.run(t.Context(), strings.NewReader(in), "-", "--json"); code != 0 {
		t.Fatalf("exit status %d: %s", code, c.stderr.String())
	}
	var s summary
	if err := json.Unmarshal([]byte(c.stdout.String()), &s); err != nil || s.Events != 3 || s.Skipped != 0 || s.Dropped != 0 || s.Rate <= 0 {
		t.Errorf("summary %s: %v", c.stdout.String(), err)
	}
	costs := map[string]event.Decimal{}
	for _, e := range c.events(t, topic) {
		costs[e.UID] = e.Cost
	}
	if costs["42"] != 0 || costs["43"] != event.One*5/2 || costs["44"] != event.One {
		t.Errorf("costs %v", costs)
	}
}

func TestACompressedLogWithBadLines(t *testing.T) {
	c := newCommand(t)
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	now := time.Now()
	for n := range 100 {
		fmt.Fprint(z, logLine(now, fmt.Sprintf("/Shop/item?n=%d", n)))
		if n%4 == 0 {
			fmt.Fprintln(z, "what is this?")
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	path := write(t, "access.log", packed.String()) // gzip by its bytes, not by its name
	if code := c.run(t.Context(), nil, "--format", "combined", path); code != 0 {
		t.Fatalf("exit status %d: %s", code, c.stderr.String())
	}
	if out := c.stdout.String(); !strings.HasPrefix(out, "100 events sent in ") || !strings.Contains(out, "25 lines skipped, 0 events dropped") {
		t.Errorf("summary %q", out)
	}
	lines := strings.Split(strings.TrimSpace(c.stderr.String()), "\n")
	if len(lines) != 21 || !strings.HasPrefix(lines[0], path+":2: ") || !strings.HasSuffix(lines[20], "5 more malformed lines") {
		t.Errorf("errors:\n%s", c.stderr.String())
	}
	ids := map[string]bool{}
	for _, e := range c.events(t, topic) {
		ids[e.ID] = true
		if e.UID != "frank" || e.API != "get.shop.item" || e.Time != event.FromTime(now.Truncate(time.Second)) {
			t.Fatalf("event %+v", e)
		}
	}
	if len(ids) != 100 {
		t.Errorf("%d different ids", len(ids))
	}
}

func TestOldEventsAreWarnedOfOnceAndCanBeSentAsNow(t *testing.T) {
	long := time.Date(2015, 5, 17, 10, 5, 3, 0, time.UTC)
	path := write(t, "old.log", logLine(long, "/a")+logLine(long, "/b"))

	c := newCommand(t)
	if code := c.run(t.Context(), nil, path); code != 0 {
		t.Fatal(c.stderr.String())
	}
	if got := c.stderr.String(); strings.Count(got, "warning") != 1 || !strings.Contains(got, "--now") || !strings.Contains(got, "2015-05-17T10:05:03Z") {
		t.Errorf("told %q", got)
	}

	c = newCommand(t)
	if code := c.run(t.Context(), nil, "--now", "--prefix", "other", path); code != 0 {
		t.Fatal(c.stderr.String())
	}
	if c.stderr.String() != "" {
		t.Errorf("told %q", c.stderr.String())
	}
	for _, e := range c.events(t, "other.events") {
		if e.Time != event.NoTime {
			t.Errorf("time %v", e.Time.Time())
		}
	}
	if c.count("other.events") != 2 || c.count(topic) != 0 {
		t.Error("the prefix does not choose the topic")
	}
}

func TestFollowingThroughRotationUntilInterrupted(t *testing.T) {
	t.Parallel()
	c := newCommand(t)
	now := time.Now()
	path := write(t, "access.log", logLine(now, "/a")+logLine(now, "/b"))
	ctx, interrupt := context.WithCancel(t.Context())
	exit := make(chan int)
	go func() { exit <- c.run(ctx, nil, "-f", "--from", "start", path) }()
	testrun.Eventually(t, "two events", func() bool { return c.count(topic) == 2 })

	appendTo(t, path, logLine(now, "/c"))
	testrun.Eventually(t, "three events", func() bool { return c.count(topic) == 3 })
	if err := os.Rename(path, path+".1"); err != nil {
		t.Fatal(err)
	}
	appendTo(t, path+".1", logLine(now, "/late"))
	appendTo(t, path, logLine(now, "/d"))
	testrun.Eventually(t, "five events", func() bool { return c.count(topic) == 5 })

	interrupt()
	if code := <-exit; code != 0 {
		t.Errorf("exit status %d: %s", code, c.stderr.String())
	}
	if out := c.stdout.String(); !strings.HasPrefix(out, "5 events sent") {
		t.Errorf("summary %q", out)
	}
}

func TestInterruptionSendsWhatWasRead(t *testing.T) {
	c := newCommand(t)
	in, feed := io.Pipe()
	defer feed.Close()
	ctx, interrupt := context.WithCancel(t.Context())
	exit := make(chan int)
	go func() { exit <- c.run(ctx, in, "-") }()
	if _, err := io.WriteString(feed, `{"uid":"42","api":"a.b"}`+"\n"); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "one event", func() bool { return c.count(topic) == 1 })
	interrupt()
	if code := <-exit; code != 0 {
		t.Errorf("exit status %d: %s", code, c.stderr.String())
	}
}

func TestRate(t *testing.T) {
	c := newCommand(t)
	started := time.Now()
	in := strings.Repeat(`{"api":"a.b"}`+"\n", 20)
	if code := c.run(t.Context(), strings.NewReader(in), "--rate", "100", "-"); code != 0 {
		t.Fatal(c.stderr.String())
	}
	if took := time.Since(started); took < 190*time.Millisecond {
		t.Errorf("20 events at 100 a second took %v", took)
	}
}

func TestGivingUpWithoutKafka(t *testing.T) {
	c := newCommand(t)
	c.env["TALLYGATE_KAFKA"] = "127.0.0.1:1"
	code := c.run(t.Context(), strings.NewReader(`{"api":"a.b"}`), "--patience", "200ms", "-")
	if got := c.stderr.String(); code != 1 || !strings.Contains(got, "gave up after 200ms") || !strings.Contains(got, "connection refused") {
		t.Errorf("exit status %d: %s", code, got)
	}
	if out := c.stdout.String(); !strings.Contains(out, "0 events sent") || !strings.Contains(out, "1 event dropped") {
		t.Errorf("summary %q", out)
	}
}

func TestWrongUse(t *testing.T) {
	path := write(t, "bad.log", "no\nevents\nhere\n")
	for _, test := range []struct {
		args []string
		code int
		told string
	}{
		{[]string{}, 2, "name the file,"},
		{[]string{"a", "b"}, 2, "got 2 files, want one"},
		{[]string{"--format", "xml", path}, 2, `unknown format "xml"`},
		{[]string{"--rate", "-1", path}, 2, "--rate"},
		{[]string{path, "--wat"}, 2, "wat"},
		{[]string{"-f", "access.log.gz"}, 2, "compressed"},
		{[]string{"--kafka", "nowhere", path}, 2, "nowhere"},
		{[]string{"--patience", "0s", path}, 2, "--patience"},
		{[]string{"-f", "--from", "middle", path}, 2, `--from "middle": want start or end`},
		{[]string{"--state", "x", path}, 2, "--follow"},
		{[]string{"-f", "--state", "/dev/null/x", path}, 1, "name another file by --state FILE"},
		{[]string{"-f", path + ".nix"}, 1, "no such file"},
		{[]string{path + ".nix"}, 1, "no such file"},
		{[]string{t.TempDir()}, 1, "is a directory"},
		{[]string{path}, 1, "no valid event"},
	} {
		c := newCommand(t)
		code := c.run(t.Context(), strings.NewReader(""), test.args...)
		if got := c.stderr.String(); code != test.code || !strings.Contains(got, test.told) {
			t.Errorf("%q: exit status %d, want %d: %s", test.args, code, test.code, got)
		}
	}
}

func TestHelpTeaches(t *testing.T) {
	c := newCommand(t)
	if code := c.run(t.Context(), nil, "--help"); code != 0 {
		t.Errorf("exit status %d", code)
	}
	for _, want := range []string{"Examples:", "tallygate emit -f", "--format", "--follow", "--now", "--rate", "--json", "--kafka", "--prefix", "--state FILE", "--from start|end", "\n  -f\n"} {
		if !strings.Contains(c.stdout.String(), want) {
			t.Errorf("the help does not mention %s", want)
		}
	}
}

func appendTo(t *testing.T, path, text string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
}
