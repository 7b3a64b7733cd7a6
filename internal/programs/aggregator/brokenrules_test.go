package aggregator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A restart with a broken rule file goes on with what the group runs. It is unready for that reason
// only, and says so, until the file is good.
func TestABrokenRuleFileAtTheStart(t *testing.T) {
	t.Parallel()
	servers, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	args := []string{"--kafka", servers.Kafka[0], "--partitions", "1", "--prefix", "reload", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}
	broken := rulesFile(t, strings.Replace(limited(5), "limit", "limt", 1))
	args = append(args, "--rules", broken)
	var usage *ops.UsageError
	if _, err := parse(args, io.Discard, io.Discard, testrun.NoEnv); !errors.As(err, &usage) || !strings.Contains(err.Error(), `did you mean "limit"?`) {
		t.Fatalf("a group without rules: %v", err)
	}
	t.Run("the group's rules are published", func(t *testing.T) { running(t, servers.Kafka, rulesFile(t, limited(7))) })

	p := mustParse(t, testrun.NoEnv, args...)
	p.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	testrun.Start(t, p.Run)
	api, metrics := "http://"+p.HTTP.Addr().String(), "http://"+p.Metrics.Addr().String()+"/metrics"
	testrun.Eventually(t, "it is unready for the rules only", func() bool {
		status, text := get(t, api+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "rule file is broken")
	})
	if got := limit(api); got != "7" {
		t.Errorf("it counts by a limit of %s, want the group's 7", got)
	}
	if _, text := get(t, metrics); !strings.Contains(text, "\ntallygate_rules_file_ok 0\n") || strings.Contains(text, "\ntallygate_rules_failed_total 0\n") || !strings.Contains(text, "\ntallygate_rules_file_ok_since_timestamp_seconds 1.") {
		t.Error("the metrics don't say so")
	}
	if err := os.WriteFile(broken, []byte(limited(9)), 0o600); err != nil {
		t.Fatal(err)
	}
	later := time.Now().Add(time.Minute) // the group's file has a time of its own
	if err := os.Chtimes(broken, later, later); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the fixed file is published", func() bool { return limit(api) == "9" })
	testrun.Eventually(t, "it is ready", func() bool { status, _ := get(t, api+"/readyz"); return status == http.StatusOK })
	fileOK := func(is string) func() bool {
		return func() bool {
			_, text := get(t, metrics)
			return strings.Contains(text, "\ntallygate_rules_file_ok "+is+"\n")
		}
	}
	away := broken + ".away"
	if err := os.Rename(broken, away); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "a file that stays missing is told", fileOK("0"))
	if err := os.Rename(away, broken); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "it is back", fileOK("1"))
	// A reload in the moment in which it is replaced finds nothing, and the next look what it was before.
	if err := os.Rename(broken, away); err != nil {
		t.Fatal(err)
	}
	resp, err := http.Post(api+"/-/reload", "application/json", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusUnprocessableEntity || !fileOK("0")() {
		t.Errorf("a reload without the file is answered with %s", resp.Status)
	}
	if err := os.Rename(away, broken); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "what came back as it was is read", fileOK("1"))
	if _, text := get(t, metrics); !strings.Contains(text, "\ntallygate_rules_file_ok 1\n") {
		t.Error("the metrics say that the file is still broken")
	}
	if err := os.WriteFile(broken, []byte("rules: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "a file that breaks later is said", func() bool {
		_, text := get(t, metrics)
		return strings.Contains(text, "\ntallygate_rules_file_ok 0\n")
	})
	if status, text := get(t, api+"/readyz"); status != http.StatusOK {
		t.Errorf("and the program is not ready any more: %s", text)
	}
}

