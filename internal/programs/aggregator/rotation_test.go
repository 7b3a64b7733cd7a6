package aggregator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/logline"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Both passwords are changed at the servers, then in their files: meanwhile the aggregator is not
// ready, and says by whom it is refused; then it goes on by itself, and everything is counted.
func TestRotatedPasswordsAreTakenUp(t *testing.T) {
	kafka, rds := servers.StartSCRAMKafka(t), servers.StartRedis(t)
	kafka.Password("tallygate", "old-kafka")
	admin := redis.NewClient(&redis.Options{Addr: rds.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	redisPassword := func(password string) {
		t.Helper()
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "tallygate", "on", "resetpass", ">"+password, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		_ = admin.Do(t.Context(), "CLIENT", "KILL", "USER", "tallygate").Err()
	}
	redisPassword("old-redis")
	folder := t.TempDir()
	put := func(name, text string) string {
		t.Helper()
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	kafkaFile, redisFile := put("kafka", "old-kafka\n"), put("redis", "old-redis\n")
	api := start(t, []string{
		"--kafka", kafka.Secured, "--kafka-sasl", "scram-sha-512", "--kafka-user", "tallygate", "--kafka-password-file", kafkaFile,
		"--redis", rds.Addr(), "--redis-user", "tallygate", "--redis-password-file", redisFile,
		"--rules", put("rules.yaml", strings.Replace(limited(2), "per: 1m, window: tumbling", "per: year, window: calendar", 1)), "--partitions", "1", "--prefix", "rotated", "--session-timeout", "6s",
	})
	hit := func() {
		t.Helper()
		emitted(t, kafka.Addr(), "rotated.events", `{"api":"search","uid":"1"}`)
	}
	blocked := func() bool {
		fields, _ := admin.HKeys(t.Context(), "{rotated:0}:verdicts").Result()
		return slices.ContainsFunc(fields, func(field string) bool { return strings.Contains(field, "uid=1") })
	}
	hit()
	testrun.Eventually(t, "the event is counted", func() bool { return counted(api.url) == "1" })

	kafka.Password("tallygate", "new-kafka")
	kafka.Stop()
	kafka.Start()
	testrun.Eventually(t, "it says that Kafka refuses it, and is not ready", func() bool {
		return strings.Contains(api.ready(), "503 Kafka has refused us since") && strings.Contains(api.log.String(), "Kafka refuses us")
	})
	put("kafka", "new-kafka\n")
	testrun.Eventually(t, "it is ready with Kafka's new password", func() bool { return strings.HasPrefix(api.ready(), "200") })
	hit()
	testrun.Eventually(t, "the next event is counted", func() bool { return counted(api.url) == "2" })

	redisPassword("new-redis")
	hit()
	testrun.Eventually(t, "it says that Redis refuses it, and is not ready", func() bool {
		return strings.Contains(api.ready(), "503 Redis has refused us since") && strings.Contains(api.log.String(), "Redis refuses us")
	})
	put("redis", "new-redis\n")
	testrun.Eventually(t, "it is ready with Redis' new password", func() bool { return strings.HasPrefix(api.ready(), "200") })
	testrun.Eventually(t, "the verdict is in Redis", blocked)
	testrun.Eventually(t, "all is counted once", func() bool { return counted(api.url) == "3" })
	for _, secret := range []string{"old-kafka", "new-kafka", "old-redis", "new-redis"} {
		if strings.Contains(api.log.String(), secret) {
			t.Errorf("the log tells %s", secret)
		}
	}
}

type started struct {
	url string
	log *testrun.Output
}

// start runs the program with these options until the test ends, and returns when it is ready.
func start(t *testing.T, args []string) *started {
	t.Helper()
	s := &started{url: "http://" + servers.FreeAddr(t), log: &testrun.Output{}}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan int, 1)
	go func() {
		done <- Command(ctx, append(args, "--listen", strings.TrimPrefix(s.url, "http://"), "--metrics-listen", "127.0.0.1:0"), io.Discard, s.log, testrun.NoEnv)
	}()
	t.Cleanup(func() {
		stop()
		if status := <-done; status != 0 || t.Failed() {
			t.Errorf("it ended with %d:\n%s", status, s.log)
		}
		for _, msg := range []string{"starting", "ready", "stopping", "stopped"} {
			if !strings.Contains(s.log.String(), `"msg":"`+msg+`"`) {
				t.Errorf("the log does not say %s:\n%s", msg, s.log)
			}
		}
		if err := logline.Check([]byte(s.log.String())); err != nil {
			t.Error(err)
		}
	})
	testrun.Eventually(t, "the aggregator is ready", func() bool { return strings.HasPrefix(s.ready(), "200") })
	return s
}

// ready is /readyz' status and body.
func (s *started) ready() string {
	resp, err := http.Get(s.url + "/readyz")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprintf("%d %s", resp.StatusCode, body)
}

func counted(api string) string {
	resp, err := http.Get(api + "/v1/explain?uid=1")
	if err != nil {
		return err.Error()
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	_, after, _ := strings.Cut(string(body), `"count":`)
	count, _, _ := strings.Cut(after, ",")
	return count
}

func emitted(t *testing.T, broker, topic, value string) {
	t.Helper()
	cfg := sarama.NewConfig()
	cfg.Producer.Return.Successes = true
	p, err := sarama.NewSyncProducer([]string{broker}, cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if _, _, err := p.SendMessage(&sarama.ProducerMessage{Topic: topic, Value: sarama.StringEncoder(value)}); err != nil {
		t.Fatal(err)
	}
}
