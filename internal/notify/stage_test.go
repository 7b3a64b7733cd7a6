package notify

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/redis/go-redis/v9"
	"github.com/segmentio/kafka-go"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// inbox is a receiver's server. It keeps the messages that it has accepted.
type inbox struct {
	*httptest.Server
	mu     sync.Mutex
	got    []note.Message
	ids    []string
	asked  int
	refuse func(w http.ResponseWriter) bool // nil: it accepts
}

func newInbox(t *testing.T) *inbox {
	b := &inbox{}
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m note.Message
		if err := json.NewDecoder(r.Body).Decode(&m); err != nil {
			t.Error(err)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.asked++
		if b.refuse != nil && b.refuse(w) {
			return
		}
		b.got, b.ids = append(b.got, m), append(b.ids, r.Header.Get("Tallygate-Delivery"))
	}))
	t.Cleanup(b.Close)
	return b
}

// set changes what it answers.
func (b *inbox) set(refuse func(w http.ResponseWriter) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse = refuse
}

func (b *inbox) messages() []note.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]note.Message(nil), b.got...)
}

// titles are the messages' titles with how many notes they are of.
func (b *inbox) titles() string {
	var all []string
	for _, m := range b.messages() {
		all = append(all, fmt.Sprintf("%s (%d)", m.Title, m.Count))
	}
	return strings.Join(all, "; ")
}

// notes counts the notes in all messages.
func (b *inbox) notes() (n int) {
	for _, m := range b.messages() {
		n += m.Count
	}
	return n
}

func (b *inbox) attempts() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// answers makes a server answer a status.
func answers(code int, after string) func(http.ResponseWriter) bool {
	return func(w http.ResponseWriter) bool {
		if after != "" {
			w.Header().Set("Retry-After", after)
		}
		w.WriteHeader(code)
		return true
	}
}

// stage is an embedded Kafka with an audit topic, an aggregator's API, and the program.
type stage struct {
	*testing.T
	stack   *devstack.Stack
	file    string
	log     testrun.Output
	reg     *prometheus.Registry
	mu      sync.Mutex
	cluster api.Cluster
	api     *httptest.Server
	program *Program
	stop    func()
	dry     io.Writer
}

const partitions = 3

func newStage(t *testing.T) *stage {
	t.Helper()
	stack, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stack.Close)
	s := &stage{T: t, stack: stack, file: filepath.Join(t.TempDir(), "notify.yaml")}
	createAudit(t, stack.Kafka, "tallygate.audit")
	s.api = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		s.mu.Lock()
		defer s.mu.Unlock()
		body, _ := json.Marshal(s.cluster)
		_, _ = w.Write(body)
	}))
	t.Cleanup(s.api.Close)
	return s
}

func createAudit(t *testing.T, brokers []string, topic string) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(brokers...), Transport: transport(t)}
	answer, err := client.CreateTopics(t.Context(), &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{{Topic: topic, NumPartitions: partitions, ReplicationFactor: 1}}})
	if err != nil || answer.Errors[topic] != nil {
		t.Fatal(err, answer)
	}
}

func transport(t *testing.T) *kafka.Transport {
	tr := &kafka.Transport{}
	t.Cleanup(tr.CloseIdleConnections)
	return tr
}

// write writes entries to a partition of the audit.
func (s *stage) write(partition int, entries ...string) {
	s.Helper()
	writeAudit(s.T, s.stack.Kafka, "tallygate.audit", partition, entries...)
}

func writeAudit(t *testing.T, brokers []string, topic string, partition int, entries ...string) {
	t.Helper()
	w := &kafka.Writer{Addr: kafka.TCP(brokers...), Topic: topic, BatchTimeout: time.Millisecond, RequiredAcks: kafka.RequireAll, Transport: transport(t),
		Balancer: kafka.BalancerFunc(func(kafka.Message, ...int) int { return partition })}
	defer func() { _ = w.Close() }()
	var all []kafka.Message
	for _, e := range entries {
		all = append(all, kafka.Message{Value: []byte(e)})
	}
	if err := w.WriteMessages(t.Context(), all...); err != nil {
		t.Fatal(err)
	}
}

func commandOf(key string) string {
	return fmt.Sprintf(`{"type":"command","at":%q,"by":"support","command":"block","key":"uid=%s","until":"2026-11-21T13:00:00Z","reason":"stolen","id":"X"}`, time.Now().UTC().Format(time.RFC3339Nano), key)
}

func fuseOf(rule string) string {
	return fmt.Sprintf(`{"type":"fuse","at":%q,"by":"a","rule":%q,"partition":0,"keys":100,"reason":"x"}`, time.Now().UTC().Format(time.RFC3339Nano), rule)
}

// configure writes the program's file.
func (s *stage) configure(text string) {
	s.Helper()
	next := s.file + ".next"
	if err := os.WriteFile(next, []byte(text), 0o600); err != nil {
		s.Fatal(err)
	}
	if err := os.Rename(next, s.file); err != nil {
		s.Fatal(err)
	}
}

// start starts the program, and waits until it reads the audit.
func (s *stage) start() {
	s.Helper()
	none := testrun.NoEnv
	o := ops.NewOptions("test", "", io.Discard, none)
	k := kafkaconn.NewOptions(o)
	if err := o.Parse([]string{"--kafka", strings.Join(s.stack.Kafka, ",")}); err != nil {
		s.Fatal(err)
	}
	conn, err := k.Build()
	if err != nil {
		s.Fatal(err)
	}
	s.reg = prometheus.NewRegistry()
	client := redis.NewClient(&redis.Options{Addr: s.stack.Redis})
	s.program = &Program{File: s.file, Kafka: conn, Prefix: "tallygate", API: apiclient.New(s.api.URL, &http.Client{Transport: &http.Transport{}}), Redis: client, Getenv: none, Registry: s.reg, Log: s.log.Logger(), DryRun: s.dry}
	end := testrun.Start(s.T, s.program.Run)
	s.stop = func() { end(); _ = client.Close() }
	s.Cleanup(s.stop)
	s.joined()
}

// joined waits until all receivers read the audit.
func (s *stage) joined() {
	s.Helper()
	testrun.Eventually(s.T, "the audit is read", func() bool {
		s.program.mu.Lock()
		n := len(s.program.running)
		s.program.mu.Unlock()
		return n > 0 && s.program.ready() == nil
	})
}

// metric is the value of one of the program's series.
func (s *stage) metric(name string, labels ...string) float64 {
	s.Helper()
	m := s.program.metrics
	counters := map[string]*prometheus.CounterVec{"sent": m.sent, "failed": m.failed, "dropped": m.dropped, "reloads": m.reloads}
	gauges := map[string]*prometheus.GaugeVec{"backlog": m.backlog, "lag": m.lag}
	var is dto.Metric
	var err error
	if c := counters[name]; c != nil {
		err = c.WithLabelValues(labels...).Write(&is)
	} else {
		err = gauges[name].WithLabelValues(labels...).Write(&is)
	}
	if err != nil {
		s.Fatal(err)
	}
	return is.GetCounter().GetValue() + is.GetGauge().GetValue()
}
