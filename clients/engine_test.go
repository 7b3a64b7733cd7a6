package clients

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const installed = 4 // partitions

// installation is an aggregator and a decision server, by their URLs, and the brokers, with commas between.
type installation struct{ prefix, brokers, aggregator, metrics, decision string }

// install runs both programs on real servers until the test ends.
func install(t *testing.T, ruleFile string) installation {
	t.Helper()
	brokers, redis, prefix := strings.Join(servers.Kafka(t), ","), servers.Redis(t), servers.Name(t)
	servers.DropTopics(t, servers.Kafka(t), prefix)
	rules := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(rules, []byte(ruleFile), 0o600); err != nil {
		t.Fatal(err)
	}
	api, metrics, decision := servers.FreeAddr(t), servers.FreeAddr(t), servers.FreeAddr(t)
	common := []string{"--redis", redis, "--prefix", prefix, "--log-level", "warn"}
	run(t, aggregator.Command, append([]string{"--kafka", brokers, "--rules", rules, "--partitions", fmt.Sprint(installed),
		"--listen", api, "--metrics-listen", metrics}, common...))
	run(t, enforcer.Command, append([]string{"--listen", decision, "--grpc-listen", "none", "--metrics-listen", servers.FreeAddr(t)}, common...))
	in := installation{prefix, brokers, "http://" + api, "http://" + metrics, "http://" + decision}
	testrun.Eventually(t, "both are ready", func() bool { // the topics are there then
		return get(t, in.aggregator+"/readyz") != "" && get(t, in.decision+"/readyz") != ""
	})
	return in
}

// run runs a program until the test ends.
func run(t *testing.T, program func(context.Context, []string, io.Writer, io.Writer, func(string) string) int, args []string) {
	testrun.Start(t, func(ctx context.Context) error {
		if status := program(ctx, args, io.Discard, t.Output(), testrun.NoEnv); status != 0 {
			t.Errorf("%v ends with %d", args, status)
		}
		return nil
	})
}

// get returns what a server answers; "" where it is not ready.
func get(t *testing.T, url string) string {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		return ""
	}
	return string(text)
}

// answered is a response that was read.
type answered struct {
	*http.Response
	body string
}

// ask sends a request with headers: names and values in turn. The status is 0 where nobody answers.
func ask(t *testing.T, method, url string, headers ...string) answered {
	t.Helper()
	nobody := answered{Response: &http.Response{}}
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Error(err)
		return nobody
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nobody
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return answered{resp, string(text)}
}

// deniedAlike asks a service until it denies a request exactly as the decision server does.
func deniedAlike(t *testing.T, in installation, uid, api string, request func() answered) {
	t.Helper()
	var last string
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(last)
		}
	})
	testrun.Eventually(t, "one too many is denied as the decision server denies it", func() bool {
		denied := request()
		if denied.StatusCode != http.StatusTooManyRequests {
			return false
		}
		got := answerOf(t, denied)
		want := answerOf(t, ask(t, http.MethodGet, in.decision+"/v1/forward-auth", "X-Tallygate-Uid", uid, "X-Tallygate-Api", api))
		if got != want { // the end of the block may have moved between the two
			last = fmt.Sprintf("got\n%s\nwant\n%s", got, want)
		}
		return got == want
	})
}

// answerOf is all that a caller is told, without the time, which goes on between two answers.
func answerOf(t *testing.T, a answered) string {
	t.Helper()
	out := fmt.Sprintln(a.StatusCode, strings.TrimSpace(a.body))
	for _, name := range []string{"Content-Type", "Cache-Control", "Retry-After", "RateLimit", "RateLimit-Policy"} {
		out += fmt.Sprintln(name, a.Header.Values(name))
	}
	seconds := a.Header.Get("Retry-After")
	if seconds == "" || !json.Valid([]byte(a.body)) {
		t.Errorf("no Retry-After, or no JSON: %s", out)
		return out
	}
	return regexp.MustCompile(`\b`+seconds+`\b`).ReplaceAllString(out, "N")
}

// launch runs a program until the test ends, and shows what it said if the test failed. clean: it ends by
// itself, without an error, when it is told to.
func launch(t *testing.T, clean bool, cmd *exec.Cmd) {
	t.Helper()
	var said testrun.Output
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		end := time.AfterFunc(30*time.Second, func() { _ = cmd.Process.Kill() })
		defer end.Stop()
		if err := cmd.Wait(); err != nil && clean {
			t.Errorf("%v: %v", cmd.Args, err)
		}
		if t.Failed() {
			t.Logf("%s", said.String())
		}
	})
}

// shows finds each program of a page, in blocks of these languages, in the examples.
func shows(t *testing.T, page, languages string, atLeast int, examples ...string) {
	t.Helper()
	text, err := os.ReadFile("../docs/" + page)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, name := range examples {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(content)
		all.WriteString("\x00") // nothing shown runs from one file into the next
	}
	blocks := regexp.MustCompile("(?ms)^```(?:"+languages+")\n(.*?)^```$").FindAllStringSubmatch(string(text), -1)
	if len(blocks) < atLeast {
		t.Errorf("docs/%s has %d programs", page, len(blocks))
	}
	for _, b := range blocks {
		if !strings.Contains(all.String(), b[1]) {
			t.Errorf("docs/%s shows a program that is in no example:\n%s", page, b[1])
		}
	}
}
