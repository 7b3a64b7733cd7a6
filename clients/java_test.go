package clients

import (
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/aggregator"
	"github.com/tallygate/tallygate/internal/enforcer"
	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/internal/testrun"
	"github.com/tallygate/tallygate/pipeline/event"
)

// java is how to run an example of the client for Java. It builds the client, and so runs its own tests, which
// read testdata/vectors. TALLYGATE_TEST_CLIENTS=1 runs these tests: they need Java and Maven.
func java(t *testing.T) []string {
	t.Helper()
	if os.Getenv("TALLYGATE_TEST_CLIENTS") != "1" {
		t.Skip("TALLYGATE_TEST_CLIENTS is not 1")
	}
	return []string{"java", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Dlogback.configurationFile=quiet.xml", "-cp", script(t, "java.sh")}
}

func TestJavaPlacesByMurmur2(t *testing.T) {
	brokers := servers.Kafka(t)
	emits(t, brokers, murmur2, append(java(t), "events.Emit")...)
}

func TestJavaDoesNotOneTooMany(t *testing.T) {
	brokers, redis := servers.Kafka(t), servers.Redis(t)
	admits(t, brokers, redis, append(java(t), "events.Admit")...)
}

const ordersRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: orders-v2-secret, public: orders, match: {api: get.orders.id}, limit: 5, per: 1m, then: {block: 1m}}
`

// A service of Spring Boot, as docs/spring.md has it, limits users by what it emitted itself.
func TestSpringBootLimits(t *testing.T) {
	brokers, redis := servers.Kafka(t), servers.Redis(t)
	command := java(t)
	prefix := servers.Name(t)
	servers.DropTopics(t, brokers, prefix)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(ordersRules), 0o600); err != nil {
		t.Fatal(err)
	}
	counts, decides, shop := servers.FreeAddr(t), servers.FreeAddr(t), servers.FreeAddr(t)
	common := []string{"--redis", redis, "--prefix", prefix, "--log-level", "warn", "--metrics-listen"}
	run(t, aggregator.Command, append([]string{"--kafka", strings.Join(brokers, ","), "--rules", rules, "--partitions", "4", "--listen", counts},
		append(common, servers.FreeAddr(t))...))
	run(t, enforcer.Command, append([]string{"--listen", decides, "--grpc-listen", servers.FreeAddr(t)}, append(common, servers.FreeAddr(t))...))
	testrun.Eventually(t, "both are ready", func() bool {
		return get(t, "http://"+counts+"/readyz") != "" && get(t, "http://"+decides+"/readyz") != ""
	})
	_, port, _ := strings.Cut(shop, ":")
	background(t, append(command, "shop.Shop", "--server.address=127.0.0.1", "--server.port="+port, "--tallygate.url=http://"+decides,
		"--tallygate.timeout=5s", "--tallygate.kafka.brokers="+strings.Join(brokers, ","), "--tallygate.kafka.topic="+prefix+".events")...)
	testrun.Eventually(t, "the shop answers", func() bool { return order(t, shop, "somebody").StatusCode == http.StatusOK })

	for n := 1; n <= 5; n++ {
		if r := order(t, shop, "42"); r.StatusCode != http.StatusOK {
			t.Fatalf("order %d of 5 got %d", n, r.StatusCode)
		}
	}
	var denied *http.Response
	testrun.Eventually(t, "one order too many gets 429", func() bool {
		denied = order(t, shop, "42")
		return denied.StatusCode == http.StatusTooManyRequests
	})
	sameDenial(t, denied, askShop(t, "http://"+decides+"/v1/forward-auth", map[string]string{"X-Tallygate-Uid": "42", "X-Tallygate-Api": "get.orders.id"}))
	if r := order(t, shop, "43"); r.StatusCode != http.StatusOK {
		t.Errorf("somebody else got %d", r.StatusCode)
	}
	sameEvents(t, brokers, prefix+".events")
}

// sameEvents finds one event for each order that was let in: with its name, what the handler noted, and nothing of
// what was denied.
func sameEvents(t *testing.T, brokers []string, topic string) {
	t.Helper()
	byUser := map[string]int{}
	testrun.Eventually(t, "the last order has an event", func() bool {
		clear(byUser)
		for p := range 4 {
			for _, m := range read(t, brokers, topic, p) {
				e := decode(t, m.Value)
				byUser[e.UID]++
				order, _ := e.Attr("order")
				status, _ := e.Attr("status")
				if e.API != "get.orders.id" || e.Outcome != event.OutcomeSuccess || order.Text != "17" || status.Text != "200" ||
					int(event.Partition([]byte(e.UID), 4)) != p || len(m.Headers) != 1 || string(m.Headers[0].Value) != "shop" {
					t.Fatalf("partition %d has %s, %v", p, m.Value, m.Headers)
				}
			}
		}
		return byUser["43"] > 0
	})
	if byUser["43"] != 1 || byUser["42"] < 6 {
		t.Errorf("events by user: %v", byUser)
	}
}

// sameDenial compares an answer with that of the decision server. Their seconds may differ.
func sameDenial(t *testing.T, got, want *http.Response) {
	t.Helper()
	number := regexp.MustCompile(`\d+ s\.|t=\d+|"until":"[^"]*"|"retry_after":\d+|^\d+$`)
	text := func(r *http.Response) string {
		var b strings.Builder
		for _, h := range []string{"Cache-Control", "Content-Type", "Retry-After", "RateLimit", "RateLimit-Policy"} {
			b.WriteString(h + ": " + number.ReplaceAllString(r.Header.Get(h), "#") + "\n")
		}
		body, err := io.ReadAll(r.Body)
		if err != nil || !json.Valid(body) {
			t.Errorf("the body is %q (%v)", body, err)
		}
		return b.String() + number.ReplaceAllString(strings.TrimSpace(string(body)), "#")
	}
	if g, w := text(got), text(want); g != w || !strings.Contains(w, `"rule":"orders"`) {
		t.Errorf("got\n%s\nwant\n%s", g, w)
	}
}