// A file that the rules name is a part of them: a mistake in it is one of the rules, also when it is new,
// and mending that file alone is enough.
func TestABrokenFileThatTheRulesName(t *testing.T) {
	t.Parallel()
	servers, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	path := rulesFile(t, limited(7))
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(filepath.Dir(path), name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := mustParse(t, testrun.NoEnv, "--kafka", servers.Kafka[0], "--partitions", "1", "--prefix", "reload", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--rules", path)
	p.Log = slog.New(slog.NewTextHandler(t.Output(), nil))
	testrun.Start(t, p.Run)
	api, metrics := "http://"+p.HTTP.Addr().String(), "http://"+p.Metrics.Addr().String()+"/metrics"
	testrun.Eventually(t, "it is ready", func() bool { status, _ := get(t, api+"/readyz"); return status == http.StatusOK })
	failed := func() (n int) {
		_, text := get(t, metrics)
		_, text, _ = strings.Cut(text, "\ntallygate_rules_failed_total ")
		_, _ = fmt.Sscan(text, &n)
		return n
	}
	is := func(value string) func() bool {
		return func() bool {
			_, text := get(t, metrics)
			return strings.Contains(text, "\ntallygate_rules_file_ok "+value+"\n")
		}
	}
	if !is("1")() || failed() != 0 {
		t.Fatal("the metrics are wrong from the start")
	}
	for _, file := range []struct{ name, field, bad, good string }{
		{"exempt.yaml", "  exempt: exempt.yaml\n", "[{uid: 1, reson: a test}]\n", "[{uid: 1, reason: a test}]\n"},
		{"office.txt", "  networks: {office: office.txt}\n", "10.0.0.300/8\n", "10.0.0.0/8\n"},
		{"limits.csv", "", "uid,limt\n42,5\n", "uid,limit\n42,5\n"},
	} {
		t.Run(file.name, func(t *testing.T) {
			before := failed()
			write(file.name, file.bad)
			text := strings.Replace(limited(7), "spec:\n", "spec:\n"+file.field, 1)
			if file.field == "" {
				text = strings.Replace(text, "limit: 7,", "limit: 7, overrides: "+file.name+",", 1)
			}
			write(filepath.Base(path), text)
			testrun.Eventually(t, "it is broken", is("0"))
			again := failed()
			if again == before {
				t.Error("no failure is counted")
			}
			if got := post(t, api); !strings.HasPrefix(got, "422 ") || !strings.Contains(got, file.name) || failed() <= again {
				t.Errorf("a reload that is asked for: %s, and %d failures behind %d", got, failed(), again)
			}
			write(file.name, file.good)
			testrun.Eventually(t, "it is mended", is("1"))
		})
	}
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// What an older program published, and a file may not have any more, is good for going on with:
// also where this instance's own file is the same.
func TestAGroupsRulesThatAFileMayNotHaveAnyMore(t *testing.T) {
	t.Parallel()
	servers, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	t.Run("the topics are made", func(t *testing.T) { running(t, servers.Kafka, rulesFile(t, limited(7))) })
	outdated := strings.Replace(limited(8), "limit: 8", "when: uid != 42, limit: 8", 1)
	publishedBy(t, servers.Kafka, "an-older-one", outdated)

	var log strings.Builder
	p := mustParse(t, testrun.NoEnv, "--kafka", servers.Kafka[0], "--partitions", "1", "--prefix", "reload", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--rules", rulesFile(t, outdated))
	p.Log = slog.New(slog.NewTextHandler(&log, nil))
	stop := testrun.Start(t, p.Run)
	api := "http://" + p.HTTP.Addr().String()
	testrun.Eventually(t, "it is unready for the rules only", func() bool {
		status, text := get(t, api+"/readyz")
		return status == http.StatusServiceUnavailable && strings.Contains(text, "rule file is broken")
	})
	if got := limit(api); got != "8" {
		t.Errorf("it counts by a limit of %s, want the group's 8", got)
	}
	stop()
	if says := log.String(); !strings.Contains(says, "version=2") || !strings.Contains(says, "text stands in quotes") {
		t.Errorf("the log says neither which version nor what to write: %s", says)
	}
}

// publishedBy appends a version of the rules as another program has it.
func publishedBy(t *testing.T, kafka []string, by, source string) {
	t.Helper()
	value, err := json.Marshal(map[string]any{
		"format": 1, "hash": "of another program", "file": "rules.yaml", "modified": time.Now().Add(time.Minute), "by": by, "source": source,
	})
	if err != nil {
		t.Fatal(err)
	}
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(kafka, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "reload.rules", Key: sarama.StringEncoder("rules"), Value: sarama.ByteEncoder(value)}); err != nil {
		t.Fatal(err)
	}
}
