package dev_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Each mistake of docs/mistakes.md is made, and what the page says is told. A row without a case fails,
// and so does a case without a row.
func TestMistakesAreTold(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../../docs/mistakes.md")
	if err != nil {
		t.Fatal(err)
	}
	told := map[string]string{} // by mistake
	for _, m := range mistakeRow.FindAllStringSubmatch(string(page), -1) {
		if m[1] == "mistake" {
			continue // the table's head
		}
		spans := codeSpan.FindAllStringSubmatch(m[2], -1)
		if len(spans) == 0 {
			t.Fatalf("%s: the row does not say what is told", m[1])
		}
		told[m[1]] = spans[len(spans)-1][1]
	}
	if len(told) < 25 {
		t.Errorf("%d rows", len(told))
	}
	w := newMistaken(t)
	cases := slices.Concat(inRules, inEvents, inServices, inCommands)
	for _, c := range cases {
		want, ok := told[c.mistake]
		if !ok {
			t.Errorf("no row is about: %s", c.mistake)
			continue
		}
		delete(told, c.mistake)
		parts := strings.Split(want, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(parts[i])
		}
		expression := regexp.MustCompile(strings.Join(parts, ".*"))
		t.Run(c.mistake, func(t *testing.T) {
			w := *w
			w.t = t
			said := c.make(&w)
			for end := time.Now().Add(within); !expression.MatchString(said()); time.Sleep(20 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatalf("%s\nis not in\n%s", want, said())
				}
			}
		})
	}
	for mistake := range told {
		t.Errorf("nobody makes this mistake: %s", mistake)
	}
	w.dev.stop()
	<-w.dev.status
}

var (
	mistakeRow = regexp.MustCompile(`(?m)^\| ([^|]+?) \| ([^|]+) \|$`)
	codeSpan   = regexp.MustCompile("`([^`]+)`")
)

// mistaken is a newcomer with a `tallygate dev`.
type mistaken struct {
	t                                         *testing.T
	dev                                       *running
	kafka, redis, server, aggregator, metrics string
}

// mistake is one that is made; said is what was told of it so far.
type mistake struct {
	mistake string
	make    func(w *mistaken) (said func() string)
}

const mistakenRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  max_lateness: 1h
  rules:
    - {name: failures, match: {api: login, outcome: failure}, limit: 100, per: 1h, then: {block: 10m}}
    - {name: large, match: {api: order.create}, when: attrs.amount > 100, limit: 3, per: 1h, then: {block: 10m}}
`

func newMistaken(t *testing.T) *mistaken {
	r := start(t, nil, "--rules", file(t, "rules.yaml", mistakenRules), "--input", "none")
	return &mistaken{t: t, dev: r,
		kafka:      r.sees(`^  Kafka +(\S+), topic tallygate.events$`)[1],
		redis:      r.sees(`Redis +(\S+)$`)[1],
		server:     r.sees(`decision server +http://(\S+)/v1/check$`)[1],
		metrics:    r.sees(`metrics +(http://\S+)$`)[1],
		aggregator: r.sees(`aggregator +http://([^/\s]+)`)[1],
	}
}

// tool runs a command, and returns all that it prints.
func (w *mistaken) tool(args ...string) func() string {
	return w.toolWith(map[string]string{}, args...)
}

func (w *mistaken) toolWith(env map[string]string, args ...string) func() string {
	env["TALLYGATE_KAFKA"], env["TALLYGATE_REDIS"], env["TALLYGATE_AGGREGATOR"] = w.kafka, w.redis, w.aggregator
	return func() string {
		var out testrun.Output
		cli.Main(testrun.Context(w.t), args, strings.NewReader(""), &out, &out, testrun.Env(env))
		return out.String()
	}
}

// check checks rules with one thing replaced.
func check(old, wrong string) func(*mistaken) func() string {
	return func(w *mistaken) func() string {
		text := strings.Replace(mistakenRules, old, wrong, 1)
		if text == mistakenRules {
			w.t.Fatalf("%s is not in the rules", old)
		}
		return w.tool("check", file(w.t, "rules.yaml", text))
	}
}

func (w *mistaken) rules() string { return file(w.t, "rules.yaml", mistakenRules) }

// produce writes a record, as a producer of one's own does.
func (w *mistaken) produce(m kafka.Message) {
	w.t.Helper()
	transport := &kafka.Transport{}
	w.t.Cleanup(transport.CloseIdleConnections)
	writer := &kafka.Writer{Transport: transport, Addr: kafka.TCP(w.kafka), Topic: "tallygate.events", Balancer: inTurn{}, RequiredAcks: kafka.RequireAll, BatchTimeout: time.Millisecond}
	defer func() { _ = writer.Close() }()
	if err := writer.WriteMessages(w.t.Context(), m); err != nil {
		w.t.Fatal(err)
	}
}

