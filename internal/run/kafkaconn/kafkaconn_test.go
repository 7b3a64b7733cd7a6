package kafkaconn_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"

	"github.com/IBM/sarama"
	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kfake"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/emit"
)

// The meter is sarama's, of the process.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("github.com/rcrowley/go-metrics.(*meterArbiter).tick"))
}

// env is an environment of a test's own.
type env map[string]string

func build(t *testing.T, e env, args ...string) (*kafkaconn.Kafka, error) {
	t.Helper()
	o := ops.NewOptions("test", "", io.Discard, testrun.Env(e))
	k := kafkaconn.NewOptions(o)
	if err := o.Parse(args); err != nil {
		t.Fatal(err)
	}
	return k.Build()
}

// emitted emits an event, and returns why Kafka does not have it.
func emitted(t *testing.T, k *kafkaconn.Kafka) error {
	t.Helper()
	e, err := k.Emitter(emit.Config{})
	if err != nil {
		return err
	}
	e.Emit(event.Event{UID: "42", API: "search"})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	err = e.Close(ctx)
	if s := e.Stats(); err == nil && s.Emitted != 1 {
		err = fmt.Errorf("%+v", s)
	}
	return err
}

func isRefusal(err error) bool {
	_, ok := errors.AsType[*ops.Refusal](err)
	return ok
}

// Without options for them there is neither TLS nor SASL, and what sarama is told is a
// configuration that it takes.
func TestPlainText(t *testing.T) {
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tallygate.events"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	k, err := build(t, nil, "--kafka", cluster.ListenAddrs()[0]+",b:2")
	if err != nil || len(k.Brokers) != 2 {
		t.Fatalf("%v, %v", k.Brokers, err)
	}
	s := sarama.NewConfig()
	if clients.Sarama(k)(s); s.Validate() != nil {
		t.Error(s.Validate())
	}
	if err := emitted(t, k); err != nil {
		t.Errorf("an emitter: %v", err)
	}
	if err := k.Ready(); err != nil {
		t.Error(err)
	}
}

func TestWrongOptions(t *testing.T) {
	cert, key := testca.New(t).Files("client")
	password := env{"TALLYGATE_KAFKA_PASSWORD": "hush"}
	for _, c := range []struct {
		env  env
		args string
		want string
	}{
		{nil, "--kafka-ca " + cert, "--kafka-ca, -cert and -key need --kafka-tls"},
		{nil, "--kafka-tls --kafka-ca /there/is/none", "read --kafka-ca: open /there/is/none"},
		{nil, "--kafka-tls --kafka-ca " + key, "no PEM certificate in it"},
		{nil, "--kafka-tls --kafka-cert " + cert, "--kafka-cert and --kafka-key need each other"},
		{nil, "--kafka-tls --kafka-cert " + cert + " --kafka-key " + cert, "read --kafka-cert and --kafka-key"},
		{password, "--kafka-sasl gssapi", "plain, scram-sha-256 or scram-sha-512"},
		{password, "--kafka-sasl plain", "--kafka-sasl needs --kafka-user"},
		{nil, "--kafka-sasl plain --kafka-user u", "the password in TALLYGATE_KAFKA_PASSWORD"},
		{env{"TALLYGATE_KAFKA_PASSWORD": "hush\a"}, "--kafka-sasl scram-sha-256 --kafka-user u", "--kafka-sasl scram-sha-256: "},
		{nil, "--kafka-user u", "need --kafka-sasl"},
		{nil, "--kafka-sasl plain --kafka-user u --kafka-password-file /there/is/none", "read a secret"},
	} {
		if _, err := build(t, c.env, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error tells the password", c.args)
		}
	}
}

