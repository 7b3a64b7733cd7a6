package aggregator

import (
	"net/http"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// goldenRules have limits whose windows do not end while the test runs.
const goldenRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  exempt:
    - {ip: 10.0.0.0/8, reason: the office}
  rules:
    - {name: orders, key: uid, match: {api: order}, limit: 2, per: year, window: calendar, timezone: UTC, then: {block: until-reset}}
    - {name: looks, key: uid, mode: shadow, match: {api: look}, limit: 1, per: year, window: calendar, timezone: UTC, then: {block: until-reset}}
    - {name: devices, key: [uid, attrs.device], match: {api: order}, limit: 100, per: year, window: calendar, timezone: UTC, then: {block: until-reset}}
    - {name: addresses, key: ip, match: {api: order}, limit: 100, per: year, window: calendar, timezone: UTC, then: {block: until-reset}}
    - {name: messages, key: attrs.phone, match: {api: sms}, limit: 3, per: year, window: calendar, timezone: UTC, strict: true, then: {block: until-reset}}
    - {name: fused, key: attrs.phone, match: {api: fused}, limit: 1, per: year, window: calendar, timezone: UTC, fuse: 5%, notify: true, then: {block: until-reset}}
`

// What each path of the API answers to whom, byte for byte but for times, identifiers and rates:
// testdata/answers.txt, played against one engine. A question is METHOD PATH [as ROLE] [at publisher], then header
// fields, then the body. "rules" writes the rule file; "blocks" waits until a uid has a verdict.
func TestAnswers(t *testing.T) {
	kafka, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	path := rulesFile(t, goldenRules)
	g := &goldenRig{t: t, rules: path, reloads: time.Now(), asked: map[string]bool{}}
	g.engine = began(t, kafka.Kafka, "answers", nil, "--rules", path, "--tokens", staff(t), "--redis", kafka.Redis, "--instance-id", "agg-1", "--partitions", "2")
	g.publisher = began(t, kafka.Kafka, "answers", nil, "--rules", "", "--publish-only", "--partitions", "2", "--redis", kafka.Redis, "--instance-id", "pub-1")
	emitTo(t, kafka.Kafka, "answers.events",
		`{"uid":"42","api":"order","attrs":{"device":"d1"},"ip":"192.0.2.1"}`,
		`{"uid":"42","api":"order","attrs":{"device":"d2"}}`, `{"uid":"42","api":"order"}`, `{"uid":"42","api":"look"}`,
		`{"uid":"7","api":"look"}`, `{"uid":"7","api":"look"}`, `{"uid":"7","api":"order"}`, `{"uid":"7","api":"nothing"}`)
	testrun.Script(t, "testdata/answers.txt", g.play)
	client := redis.NewClient(&redis.Options{Addr: kafka.Redis})
	t.Cleanup(func() { _ = client.Close() })
	records := writesMore(t, kafka.Kafka, "answers", client)
	testrun.Golden(t, "testdata/kafka.txt", records)
	testrun.Golden(t, "testdata/redis.txt", redisKeys(t, client))
	for _, o := range apitest.Open(t, apidocs.Aggregator).Operations() {
		if !g.asked[o.Method+" "+o.Path] {
			t.Errorf("testdata/answers.txt does not ask %s %s", o.Method, o.Path)
		}
	}
	types, err := apitest.Load(apidocs.Audit)
	if err != nil {
		t.Fatal(err)
	}
	for kind := range types.(map[string]any)["$defs"].(map[string]any) {
		if !strings.Contains(records, `"type":"`+kind+`"`) {
			t.Errorf("testdata/kafka.txt has no audit entry of the type %s", kind)
		}
	}
}

// emitTo sends events to the partitions of their uids, of two.
func emitTo(t *testing.T, brokers []string, topic string, events ...string) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	cfg.Producer.Partitioner = sarama.NewManualPartitioner
	producer, err := sarama.NewSyncProducer(brokers, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	for _, value := range events {
		_, after, _ := strings.Cut(value, `"uid":"`)
		uid, _, _ := strings.Cut(after, `"`)
		m := &sarama.ProducerMessage{Topic: topic, Partition: event.Partition([]byte(uid), 2), Key: sarama.StringEncoder(uid), Value: sarama.StringEncoder(value)}
		if _, _, err := producer.SendMessage(m); err != nil {
			t.Fatal(err)
		}
	}
}