func (w *mistaken) screen() func() string { return w.dev.screen.String }

func (w *mistaken) doctor() func() string {
	return w.tool("doctor", "--rules", w.rules())
}

var inRules = []mistake{
	{"a field of a rule is misspelled", check("limit: 100", "limt: 100")},
	{"a time zone is misspelled", check("limit: 100, per: 1h", "limit: 100, window: calendar, per: day, timezone: Asia/Shangai")},
	{"an outcome is written as a pattern", check("outcome: failure", `outcome: "fail*"`)},
	{"a rule counts some requests of an API, and blocks all of them", check("kind: RuleSet", "kind: RuleSet ")},
	{"a week begins on a Thursday", check("per: 1h", "window: tumbling, per: 7d")},
	{"the rule file gets a mistake while it is in use", func(w *mistaken) func() string {
		rules := file(w.t, "rules.yaml", mistakenRules)
		r := start(w.t, nil, "--rules", rules, "--input", "none")
		r.sees("-- 0 events")
		if err := os.WriteFile(rules, []byte("nothing"), 0o600); err != nil {
			w.t.Fatal(err)
		}
		w.t.Cleanup(func() { r.stop(); <-r.status })
		return r.screen.String
	}},
	{"an API in a rule is one that no event has", func(w *mistaken) func() string {
		return w.tool("trace", "--rules", w.rules(), `{"uid": "42", "api": "log.in", "outcome": "failure"}`)
	}},
	{"the test of a rule never reaches its limit", func(w *mistaken) func() string {
		dir := filepath.Dir(w.rules())
		path := filepath.Join(dir, "rules_test.yaml")
		text := "rule_files: [rules.yaml]\ntests:\n  - name: nothing\n    events: [{at: 0s, uid: u, api: login, outcome: failure}]\n    expect: [{at: 0s, uid: u, api: login, verdict: none}]\n"
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			w.t.Fatal(err)
		}
		return w.tool("test", path)
	}},
}

var inEvents = []mistake{
	{"the uid has another name, such as `user`", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`{"user": "42", "api": "login", "outcome": "failure"}`)})
		return w.doctor()
	}},
	{"`ip` is a list such as `X-Forwarded-For`, or an array", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`{"uid": "42", "ip": "203.0.113.9, 10.0.0.1", "api": "login", "outcome": "failure"}`)})
		return w.doctor()
	}},
	{"times are in seconds", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`{"uid": "42", "time": 1764000000, "api": "login", "outcome": "failure"}`)})
		return w.doctor()
	}},
	{"the producer's partitioner is not murmur2", func(w *mistaken) func() string {
		w.produce(kafka.Message{Partition: (int(event.Partition([]byte("42"), 4)) + 1) % 4, Key: []byte("42"), Value: []byte(`{"uid": "42", "api": "login", "outcome": "failure"}`)})
		return w.screen()
	}},
	{"an event is no JSON", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`uid=42`)})
		return w.tool("dead-letters")
	}},
	{"an event has no API", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`{"uid": "42"}`)})
		return w.screen()
	}},
	{"events come too late", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`{"uid": "42", "api": "login", "time": "2001-01-01T00:00:00Z"}`)})
		return w.screen()
	}},
	{"an API's name is misspelled in events", func(w *mistaken) func() string {
		w.produce(kafka.Message{Value: []byte(`{"uid": "42", "api": "lo.gin", "outcome": "failure"}`)})
		return w.screen()
	}},
	{"the outcome is another one than the rule's", func(w *mistaken) func() string {
		return w.tool("trace", "--rules", w.rules(), `{"uid": "42", "api": "login", "outcome": "denied"}`)
	}},
	{"an attribute of `when` is missing in events", func(w *mistaken) func() string {
		return w.tool("trace", "--rules", w.rules(), `{"uid": "42", "api": "order.create", "attrs": {"amout": 200}}`)
	}},
	{"all events have the same id", func(w *mistaken) func() string {
		one := `{"id": "1", "time": "2026-11-21T10:00:00Z", "uid": "42", "api": "login", "outcome": "failure"}` + "\n"
		return w.tool("trace", "--rules", w.rules(), file(w.t, "events.ndjson", one+one))
	}},
	{"Kafka's address is wrong", func(w *mistaken) func() string {
		var log testrun.Output
		em, err := emit.New(emit.Config{Brokers: []string{"127.0.0.1:1"}, Logger: log.Logger()})
		if err != nil {
			w.t.Fatal(err)
		}
		em.Emit(event.Event{UID: "42", API: "login"})
		w.t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			_ = em.Close(ctx)
		})
		return log.String
	}},
}

