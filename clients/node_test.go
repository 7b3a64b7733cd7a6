package clients

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const nodeRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: node}
spec:
  rules:
    - {name: five-searches, public: searches, match: {api: get.search}, limit: 5, per: 1h, window: sliding, then: {block: 5m}}
    - {name: coupons, match: {api: post.coupons.coupon, outcome: success}, limit: 3, per: 1d, window: sliding, strict: true}
`

// nodeProject returns a copy of the package, with what its tests need installed beside it: Node looks for
// modules in the folders above a file. The fast suite has no Node.
func nodeProject(t *testing.T) string {
	t.Helper()
	servers.Nightly(t, "clients")
	modules, dir := script(t, "node.sh")+"/node_modules", t.TempDir()
	err := os.Symlink(modules, filepath.Join(dir, "node_modules"))
	for _, part := range []string{"src", "test", "examples"} {
		err = errors.Join(err, os.CopyFS(filepath.Join(dir, part), os.DirFS("node/"+part)))
	}
	for _, file := range []string{"package.json", "index.js", "index.d.ts"} {
		content, failed := os.ReadFile("node/" + file)
		err = errors.Join(err, failed, os.WriteFile(filepath.Join(dir, file), content, 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestNodeUnits(t *testing.T) {
	t.Parallel()
	dir := nodeProject(t)
	tables, err := filepath.Abs("../testdata")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := filepath.Glob(dir + "/test/*.test.js")
	if err != nil || len(tests) < 5 {
		t.Fatalf("%d files of tests (%v)", len(tests), err)
	}
	for _, command := range [][]string{
		append([]string{"node", "--test"}, tests...),
		{"node", "node_modules/typescript/bin/tsc", "-p", "test"}, // the declarations
		{"node", "node_modules/typescript/bin/tsc", "-p", "test/tsconfig.alone.json"},
	} {
		cmd := exec.CommandContext(t.Context(), command[0], command[1:]...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "TALLYGATE_TESTDATA="+tables)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", command, err, out)
		}
	}
}

func TestNodePlacesByMurmur2(t *testing.T) {
	brokers := servers.Kafka(t)
	emits(t, brokers, murmur2, "node", nodeProject(t)+"/examples/emit.mjs")
}

func TestNodeDoesNotOneTooMany(t *testing.T) {
	admits(t, "node", nodeProject(t)+"/examples/permit.mjs")
}

// What is emitted while Kafka is away is sent later, and what was under way counts once: by its number, as
// the aggregator tells repeats apart.
func TestNodeLosesNothingWhenKafkaIsKilled(t *testing.T) {
	t.Parallel()
	dir, broker := nodeProject(t), servers.StartKafka(t, nil)
	brokers, topic := []string{broker.Addr()}, "steady"
	create(t, brokers, topic)
	cmd, out := exec.Command("node", dir+"/test/steady.mjs", broker.Addr(), topic), new(testrun.Output)
	cmd.Stdout, cmd.Stderr = out, out
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	testrun.Eventually(t, "events come", func() bool { return out.Has("events come") })
	broker.Kill()
	testrun.Eventually(t, "the log says that Kafka is away", func() bool { return out.Has("events cannot be sent to Kafka") })
	broker.Start()
	testrun.Eventually(t, "the log says that it is back", func() bool { return out.Has("events reach Kafka again") })
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	numbers, ids := map[string]bool{}, map[string]bool{}
	for p := range partitions {
		for _, m := range read(t, brokers, topic, p) {
			for _, h := range m.Headers {
				if h.Key == "tg-s" {
					numbers[fmt.Sprintf("%d/%x", p, h.Value)] = true
				}
			}
			ids[decode(t, m.Value).ID] = true
		}
	}
	if want := fmt.Sprintf("all true emitted %d sent %d\n", len(ids), len(ids)); len(numbers) != len(ids) || !out.Has(want) {
		t.Errorf("%d records with %d ids, want %s", len(numbers), len(ids), out)
	}
}

// The shop of the page: five searches an hour, in Express.
func TestExpressLimits(t *testing.T) {
	in, shop := startShop(t, "express.mjs")
	deniedAlike(t, in, "7", "get.search", func() answered { return ask(t, http.MethodGet, shop+"/search?q=a+b", "X-User", "7") })
	if resp := ask(t, http.MethodGet, shop+"/search", "X-User", "8"); resp.StatusCode != http.StatusOK {
		t.Errorf("another user gets %d", resp.StatusCode)
	}
	for p := range installed {
		for _, m := range read(t, servers.Kafka(t), in.prefix+".events", p) {
			e := decode(t, m.Value)
			if e.Outcome == event.OutcomeLimited { // no handler noted anything
				continue
			}
			if words, ok := e.Attr("words"); e.UID != "" && (e.API != "get.search" || !ok || words.Text == "") {
				t.Errorf("an event is %+v", e)
			}
		}
	}
}

// Ten at once redeem three coupons, in Fastify.
func TestFastifyAsksForPermits(t *testing.T) {
	in, shop := startShop(t, "fastify.mjs")
	statuses := make(chan int)
	for range 10 {
		go func() {
			for {
				status := ask(t, http.MethodPost, shop+"/coupons/SPRING", "X-User", "7").StatusCode
				if status != http.StatusServiceUnavailable { // else nobody knows yet, and it is asked again
					statuses <- status
					return
				}
			}
		}()
	}
	count := map[int]int{}
	for range 10 {
		count[<-statuses]++
	}
	if count[http.StatusOK] != 3 || count[http.StatusTooManyRequests] != 7 {
		t.Errorf("ten coupons have the statuses %v, want three times 200", count)
	}
	testrun.Eventually(t, "the three are counted, and no permit is held", func() bool {
		var key struct {
			Rules []struct {
				Strict struct{ Level, Held, Permits float64 }
			}
		}
		text := get(t, in.aggregator+"/v1/explain?uid=7&api=post.coupons.coupon")
		if err := json.Unmarshal([]byte(text), &key); err != nil || len(key.Rules) != 1 {
			return false
		}
		s := key.Rules[0].Strict
		return s.Level == 3 && s.Held == 0 && s.Permits == 0
	})
}

// startShop starts the engine and an example before it, and returns the example's URL.
func startShop(t *testing.T, example string) (installation, string) {
	t.Helper()
	in, dir, listen := install(t, nodeRules), nodeProject(t), servers.FreeAddr(t)
	cmd := exec.Command("node", filepath.Join(dir, "examples", example))
	_, port, _ := strings.Cut(listen, ":")
	cmd.Env = append(os.Environ(), "DECISIONS="+in.decision, "KAFKA="+in.brokers, "PREFIX="+in.prefix, "PORT="+port)
	launch(t, true, cmd) // it sends what is queued, and ends by itself
	testrun.Eventually(t, "the shop answers", func() bool { return get(t, "http://"+listen+"/search") != "" })
	return in, "http://" + listen
}

// The programs that the page shows are the examples that run here.
func TestPageOfNodeShowsTheExamples(t *testing.T) {
	shows(t, "node.md", "js", 3, "node/examples/express.mjs", "node/examples/fastify.mjs", "node/examples/emit.mjs", "node/examples/permit.mjs")
}
