package ops_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"math/big"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/ops"
)

// certificate writes a self-signed certificate and its key.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return write(t, "cert.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))),
		write(t, "key.pem", string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})))
}

func buildKafka(t *testing.T, e env, args ...string) (*ops.Kafka, error) {
	t.Helper()
	o := ops.NewOptions("test", "", io.Discard, e.get)
	k := o.Kafka()
	if err := o.Parse(args); err != nil {
		t.Fatal(err)
	}
	return k.Build()
}

func TestKafkaPlain(t *testing.T) {
	k, err := buildKafka(t, nil, "--kafka", "a:1,b:2")
	if err != nil || len(k.Brokers) != 2 || k.TLS != nil {
		t.Fatalf("%v, %v", k.Brokers, err)
	}
	s := sarama.NewConfig()
	k.Sarama(s)
	m, err := k.Mechanism()
	if m != nil || err != nil {
		t.Errorf("nothing was asked for, but SASL is %v, %v", m, err)
	}
}

func TestKafkaTLS(t *testing.T) {
	cert, key := certificate(t)
	k, err := buildKafka(t, nil, "--kafka-tls", "--kafka-ca", cert, "--kafka-cert", cert, "--kafka-key", key)
	if err != nil || k.TLS == nil || k.TLS.RootCAs == nil || k.TLS.GetClientCertificate == nil {
		t.Fatalf("%v, %v", k.TLS, err)
	}
	s := sarama.NewConfig()
	k.Sarama(s)
	transport, err := k.Transport()
	if err != nil || s.Validate() != nil || s.Net.Proxy.Dialer != k || transport.Dial == nil {
		t.Error("the clients don't connect by these settings")
	}
}

func TestKafkaSASL(t *testing.T) {
	for _, mechanism := range []string{"plain", "scram-sha-256", "scram-sha-512"} {
		k, err := buildKafka(t, env{"TALLYGATE_KAFKA_PASSWORD": "hush"}, "--kafka-sasl", mechanism, "--kafka-user", "u")
		if err != nil {
			t.Fatal(err)
		}
		m, err := k.Mechanism()
		if err != nil || !strings.EqualFold(m.Name(), mechanism) {
			t.Errorf("%s: kafka-go has %v, %v", mechanism, m, err)
		}
	}
}

func TestWrongConnectionOptions(t *testing.T) {
	cert, key := certificate(t)
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
		{nil, "--kafka-user u", "need --kafka-sasl"},
		{nil, "--kafka-sasl plain --kafka-user u --kafka-password-file /there/is/none", "read a secret"},
	} {
		if _, err := buildKafka(t, c.env, strings.Fields(c.args)...); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.args, err, c.want)
		} else if strings.Contains(err.Error(), "hush") {
			t.Errorf("%s: the error tells the password", c.args)
		}
	}
}

// Both mistakes are told, and not one after the other.
func TestConnectionMistakesAreJoined(t *testing.T) {
	_, err := buildKafka(t, nil, "--kafka-key", "k", "--kafka-sasl", "x")
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Errorf("%v", err)
	}
}

func buildRedis(t *testing.T, e env, args ...string) (redis.UniversalClient, error) {
	t.Helper()
	o := ops.NewOptions("test", "", io.Discard, e.get)
	r := o.Redis("127.0.0.1:1")
	if err := o.Parse(args); err != nil {
		t.Fatal(err)
	}
	if !r.Given() {
		t.Error("there is a default")
	}
	c, err := r.Build()
	if err == nil {
		t.Cleanup(func() { _ = c.Close() })
	}
	return c, err
}

func TestRedis(t *testing.T) {
	file := write(t, "secret", "hush\n")
	c, err := buildRedis(t, nil, "--redis", "r:6379", "--redis-user", "u", "--redis-password-file", file, "--redis-db", "3", "--redis-tls")
	if err != nil {
		t.Fatal(err)
	}
	if o := c.(*redis.Client).Options(); o.Addr != "r:6379" || o.Username != "u" || o.Password != "hush" || o.DB != 3 || o.TLSConfig == nil {
		t.Errorf("%+v", o)
	}
	for _, args := range []string{"--redis a:1,b:2", "--redis a:1 --redis-cluster"} {
		c, err := buildRedis(t, env{"TALLYGATE_REDIS_PASSWORD": "hush"}, strings.Fields(args)...)
		if err != nil {
			t.Fatal(err)
		}
		if cluster, ok := c.(*redis.ClusterClient); !ok || cluster.Options().Password != "hush" {
			t.Errorf("%s: %T", args, c)
		}
	}
	if _, err := buildRedis(t, nil, "--redis-key", filepath.Join(t.TempDir(), "k")); err == nil {
		t.Error("a key without TLS is accepted")
	}
}

func TestSentinels(t *testing.T) {
	file := write(t, "secret", "hush\n")
	c, err := buildRedis(t, env{"TALLYGATE_REDIS_PASSWORD": "other"}, "--redis", "s1:26379,s2:26379", "--redis-master", "shop",
		"--redis-sentinel-user", "watcher", "--redis-sentinel-password-file", file, "--redis-db", "3")
	if err != nil {
		t.Fatal(err)
	}
	if o := c.(*redis.Client).Options(); o.Addr != "FailoverClient" || o.Password != "other" || o.DB != 3 {
		t.Errorf("%+v", o)
	}
	for _, args := range []string{"--redis a:1 --redis-master m --redis-cluster", "--redis a:1,b:2 --redis-db 1", "--redis a:1 --redis-sentinel-user u"} {
		if _, err := buildRedis(t, nil, strings.Fields(args)...); err == nil {
			t.Errorf("%s is accepted", args)
		}
	}
}

func TestNewLogger(t *testing.T) {
	var out strings.Builder
	log, err := ops.NewLogger(&out, "warn", "json")
	if err != nil {
		t.Fatal(err)
	}
	log.Info("not told")
	log.Warn("told", slog.Int("n", 1))
	if got := out.String(); strings.Contains(got, "not told") || !strings.Contains(got, `"msg":"told","n":1`) {
		t.Errorf("%s", got)
	}
	for _, wrong := range [][2]string{{"loud", "json"}, {"info", "xml"}} {
		if _, err := ops.NewLogger(io.Discard, wrong[0], wrong[1]); err == nil {
			t.Errorf("%v is accepted", wrong)
		}
	}
}