// asked returns a middleware's log behind many requests.
func asked(options httplimit.Options, dress func(*http.Request)) func(*mistaken) func() string {
	return func(w *mistaken) func() string {
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			w.t.Fatal(err)
		}
		var log testrun.Output
		options.Logger = log.Logger()
		handler := httplimit.Middleware(table, options)(http.NotFoundHandler())
		for range 1000 {
			r := httptest.NewRequest(http.MethodGet, "/login", nil)
			dress(r)
			handler.ServeHTTP(httptest.NewRecorder(), r)
		}
		return log.String
	}
}

// waits is why a table is not ready.
func waits(w *mistaken, options *redis.Options, prefix string) func() string {
	var log testrun.Output
	table, err := enforce.NewTable(enforce.Config{Logger: log.Logger()})
	if err != nil {
		w.t.Fatal(err)
	}
	client := redis.NewClient(options)
	w.t.Cleanup(func() { _ = client.Close() })
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client, Prefix: prefix, Logger: log.Logger()})
	if err != nil {
		w.t.Fatal(err)
	}
	testrun.Start(w.t, table.Run)
	testrun.Start(w.t, func(ctx context.Context) error { return feed.Run(ctx, table) })
	return func() string {
		ctx, cancel := context.WithTimeout(w.t.Context(), 100*time.Millisecond)
		defer cancel()
		return fmt.Sprint(table.WaitReady(ctx))
	}
}

var inServices = []mistake{
	{"the middleware is not told who the user is", func(w *mistaken) func() string {
		table, err := enforce.NewTable(enforce.Config{})
		if err != nil {
			w.t.Fatal(err)
		}
		_, err = httplimit.NewGate(table, httplimit.Options{})
		return func() string { return fmt.Sprint(err) }
	}},
	{"the middleware looks for the uid in the wrong place", asked(httplimit.Options{UID: httplimit.Header("X-Usr")}, func(r *http.Request) { r.Header.Set("X-User", "42") })},
	{"behind a proxy, all addresses are the proxy's", asked(httplimit.Options{IP: httplimit.ClientIP()}, func(r *http.Request) {
		r.RemoteAddr = "10.0.0.1:1234"
		r.Header.Set("X-Forwarded-For", "203.0.113.9")
	})},
	{"the service waits for Redis at the wrong address", func(w *mistaken) func() string {
		return waits(w, &redis.Options{Addr: "127.0.0.1:1"}, "")
	}},
	{"the service has another prefix than the aggregator", func(w *mistaken) func() string {
		return waits(w, &redis.Options{Addr: w.redis}, "tallygate-prod")
	}},
	{"a setting of the guard is wrong", func(w *mistaken) func() string {
		_, err := tallygate.Open(w.t.Context(), tallygate.Config{Redis: "http://localhost:6379"})
		return func() string { return fmt.Sprint(err) }
	}},
	{"a check names no user", func(w *mistaken) func() string {
		w.posts("http://"+w.server+"/v1/check", `{"api": "login"}`)()
		return func() string { return get(w.t, w.metrics) }
	}},
	{"a field of a check is misspelled", func(w *mistaken) func() string {
		return w.posts("http://"+w.server+"/v1/check", `{"user": "42", "api": "login"}`)
	}},
}

func (w *mistaken) posts(url, body string) func() string {
	return func() string {
		resp, err := http.Post(url, "application/json", strings.NewReader(body)) //nolint:gosec,noctx // of this test
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		var b [4096]byte
		n, _ := resp.Body.Read(b[:])
		return resp.Status + " " + string(b[:n])
	}
}

var inCommands = []mistake{
	{"an option is misspelled", func(w *mistaken) func() string { return w.tool("explain", "uid=42", "--agregator", "localhost:8081") }},
	{"a command is misspelled", func(w *mistaken) func() string { return w.tool("explian", "uid=42") }},
	{"somebody is unblocked who is not blocked", func(w *mistaken) func() string { return w.tool("unblock", "uid=43", "--reason", "a test") }},
	{"support asks about an API that no rule counts", func(w *mistaken) func() string { return w.tool("explain", "uid=42", "--api", "log.in") }},
	{"the aggregator's address is wrong", func(w *mistaken) func() string {
		return w.tool("explain", "uid=42", "--aggregator", "127.0.0.1:1")
	}},
}
