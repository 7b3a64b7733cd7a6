package clients

import (
	"bufio"
	"cmp"
	"encoding/json"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// python is a Python that finds the package.
func python(t *testing.T) string {
	t.Helper()
	servers.Nightly(t, "clients")
	src, err := filepath.Abs("python/src")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("PYTHONPATH", src)
	t.Setenv("PYTHONDONTWRITEBYTECODE", "1")
	return script(t, "python.sh")
}

// output is what a program prints; one that fails ends the test.
func output(t *testing.T, dir string, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command, err, out)
	}
	return string(out)
}

// The package's own tests: the tables of all clients, events, the decision server's answers, middlewares.
func TestPythonUnits(t *testing.T) {
	out := output(t, "python", python(t), "-W", "error", "-m", "unittest", "discover", "-s", "tests")
	if !regexp.MustCompile(`(?m)^Ran \d{2,} tests in .*\n\nOK\n`).MatchString(out) {
		t.Errorf("not all tests passed:\n%s", out)
	}
}

func TestPythonTypes(t *testing.T) {
	py := python(t)
	cache := filepath.Join(cmp.Or(os.Getenv("TALLYGATE_CACHE"), filepath.Join(os.Getenv("HOME"), ".cache/tallygate")), "mypy")
	output(t, "python", py, "-m", "mypy", "--cache-dir", cache)
}

// What pip installs is the whole package, for programs that check types, too.
func TestPythonPackage(t *testing.T) {
	py, dir := python(t), t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "package"), os.DirFS("python")); err != nil { // what building leaves is not left here
		t.Fatal(err)
	}
	output(t, dir, py, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-index", "--no-deps", "--no-build-isolation", "--target", "installed", "./package")
	t.Setenv("PYTHONPATH", filepath.Join(dir, "installed"))
	out := output(t, dir, py, "-c", "import os, tallygate; print(*sorted(os.listdir(os.path.dirname(tallygate.__file__))))")
	files, err := os.ReadDir("python/src/tallygate")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !f.IsDir() && !slices.Contains(strings.Fields(out), f.Name()) {
			t.Errorf("%s is not installed: %s", f.Name(), out)
		}
	}
}

func TestPythonPackagePlacesByMurmur2(t *testing.T) {
	brokers := servers.Kafka(t)
	emits(t, brokers, murmur2, python(t), "python/examples/emit.py")
}

// A service that starts before the first aggregator, which creates the topic, loses nothing.
func TestPythonPackageWaitsForItsTopic(t *testing.T) {
	brokers, py, topic := servers.Kafka(t), python(t), servers.Name(t)
	cmd := exec.CommandContext(t.Context(), py, "-c", `
import sys, tallygate
emitter = tallygate.Emitter(sys.argv[1], sys.argv[2])
queued = emitter.emit(api="a", uid="1")
emitter._producer.list_topics(sys.argv[2], timeout=60)  # Kafka was asked, and knows of none
print(queued, flush=True)
input()
emitter.flush(60)
print(emitter.stats().sent, emitter.stats().dropped)
`, strings.Join(brokers, ","), topic)
	cmd.Stderr = t.Output()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	if !said.Scan() || said.Text() != "True" {
		t.Errorf("it says %q", said.Text())
	}
	create(t, brokers, topic)
	servers.DropTopics(t, brokers, topic)
	if _, err := io.WriteString(in, "\n"); err != nil {
		t.Error(err)
	}
	if !said.Scan() || said.Text() != "1 {}" {
		t.Errorf("it says %q", said.Text())
	}
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

const pythonRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: python}
spec:
  rules:
    - {name: searches, public: searches, match: {api: get.search.query}, limit: 5, per: 1m, then: {block: 1m}}
    - {name: exports, public: exports, match: {api: report.export}, limit: 3, per: 1h, then: {block: 1h}}
`

// Real programs on real servers: who searches too often in FastAPI is denied in Flask, too, and the other
// way round.
func TestPythonOnRealServers(t *testing.T) {
	py := python(t)
	in := install(t, pythonRules)
	t.Setenv("TALLYGATE", in.decision)
	t.Setenv("KAFKA", in.brokers)
	t.Setenv("TOPIC", in.prefix+".events")
	apps := map[string]string{}
	for name, command := range map[string][]string{
		"fastapi": {"-m", "uvicorn", "fastapi_app:app", "--log-level", "warning", "--host", "127.0.0.1", "--port"},
		"flask":   {"-m", "flask", "--app", "flask_app", "run", "--host", "127.0.0.1", "--port"},
	} {
		addr := servers.FreeAddr(t)
		_, port, err := net.SplitHostPort(addr)
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(py, append(command, port)...)
		cmd.Dir = "python/examples"
		launch(t, false, cmd) // Flask's own server ends by the signal
		apps[name] = "http://" + addr
		testrun.Eventually(t, name+" serves", func() bool { return get(t, apps[name]+"/healthz") != "" })
	}
	for _, name := range slices.Sorted(maps.Keys(apps)) {
		uid := "searches in " + name
		for i := range 6 {
			if status, _ := visit(t, apps[name], uid); status != http.StatusOK {
				t.Errorf("%s: search %d: %d", name, i+1, status)
			}
		}
		for where, url := range apps {
			var header http.Header
			testrun.Eventually(t, uid+" is denied in "+where, func() bool {
				status, h := visit(t, url, uid)
				header = h
				return status == http.StatusTooManyRequests
			})
			after, err := strconv.Atoi(header.Get("Retry-After"))
			if err != nil || after < 1 || after > 60 || !strings.HasPrefix(header.Get("RateLimit"), `"searches";r=0;t=`) || header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s is told %v", where, header)
			}
			if status, _ := visit(t, url, "somebody else"); status != http.StatusOK {
				t.Errorf("%s: somebody else gets %d", where, status)
			}
		}
	}
	testrun.Eventually(t, "a worker is denied", func() bool {
		return strings.Contains(output(t, "python/examples", py, "worker.py", in.decision, in.brokers, in.prefix+".events", "4", "42"), "not now: exports, try again in 3")
	})
	pythonEvents(t, in)
}

// pythonEvents looks at what the programs have emitted: whole events, and what their handlers noted.
func pythonEvents(t *testing.T, in installation) {
	t.Helper()
	seen := map[string]int{}
	for p := range installed {
		for _, m := range read(t, strings.Split(in.brokers, ","), in.prefix+".events", p) {
			e := decode(t, m.Value)
			if e.Outcome == event.OutcomeLimited { // some of what is denied is told
				continue
			}
			seen[e.API]++
			if e.ID == "" || e.Outcome != "success" || string(m.Key) != e.UID || time.Since(e.Time.Time()) > time.Hour {
				t.Errorf("an event is %s", m.Value)
			}
			if _, noted := e.Attr("empty"); !noted && e.API == "get.search.query" {
				t.Errorf("%s has no attribute that the handler noted", m.Value)
			}
		}
	}
	if seen["get.search.query"] < 12 || seen["report.export"] < 4 || len(seen) != 2 {
		t.Errorf("events are of %v", seen)
	}
}

// visit searches once.
func visit(t *testing.T, app, uid string) (status int, header http.Header) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, app+"/search/query", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("X-User", uid)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK && !json.Valid(body) {
		t.Errorf("%s: %s (%v)", app, body, err)
	}
	return resp.StatusCode, resp.Header
}
