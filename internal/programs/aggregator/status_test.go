package aggregator

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// told returns a program's answer to a question, as T.
func told[T any](p *program, token, path string) (is T) {
	p.t.Helper()
	code, said := p.ask(token, http.MethodGet, path, "")
	if code != http.StatusOK {
		p.t.Errorf("%s: %d %s", path, code, said)
		return is
	}
	if err := json.Unmarshal([]byte(said), &is); err != nil {
		p.t.Errorf("%s: %v", path, err)
	}
	return is
}

// Any instance tells how all are: their partitions, options and metrics.
func TestStatusOfAllMembers(t *testing.T) {
	t.Parallel()
	kafka, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	rds := miniredis.RunT(t)
	two := []*program{}
	for i := range 2 {
		two = append(two, began(t, kafka.Kafka, "status", nil, "--tokens", staff(t), "--redis", rds.Addr(), "--instance-id", fmt.Sprintf("number-%d", i)))
	}
	testrun.Eventually(t, "all partitions are open, at both", func() bool {
		c := told[api.Cluster](two[0], "viewer", "/v1/cluster?metrics=tallygate_rule_")
		open := map[int32]bool{}
		for _, m := range c.Members {
			for _, p := range m.Aggregator.Partitions {
				open[p.Partition] = open[p.Partition] || p.State == "open" && p.Takeovers > 0 && !p.TakenOver.IsZero() && !p.LastFetch.IsZero()
			}
		}
		return len(c.Members) == 2 && len(c.Missing) == 0 && len(c.Unowned) == 0 && c.Trouble == nil &&
			open[0] && open[1] && open[2] && open[3] && c.Members[0].Instance == "number-0" && c.Members[1].Instance == "number-1" &&
			len(c.Members[1].Metrics["tallygate_rule_matches_total"]) == 1
	})
	s := told[api.Status](two[1], "viewer", "/v1/status")
	if s.Component != "aggregator" || s.Instance != "number-1" || s.Address != two[1].Config.Advertise || !s.Ready || s.Metrics != nil {
		t.Errorf("%+v", s)
	}
	a := s.Aggregator
	if a.Of != 4 || a.Rules.Version != 1 || a.Rules.Name != "shop" || !a.Rules.FileOK || a.Rules.Differ != 0 || a.Rules.At.IsZero() || a.Kafka != nil || a.Redis != nil {
		t.Errorf("%+v", a)
	}
	if got := fmt.Sprint(s.Config); !strings.Contains(got, "{redis "+rds.Addr()+" flag}") || !strings.Contains(got, "{session-timeout 10s default}") {
		t.Errorf("%s", got)
	}
	for _, path := range []string{"/v1/status?metrics=-", "/v1/cluster?uid=42"} {
		if code, said := two[0].ask("viewer", http.MethodGet, path, ""); code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", path, code, said)
		}
	}

	rds.SetError("OOM command not allowed when used memory > 'maxmemory'.")
	testrun.Eventually(t, "a full Redis is told of", func() bool {
		s := told[api.Status](two[0], "viewer", "/v1/status")
		r := s.Aggregator.Redis
		return r != nil && r.Reason == "memory" && !r.Since.IsZero() && strings.Contains(r.Error, "OOM")
	})
	rds.SetError("")
	testrun.Eventually(t, "and that it works again", func() bool {
		s := told[api.Status](two[0], "viewer", "/v1/status")
		return s.Aggregator.Redis == nil && len(s.Errors) > 0
	})
}

