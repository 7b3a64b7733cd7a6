package aggregator

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

func limited(n int) string {
	return fmt.Sprintf(`apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - {name: search, match: {api: search}, limit: %d, per: 1m, window: tumbling, then: {block: 5m}}
`, n)
}

// A rule file is followed as Kubernetes mounts it: rules.yaml is a link to ..data/rules.yaml,
// ..data a link to a folder, and that link is what changes. SIGHUP and POST /-/reload look at once.
func TestRuleFileIsFollowed(t *testing.T) {
	t.Parallel()
	servers, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	mount := t.TempDir()
	version := func(t *testing.T, n int) {
		t.Helper()
		folder := filepath.Join(mount, fmt.Sprintf("..v%d", n))
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(folder, "rules.yaml")
		if err := os.WriteFile(path, []byte(limited(n)), 0o600); err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 11, 21, 10, n, 0, 0, time.UTC)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
		next := filepath.Join(mount, "..next")
		if err := os.Symlink(folder, next); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(next, filepath.Join(mount, "..data")); err != nil {
			t.Fatal(err)
		}
	}
	version(t, 5)
	path := filepath.Join(mount, "rules.yaml")
	if err := os.Symlink(filepath.Join("..data", "rules.yaml"), path); err != nil {
		t.Fatal(err)
	}

	api := running(t, servers.Kafka, path)
	limitIs := func(t *testing.T, want string) {
		t.Helper()
		testrun.Eventually(t, "the limit is "+want, func() bool { return limit(api) == want })
	}
	limitIs(t, "5")
	t.Run("a change of the file (also through Kubernetes' symlink)", func(t *testing.T) {
		version(t, 6)
		limitIs(t, "6")
	})
	if got := post(t, api); got != `200 {"version":2,"changed":false}` {
		t.Errorf("nothing changed: %s", got)
	}
	if err := os.WriteFile(filepath.Join(mount, "..data", "rules.yaml"), []byte("rules: ["), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("a set with any error is refused whole, and the old set stays", func(t *testing.T) {
		if got := post(t, api); !strings.HasPrefix(got, "422 ") || !strings.Contains(got, "rules.yaml:2:1: ") {
			t.Errorf("a file with mistakes: %s", got)
		}
		limitIs(t, "6")
	})
	t.Run("a file older than it is ignored and reported", func(t *testing.T) {
		version(t, 1)
		if got := post(t, api); !strings.HasPrefix(got, "409 ") || !strings.Contains(got, "older") {
			t.Errorf("an older file: %s", got)
		}
	})
	t.Run("SIGHUP", func(t *testing.T) {
		version(t, 7)
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		limitIs(t, "7")
	})
	t.Run("POST ⁄-⁄reload", func(t *testing.T) {
		version(t, 8)
		if got := post(t, api); !strings.HasPrefix(got, "200 ") {
			t.Errorf("a new file: %s", got)
		}
		limitIs(t, "8")
	})
}

// A file that the rules name is followed like the rule file itself: here one with exemptions, and one with
// networks, which is no YAML.
func TestFilesThatTheRulesNameAreFollowed(t *testing.T) {
	servers, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	write("exempt.yaml", "[]\n")
	write("office.txt", "10.0.0.0/8\n")
	path := write("rules.yaml", strings.Replace(limited(5), "spec:\n", "spec:\n  exempt: exempt.yaml\n  networks: {office: office.txt}\n", 1))
	past := time.Now().Add(-time.Hour)
	if err := errors.Join(os.Chtimes(path, past, past), os.Chtimes(filepath.Join(folder, "exempt.yaml"), past, past),
		os.Chtimes(filepath.Join(folder, "office.txt"), past, past)); err != nil {
		t.Fatal(err)
	}
	api := running(t, servers.Kafka, path)
	write("exempt.yaml", "[{uid: 1, reason: a test}]\n")
	testrun.Eventually(t, "the exemption is the second version", func() bool { return post(t, api) == `200 {"version":2,"changed":false}` })
	write("office.txt", "10.0.0.0/8\n192.0.2.0/24\n")
	testrun.Eventually(t, "the networks are the third version", func() bool { return post(t, api) == `200 {"version":3,"changed":false}` })
}

// running starts an aggregator and returns where its API is.
func running(t *testing.T, brokers []string, path string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Program{
		Config: aggregate.Config{Partitions: 1, Prefix: "reload"}, Kafka: &kafkaconn.Kafka{Brokers: brokers},
		HTTP: listener, Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	if err := p.loadRules(path); err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, p.Run)
	api := "http://" + listener.Addr().String()
	testrun.Eventually(t, "the aggregator is ready", func() bool {
		resp, err := http.Get(api + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return api
}

// limit asks which limit a user is judged by.
func limit(api string) string {
	resp, err := http.Get(api + "/v1/explain?uid=1")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	var answer struct {
		Rules []struct {
			Limit json.Number `json:"limit"`
		} `json:"rules"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&answer); err != nil || len(answer.Rules) != 1 {
		return fmt.Sprint("no answer: ", err)
	}
	return answer.Rules[0].Limit.String()
}

func post(t *testing.T, api string) string {
	t.Helper()
	resp, err := described(t, http.DefaultTransport).Post(api+"/-/reload", "", nil)
	if err != nil { // such as on a busy machine, where the program has no more time to answer
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, strings.TrimSpace(string(body)))
}
