package emitcmd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
)

// inChild makes the test's program the command: it is killed, and the test is not.
const inChild = "TALLYGATE_TEST_EMIT"

func runAsCommand() {
	os.Exit(Command(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, testrun.Getenv))
}

// server is a web server's log, which logrotate rotates beside it.
type server struct {
	t      *testing.T
	r      *rand.Rand
	path   string
	writer *os.File
	lines  map[string]int // by user
	sum    int

	rotations int
}

func (s *server) check(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) open() {
	w, err := os.OpenFile(s.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	s.check(err)
	if s.writer != nil {
		s.check(s.writer.Close())
	}
	s.writer = w
}

// log writes lines, of which many are equal.
func (s *server) log(lines int) {
	var text strings.Builder
	for range lines {
		user := fmt.Sprintf("user-%d", s.r.IntN(4))
		s.lines[user]++
		s.sum++
		fmt.Fprintf(&text, "203.0.113.9 - %s [%s] \"GET /a HTTP/1.1\" 200 2326 \"-\" \"test\"\n", user, time.Now().Format("02/Jan/2006:15:04:05 -0700"))
	}
	_, err := s.writer.WriteString(text.String())
	s.check(err)
}

// rotated is the next name of a rotated file.
func (s *server) rotated() string {
	s.rotations++
	return fmt.Sprintf("%s-20261121%04d", s.path, s.rotations)
}

// act does what happens to a log.
func (s *server) act() {
	switch s.r.IntN(30) {
	case 0:
		s.check(os.Rename(s.path, s.rotated()))
		s.log(1 + s.r.IntN(5)) // into the old file
		s.open()
	case 1:
		text, err := os.ReadFile(s.path)
		s.check(err)
		if len(text) > 0 {
			s.check(os.WriteFile(s.rotated(), text, 0o600))
			s.check(os.Truncate(s.path, 0))
			s.log(1)
		}
	default:
		s.log(1 + s.r.IntN(20))
	}
}

// While a log grows and is rotated, the command is killed a hundred times: each line has one id, and
// counts once.
func TestKilledAHundredTimes(t *testing.T) {
	t.Parallel()
	kills := testrun.Depth(100)
	servers, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	c := &command{env: map[string]string{"TALLYGATE_KAFKA": servers.Kafka[0], "XDG_STATE_HOME": t.TempDir()}}
	api := counting(t, servers.Kafka)
	r := rand.New(rand.NewPCG(testrun.Seed(t), 2))
	s := &server{t: t, r: r, path: filepath.Join(t.TempDir(), "access.log"), lines: map[string]int{}}
	s.open()
	defer func() { _ = s.writer.Close() }()
	s.log(10)
	for i := range kills {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-f", s.path, "--from", "start")
		cmd.Env = append(os.Environ(), inChild+"=1", "TALLYGATE_KAFKA="+c.env["TALLYGATE_KAFKA"], "XDG_STATE_HOME="+c.env["XDG_STATE_HOME"])
		cmd.Stderr = t.Output()
		s.check(cmd.Start())
		moment := time.After(time.Duration(r.IntN(250)) * time.Millisecond)
		if r.IntN(20) == 0 {
			moment = time.After(1500 * time.Millisecond) // the state is written meanwhile
		}
		if i == 0 { // what is rotated before there is a state was never followed
			testrun.Eventually(t, "there is a state", func() bool {
				states, err := filepath.Glob(filepath.Join(c.env["XDG_STATE_HOME"], "tallygate", "*.json"))
				s.check(err)
				return len(states) > 0
			})
		}
		for killed := false; !killed; {
			select {
			case <-moment:
				s.check(cmd.Process.Kill())
				_ = cmd.Wait()
				killed = true
			case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
				s.act()
			}
		}
	}
	stop := c.follows(t, s.path, "--from", "start")
	testrun.Eventually(t, "each line was counted", func() bool { return counted(t, api, s.lines) >= s.sum })
	stop()
	events := everything(t, servers.Kafka)
	t.Logf("%d lines, %d events", s.sum, len(events))
	if n := distinct(events); n != s.sum {
		t.Errorf("%d lines, and %d different ids", s.sum, n)
	}
	if n := counted(t, api, s.lines); n != s.sum {
		t.Errorf("%d lines, and %d were counted", s.sum, n)
	}
	if len(events) == s.sum && testrun.Deep() {
		t.Error("no kill came between the acknowledgement and the state")
	}
}

// counting starts an aggregator that counts requests by user.
func counting(t *testing.T, kafka []string) (api string) {
	t.Helper()
	rules := write(t, "rules.yaml", `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: requests}
spec:
  rules:
    - {name: requests, match: {api: "*"}, limit: 1M, per: 1d, then: {block: 5m}}
`)
	set, file, err := aggregator.LoadRules(rules)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &aggregator.Program{
		Config: aggregate.Config{Rules: set, RuleFile: file}, Kafka: &kafkaconn.Kafka{Brokers: kafka},
		HTTP: listener, Registry: prometheus.NewRegistry(), Log: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	testrun.Start(t, p.Run)
	api = "http://" + listener.Addr().String()
	testrun.Eventually(t, "the aggregator is ready", func() bool {
		resp, err := http.Get(api + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return api
}

// everything is all events that are in the topic now.
func everything(t *testing.T, kafka []string) (all []event.Event) {
	t.Helper()
	client, err := sarama.NewClient(kafka, sarama.NewConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	partitions, err := client.Partitions(topic)
	if err != nil {
		t.Fatal(err)
	}
	left := int64(0)
	for _, p := range partitions {
		end, err := client.GetOffset(topic, p, sarama.OffsetNewest)
		if err != nil {
			t.Fatal(err)
		}
		left += end
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(kafka...), kgo.ConsumeTopics(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	for left > 0 {
		fetches := cl.PollFetches(t.Context())
		if err := fetches.Err(); err != nil {
			t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			left--
			e, err := event.NewDecoder().Decode(r.Value, nil, r.Key, nil)
			if err != nil {
				t.Fatalf("%s: %v", r.Value, err)
			}
			all = append(all, e...)
		})
	}
	return all
}

// counted sums the counted requests of all users.
func counted(t *testing.T, api string, users map[string]int) (sum int) {
	t.Helper()
	for user := range users {
		resp, err := http.Get(api + "/v1/explain?uid=" + user)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		var answer struct{ Rules []struct{ Count int } }
		if err == nil && resp.StatusCode == http.StatusOK {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		for _, r := range answer.Rules {
			sum += r.Count
		}
	}
	http.DefaultClient.CloseIdleConnections()
	return sum
}
