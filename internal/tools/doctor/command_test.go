package doctor

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

func TestAHealthyInstallationBeforeItsFirstAggregator(t *testing.T) {
	s := stack(t)
	ensure(t, s.Kafka, topics.Config{Partitions: 2})
	t.Chdir(t.TempDir())
	if err := os.WriteFile("rules.yaml", []byte(goodRules), 0o600); err != nil {
		t.Fatal(err)
	}
	status, out, errs := run(t, nil, "--kafka", s.Kafka[0], "--redis", s.Redis, "--rules", "rules.yaml")
	if status != 0 || errs != "" {
		t.Errorf("exit status %d, %s", status, errs)
	}
	goldenFrom(t, "healthy.golden", out)
}

func TestNothingIsThereYet(t *testing.T) {
	s := stack(t)
	status, out, _ := run(t, nil, "--kafka", s.Kafka[0], "--prefix", "shop", "--no-write")
	if status != 0 {
		t.Errorf("exit status %d", status)
	}
	golden(t, "empty.golden", out)
}

func TestServersThatAreAway(t *testing.T) {
	t.Parallel()
	status, out, errs := run(t, nil, "--kafka", "127.0.0.1:1", "--redis", "127.0.0.1:2")
	if status != 1 || errs != "" {
		t.Errorf("exit status %d, %s", status, errs)
	}
	golden(t, "away.golden", out)
}

// A server that takes connections and says nothing must not hold the doctor up.
func TestServersThatHang(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	status, out, _ := run(t, nil, "--kafka", l.Addr().String(), "--redis", l.Addr().String(), "--timeout", "500ms")
	if status != 1 {
		t.Errorf("exit status %d", status)
	}
	for _, want := range []string{"FAIL  kafka ", "FAIL  redis ", "2 failed"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not in\n%s", want, out)
		}
	}
	if strings.Contains(out, "interrupted") { // they were waited for until the test's time was over
		t.Errorf("there is no end of waiting:\n%s", out)
	}
}

func TestJSONIsForPrograms(t *testing.T) {
	t.Parallel()
	s := stack(t)
	status, out, _ := run(t, map[string]string{"TALLYGATE_KAFKA": s.Kafka[0], "TALLYGATE_REDIS": "127.0.0.1:2"}, "--json")
	var r Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatal(err, out)
	}
	if status != 1 || r.Well || len(r.Results) < 15 {
		t.Errorf("exit status %d, %+v", status, r)
	}
	wants(t, &r, "redis", Fail, "127.0.0.1:2", "check --redis")
	wants(t, &r, "kafka", OK, s.Kafka[0])
}

func TestWhatMustBeAllowed(t *testing.T) {
	status, out, errs := run(t, nil, "--acls", "--kafka", "k1:9092,k2:9092", "--principal", "User:o'hara", "--prefix", "shop")
	if status != 0 || errs != "" {
		t.Errorf("exit status %d, %s", status, errs)
	}
	golden(t, "acls.golden", out)
}

// Kafka's own tools wait for ever where they are not told how to get in.
func TestRightsOfASecuredKafka(t *testing.T) {
	status, out, errs := run(t, map[string]string{"TALLYGATE_KAFKA_PASSWORD": "x"}, "--acls", "--kafka", "k:9093", "--kafka-sasl", "plain", "--kafka-user", "u")
	if status != 0 || errs != "" || !strings.HasPrefix(out, "# admin.properties: ") {
		t.Errorf("exit status %d, %s%s", status, errs, out)
	}
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "kafka-acls") && !strings.HasPrefix(line, "kafka-acls.sh --bootstrap-server k:9093 --command-config admin.properties --add ") {
			t.Error(line)
		}
	}
}

// Without the right to create topics they are made by hand, and their number is for ever.
func TestNewTopicsAreAsTheAggregatorsWouldMakeThem(t *testing.T) {
	s := stack(t)
	_, out, _ := run(t, nil, "--kafka", s.Kafka[0], "--prefix", "fresh", "--no-write", "--partitions", "24", "--replication", "1")
	if n := strings.Count(out, "--partitions 24 --replication-factor 1"); n != 6 || strings.Contains(out, "--partitions 12") {
		t.Errorf("%d topics with 24 partitions in\n%s", n, out)
	}
	if status, _, errs := run(t, nil, "--kafka", s.Kafka[0], "--partitions", "-1"); status != 2 || !strings.Contains(errs, "-1 partitions") {
		t.Errorf("exit status %d, %s", status, errs)
	}
}

// The reference has the same lines.
func TestTheReferenceSaysWhatMustBeAllowed(t *testing.T) {
	_, out, _ := run(t, nil, "--acls", "--kafka", "kafka:9092")
	testrun.Section(t, "../../../docs/reference/kafka.md", "$ tallygate doctor --acls --kafka kafka:9092\n", "```\n", out)
}

func TestWrongOptions(t *testing.T) {
	for _, args := range [][]string{
		{"--nonsense"}, {"extra"}, {"--shards", "0"}, {"--broker-time", "mine"}, {"--timeout", "1ms"}, {"--kafka-sasl", "none"},
	} {
		if status, _, errs := run(t, nil, args...); status != 2 || errs == "" {
			t.Errorf("%q: exit status %d, %s", args, status, errs)
		}
	}
	if status, out, _ := run(t, nil, "--help"); status != 0 || !strings.Contains(out, "--no-write") {
		t.Errorf("exit status %d: %s", status, out)
	}
}

func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	s := stack(t)
	const secret = "hunter2"
	env := map[string]string{"TALLYGATE_KAFKA_PASSWORD": secret, "TALLYGATE_REDIS_PASSWORD": secret}
	for _, how := range []string{"--json=false", "--json"} {
		_, out, errs := run(t, env, "--kafka", s.Kafka[0], "--kafka-sasl", "plain", "--kafka-user", "me", "--redis", s.Redis, "--redis-user", "me", how)
		if strings.Contains(out+errs, secret) {
			t.Errorf("%s: the password is in\n%s%s", how, out, errs)
		}
	}
}

func TestLinesForPeople(t *testing.T) {
	var b strings.Builder
	writeResult(&b, fail("topics", "one step\nanother", "two\nlines"))
	const want = "FAIL  topics          two\n                      lines\n                      -> one step\n                      -> another\n"
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

// goldenFrom is golden for a test that has left the package's folder.
func goldenFrom(t *testing.T, file, text string) {
	t.Helper()
	t.Chdir(filepath.Clean(packageFolder))
	golden(t, file, text)
}

var packageFolder = func() string {
	dir, err := os.Getwd()
	if err != nil {
		panic(err)
	}
	return dir
}()