func order(t *testing.T, shop, user string) *http.Response {
	t.Helper()
	return askShop(t, "http://"+shop+"/orders/17", map[string]string{"X-User": user})
}

// askShop returns a response whose body is read; its status is 0 where nobody answers.
func askShop(t *testing.T, url string, headers map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range headers {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return &http.Response{}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp
}

// background runs a program until the test ends, and shows what it said if the test failed.
func background(t *testing.T, command ...string) {
	t.Helper()
	var said testrun.Output
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		end := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait() // Java ends with 143
		if end.Stop(); t.Failed() {
			t.Logf("%s", said.String())
		}
	})
}

// What docs/spring.md shows is what the tests above build and run.
func TestJavaInPagesIsOfTheExamples(t *testing.T) {
	var examples strings.Builder
	code := 0 // lines of what applications link
	err := filepath.WalkDir("java", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		if strings.HasPrefix(path, "java/example/") {
			examples.Write(text)
		} else if strings.Contains(path, "/src/main/java/") {
			code += linesOfCode(string(text))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if code < 500 || code >= 1000 {
		t.Errorf("%d lines of code, want less than 1,000", code)
	}
	page, err := os.ReadFile("../docs/spring.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?ms)^```(?:java|yaml)\n(.*?)^```$").FindAllSubmatch(page, -1)
	for _, m := range blocks {
		if !strings.Contains(examples.String(), string(m[1])) {
			t.Errorf("docs/spring.md shows what is in no example:\n%s", m[1])
		}
	}
	if len(blocks) < 4 {
		t.Errorf("%d examples found", len(blocks))
	}
}

// linesOfCode counts lines that are neither empty nor a comment, an import or a brace alone.
func linesOfCode(text string) (n int) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" && line != "}" && !notCode.MatchString(line) {
			n++
		}
	}
	return n
}

var notCode = regexp.MustCompile(`^(//|/?\*|import |package )`)
