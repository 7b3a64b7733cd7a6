package aggregate

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	kafkaclients "github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// The reader of claims connects as sarama does: by the options of the program, with TLS and every
// SASL mechanism that these support.
func TestClaimsAreReadWithTLSAndSASL(t *testing.T) {
	s := httptest.NewTLSServer(nil)
	s.Close()
	server, ca := &tls.Config{Certificates: s.TLS.Certificates}, filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, mechanism := range []string{"", "plain", "scram-sha-256", "scram-sha-512"} {
		t.Run("with "+mechanism, func(t *testing.T) {
			args := []string{"--kafka-tls", "--kafka-ca", ca}
			opts := []kfake.Opt{kfake.NumBrokers(1), kfake.TLS(server), kfake.SeedTopics(1, "t")}
			if mechanism != "" {
				args = append(args, "--kafka-sasl", mechanism, "--kafka-user", "app")
				opts = append(opts, kfake.EnableSASL(), kfake.Superuser(strings.ToUpper(mechanism), "app", "secret"))
			}
			k, err := kfake.NewCluster(opts...)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.Close)
			o := ops.NewOptions("test", "", io.Discard, testrun.Env(map[string]string{"TALLYGATE_KAFKA_PASSWORD": "secret"}))
			kafka := kafkaconn.NewOptions(o)
			if err := o.Parse(args); err != nil {
				t.Fatal(err)
			}
			how, err := kafka.Build()
			if err != nil {
				t.Fatal(err)
			}
			cfg := Config{Brokers: k.ListenAddrs(), Rules: compile(t, yearly), Kafka: kafkaclients.Sarama(how)}.withDefaults()
			reads, err := cfg.fetching()
			if err != nil {
				t.Fatal(err)
			}
			appendOne(t, reads, "t", "hello")
			if got := readOne(t, reads, "t"); got != "hello" {
				t.Errorf("%q", got)
			}
		})
	}
}

func appendOne(t *testing.T, as kafkalog.Config, topic, value string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(as.Brokers...), kgo.Dialer(as.Dial))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

func readOne(t *testing.T, cfg kafkalog.Config, topic string) (value string) {
	t.Helper()
	f, stop, err := kafkalog.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = f.Scan(ctx, topic, [16]byte{}, 0, 0, 1, func(rec *kafkalog.Record) error {
		value = string(rec.Value)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Settings in Config.Kafka apply to the reader of claims too; those that cannot are an error.
func TestClaimsAreReadAsSaramaIsToldTo(t *testing.T) {
	with := func(change func(*sarama.Config)) (kafkalog.Config, error) {
		return Config{Brokers: []string{"nowhere:9092"}, Rules: compile(t, yearly), Kafka: change}.withDefaults().fetching()
	}
	cfg, err := with(func(s *sarama.Config) {
		s.Consumer.MaxWaitTime, s.Consumer.Fetch.Default, s.Consumer.IsolationLevel = time.Second, 1<<16, sarama.ReadUncommitted
		s.ClientID = "me"
	})
	if err != nil || cfg.MaxWait != time.Second || cfg.PartitionBytes != 1<<16 || !cfg.Uncommitted || cfg.ClientID != "me" {
		t.Errorf("%+v, %v", cfg, err)
	}
	local := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
	if cfg, err = with(func(s *sarama.Config) { s.Net.LocalAddr = local }); err != nil || cfg.Dial == nil {
		t.Errorf("a local address: %+v, %v", cfg, err)
	}
	s := sarama.NewConfig()
	s.Net.LocalAddr = local
	if _, lines := tapped(s); lines.dialer.(*net.Dialer).LocalAddr != local {
		t.Error("the group's connections have another local address than sarama was told")
	}
	for name, change := range map[string]func(*sarama.Config){
		"TLS":  func(s *sarama.Config) { s.Net.TLS.Enable = true },
		"SASL": func(s *sarama.Config) { s.Net.SASL.Enable, s.Net.SASL.User, s.Net.SASL.Password = true, "u", "p" },
	} {
		_, err := New(Config{Brokers: []string{"nowhere:9092"}, Rules: compile(t, yearly), Kafka: change})
		if err == nil || !strings.Contains(err.Error(), "Net.Proxy.Dialer") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