// A wrong configuration is the user's mistake (exit status 2). A file that has gone since the
// options were checked is not.
func TestWhatIsWrongWithAnEmitter(t *testing.T) {
	file := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(file, []byte("hush\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--kafka", "nowhere", "--kafka-sasl", "plain", "--kafka-user", "u", "--kafka-password-file", file}
	k, err := build(t, nil, args...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Emitter(emit.Config{}); ops.Exit(io.Discard, "test", err) != ops.ExitUsage {
		t.Errorf("an address without a port: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := k.Emitter(emit.Config{}); ops.Exit(io.Discard, "test", err) != ops.ExitError {
		t.Errorf("a password file that has gone: %v", err)
	}
}

// Both mistakes are told, and not one after the other.
func TestMistakesAreJoined(t *testing.T) {
	_, err := build(t, nil, "--kafka-key", "k", "--kafka-sasl", "x")
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v", err)
	}
}

// Certificates of both sides are replaced while the program runs: what it trusts, and what it
// shows.
func TestKafkaCertificatesAreReadAtEachConnection(t *testing.T) {
	var serving atomic.Pointer[tls.Config]
	rotate := func(ca *testca.Authority) {
		serving.Store(&tls.Config{Certificates: []tls.Certificate{ca.Pair("broker")}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: ca.Pool()})
	}
	ca := testca.New(t)
	rotate(ca)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tallygate.events"), kfake.TLS(&tls.Config{
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return serving.Load(), nil },
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	caFile := ca.File()
	certFile, keyFile := ca.Files("client")
	k, err := build(t, nil, "--kafka", cluster.ListenAddrs()[0], "--kafka-tls", "--kafka-ca", caFile, "--kafka-cert", certFile, "--kafka-key", keyFile)
	if err != nil {
		t.Fatal(err)
	}
	connect := func() error {
		conn, err := k.DialContext(t.Context(), "tcp", k.Brokers[0])
		if err != nil {
			return err
		}
		return conn.Close()
	}
	if err := connect(); err != nil {
		t.Fatal(err)
	}
	refused := func(what string) {
		t.Helper()
		if err := connect(); err == nil || !isRefusal(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	renewed := testca.New(t)
	newCert, newKey := renewed.Issue("client")
	rotate(renewed)
	refused("a broker that we don't trust")
	running, err := k.Emitter(emit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	put := func(path string, text []byte) {
		t.Helper()
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(caFile, renewed.PEM())
	refused("a broker that does not take our certificate")
	put(certFile, newCert)
	refused("a certificate whose key is another's")
	put(keyFile, newKey)
	if err := connect(); err != nil {
		t.Errorf("after all was replaced: %v", err)
	}
	transport := k.Transport()
	t.Cleanup(transport.CloseIdleConnections)
	client := &kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport}
	if _, err := client.Metadata(t.Context(), &kafka.MetadataRequest{}); err != nil {
		t.Errorf("kafka-go: %v", err)
	}
	if err := emitted(t, k); err != nil {
		t.Errorf("an emitter: %v", err)
	}
	running.Emit(event.Event{UID: "42", API: "search"})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	if err := running.Close(ctx); err != nil {
		t.Errorf("an emitter that began before: %v", err)
	}
}

// Each mechanism lets in by the password that the file has at that moment, and a wrong one is told
// from a network's trouble.
func TestKafkaPasswordsAreReadAtEachConnection(t *testing.T) {
	for mechanism, name := range map[string]string{"plain": "PLAIN", "scram-sha-256": "SCRAM-SHA-256", "scram-sha-512": "SCRAM-SHA-512"} {
		t.Run(mechanism, func(t *testing.T) {
			cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(1, "tallygate.events"), kfake.EnableSASL(), kfake.Superuser(name, "u", "right"))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(cluster.Close)
			file := filepath.Join(t.TempDir(), "password")
			if err := os.WriteFile(file, []byte("mistaken\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			k, err := build(t, nil, "--kafka", cluster.ListenAddrs()[0], "--kafka-sasl", mechanism, "--kafka-user", "u", "--kafka-password-file", file)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := k.DialContext(t.Context(), "tcp", k.Brokers[0]); !isRefusal(err) || strings.Contains(err.Error(), "mistaken") {
				t.Errorf("a wrong password: %v", err)
			}
			if err := os.Remove(file); err != nil {
				t.Fatal(err)
			}
			if _, err := k.DialContext(t.Context(), "tcp", k.Brokers[0]); !isRefusal(err) {
				t.Errorf("no file: %v", err)
			}
			if err := os.WriteFile(file, []byte("right\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s := sarama.NewConfig()
			clients.Sarama(k)(s)
			client, err := sarama.NewClient(k.Brokers, s)
			if err != nil {
				t.Fatalf("sarama: %v", err)
			}
			if err := client.Close(); err != nil {
				t.Error(err)
			}
			transport := k.Transport()
			defer transport.CloseIdleConnections()
			if _, err := (&kafka.Client{Addr: kafka.TCP(k.Brokers...), Transport: transport}).Metadata(t.Context(), &kafka.MetadataRequest{}); err != nil {
				t.Errorf("kafka-go: %v", err)
			}
			if err := emitted(t, k); err != nil {
				t.Errorf("an emitter: %v", err)
			}
			cluster.Close()
			if _, err := k.DialContext(t.Context(), "tcp", k.Brokers[0]); err == nil || isRefusal(err) {
				t.Errorf("a broker that is away: %v", err)
			}
		})
	}
}