// goldenRig plays testdata/answers.txt.
type goldenRig struct {
	t                 *testing.T
	engine, publisher *program
	rules             string
	reloads           time.Time
	asked             map[string]bool // METHOD /path
}

func (g *goldenRig) play(question []string) string {
	first, rest := strings.Fields(question[0]), question[1:]
	switch first[0] {
	case "rules":
		g.write(strings.Join(rest, "\n") + "\n")
		return ""
	case "until": // PATH TEXT: an answer has it
		what := strings.Join(first[2:], " ")
		testrun.Eventually(g.t, first[1]+" has "+what, func() bool {
			_, said := g.engine.ask("viewer", http.MethodGet, first[1], "")
			return strings.Contains(said, what)
		})
		return ""
	}
	req, about := testrun.Request(g.t, question)
	p := g.engine
	if about["at"] == "publisher" {
		p = g.publisher
	}
	return g.ask(p, req)
}

// write changes the rule file, whose time moves on each time.
func (g *goldenRig) write(text string) {
	g.t.Helper()
	g.reloads = g.reloads.Add(time.Second)
	if err := os.WriteFile(g.rules, []byte(strings.ReplaceAll(text, "GOLDEN\n", goldenRules)), 0o600); err != nil {
		g.t.Fatal(err)
	}
	if err := os.Chtimes(g.rules, g.reloads, g.reloads); err != nil {
		g.t.Fatal(err)
	}
}

func (g *goldenRig) ask(p *program, req *http.Request) string {
	g.asked[req.Method+" "+req.URL.Path] = true
	req.URL.Host = strings.TrimPrefix(p.url, "http://")
	req.Host = req.URL.Host
	resp, err := p.client.Do(req)
	if err != nil {
		g.t.Fatal(err)
	}
	defer resp.Body.Close()
	answer := testrun.Steady(testrun.Answer(g.t, resp), unsteadyFields...)
	if req.URL.Path == "/openapi.json" && resp.StatusCode == http.StatusOK { // docs/api has it
		answer, _, _ = strings.Cut(answer, "{")
	}
	for _, m := range ofThisRun {
		answer = m.what.ReplaceAllString(answer, m.by)
	}
	return strings.NewReplacer(p.Config.Advertise, "<advertised>", p.Metrics.Addr().String(), "<metrics>").Replace(answer)
}

// ofThisRun replaces values that the machine and its pace decide: hot keys, log lines. Options that were not given
// are those of the reference.
var ofThisRun = []struct {
	what *regexp.Regexp
	by   string
}{
	{regexp.MustCompile(`"hot":\{[^}]*\},`), ""},
	{regexp.MustCompile(`(\{"key":\{[^}]*\},"partition":\d,"share":<n>,"events_per_second":<n>\},?)+\]`), `{"key":{…},"partition":<n>,"share":<n>,"events_per_second":<n>},…]`},
	{regexp.MustCompile(`\{"name":"[^"]*","value":"[^"]*","from":"default"\},?`), ""},
	{regexp.MustCompile(`,\]`), "]"},
	{regexp.MustCompile(`"errors":\[[^\]]*\]`), `"errors":[…]`},
	{regexp.MustCompile(`"version":"[^"]*","commit":"[^"]*","go":"[^"]*"`), `"version":"<version>","commit":"<commit>","go":"<go>"`},
	{regexp.MustCompile(`"keys":\d+,"bytes":`), `"keys":<n>,"bytes":`},
}

// unsteadyFields are numbers that differ from run to run.
var unsteadyFields = []string{"events_per_second", "share", "uptime_seconds", "lag_seconds", "takeover_seconds", "takeovers", "bytes", "seq", "lag", "loop_lag"}