// Whatever events and requests say of users, the status does not.
func TestStatusNamesNobody(t *testing.T) {
	kafka, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	p := began(t, kafka.Kafka, "nobody", nil, "--hot-key-share", "0.01", "--hot-key-rate", "0.01")
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	producer, err := sarama.NewSyncProducer(kafka.Kafka, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer producer.Close()
	const somebody = "somebody-4711"
	for _, value := range []string{`{"uid":"` + somebody, `{"uid":"` + somebody + `","api":7}`, `{"uid":"` + somebody + `","api":"a","cost":"` + somebody + `"}`,
		`{"uid":"` + somebody + `","api":"a","time":"` + somebody + `"}`, somebody, `{"uid":"` + somebody + `","api":"a"}`, `{"uid":"` + somebody + `","api":"a"}`} {
		if _, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: "nobody.events", Key: sarama.StringEncoder(somebody), Value: sarama.StringEncoder(value)}); err != nil {
			t.Fatal(err)
		}
	}
	for path, want := range map[string]int{"/v1/explain?uid=" + somebody: 200, "/v1/explain?user=" + somebody: 400, "/v1/blocked?partition=" + somebody: 400} {
		if code, said := p.ask("", http.MethodGet, path, ""); code != want {
			t.Errorf("%s: %d %s", path, code, said)
		}
	}
	p.ask("", http.MethodPost, "/v1/commands", block(somebody), func(r *http.Request) { r.Header.Set("X-Tallygate-Peer", somebody) })
	testrun.Eventually(t, "all is counted, or is a dead letter", func() bool {
		s := told[api.Status](p, "", "/v1/status?metrics=tallygate_events_total")
		n := 0.0
		for _, of := range s.Metrics["tallygate_events_total"] {
			n += of.Value
		}
		return n >= 7 && len(s.Errors) > 0
	})
	for _, path := range []string{"/v1/status?metrics=tallygate_", "/v1/cluster?metrics=tallygate_"} {
		if _, said := p.ask("", http.MethodGet, path, ""); strings.Contains(said, somebody) {
			t.Errorf("%s: %s", path, said)
		}
	}
}

// unmatched is the answer to GET /v1/unmatched.
type unmatched struct {
	Events    int
	Instances int
	Unmatched []struct {
		API    string
		Events int
	}
	Missing []api.MissingMember
	Trouble *api.Trouble
}

// What no rule counts had been that of the instance which a reader happened to ask.
func TestUnmatchedOfAllMembers(t *testing.T) {
	t.Parallel()
	group, tokens := groupOf(t, someRules), staff(t)
	for _, p := range []*program{joined(t, group, nil, "--tokens", tokens), joined(t, group, nil, "--tokens", tokens)} {
		is := told[unmatched](p, "viewer", "/v1/unmatched")
		if is.Events != 6 || is.Instances != 2 || len(is.Unmatched) != 3 || is.Unmatched[0].API != "lo.gin" || is.Unmatched[0].Events != 2 || len(is.Missing) > 0 || is.Trouble != nil {
			t.Errorf("what no rule counts: %+v", is)
		}
	}
}

// Without Kafka the members that it named last are asked, they answer, and each tells what is wrong.
func TestClusterWithoutKafka(t *testing.T) {
	t.Parallel()
	kafka, err := devstack.Start(context.WithoutCancel(t.Context()), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	end := func() {
		if !closed {
			kafka.Close()
		}
		closed = true
	}
	t.Cleanup(end)
	p, other := began(t, kafka.Kafka, "away", nil), began(t, kafka.Kafka, "away", nil)
	for _, q := range []*program{p, other} {
		testrun.Eventually(t, "both know each other", func() bool {
			c := told[api.Cluster](q, "", "/v1/cluster")
			return len(c.Members) == 2 && len(c.Unowned) == 0
		})
	}
	end()
	testrun.Eventually(t, "both answer, with what is wrong", func() bool {
		c := told[api.Cluster](p, "", "/v1/cluster")
		for _, m := range c.Members {
			if m.Aggregator.Kafka == nil || m.Aggregator.Kafka.Error == "" {
				return false
			}
		}
		return len(c.Members) == 2 && c.Trouble != nil && c.Trouble.Error != ""
	})
}

// The status of a program with each secret that there is tells none of them.
func TestStatusTellsNoSecret(t *testing.T) {
	env := map[string]string{"TALLYGATE_KAFKA_PASSWORD": "hush-kafka", "TALLYGATE_REDIS_PASSWORD": "hush-redis", "TALLYGATE_REDIS_SENTINEL_PASSWORD": "hush-sentinel"}
	a := mustParse(t, testrun.Env(env), "--rules", rulesFile(t, someRules), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0",
		"--kafka-sasl", "plain", "--kafka-user", "me", "--redis", "user:hush-written@127.0.0.1:1", "--redis-master", "m", "--redis-user", "me", "--redis-sentinel-user", "me", "--tokens", staff(t))
	got := fmt.Sprint(a.Settings())
	for _, name := range []string{"kafka-password", "redis-password", "redis-sentinel-password"} {
		if !strings.Contains(got, "{"+name+" ••• environment}") {
			t.Errorf("%s is not told of: %s", name, got)
		}
	}
	if strings.Contains(got, "hush") {
		t.Errorf("a secret is in %s", got)
	}
}
