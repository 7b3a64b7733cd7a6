package helmtest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

const repository = "../../.."

// stage is a Kafka and a Redis that ask for TLS and passwords, and what the chart's Secrets hold.
type stage struct {
	t       *testing.T
	dir     string
	network string // the pods' addresses begin with it: 127.X.Y.
	ca      []byte
	cert    []byte
	key     []byte
	kafka   string
	redis   string
}

// newStage starts the servers; where one is not installed it skips the test, or fails it if all tests have to run.
func newStage(t *testing.T) *stage {
	t.Helper()
	for _, name := range []string{"java", "redis-server"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("TALLYGATE_TEST_REQUIRE") == "1" {
				t.Fatal(err)
			}
			t.Skip(err)
		}
	}
	s := &stage{t: t, dir: t.TempDir(), network: fmt.Sprintf("127.%d.%d.", 16+mathrand.IntN(200), mathrand.IntN(250))}
	s.certificates()
	s.startKafka()
	s.startRedis()
	return s
}

// certificates makes one authority, and one certificate for all servers: those of pods, whose names are addresses here.
func (s *stage) certificates() {
	s.t.Helper()
	issue := func(template, parent *x509.Certificate, key, signer *ecdsa.PrivateKey) (*x509.Certificate, []byte) {
		template.NotAfter = time.Now().AddDate(0, 0, 30) // the console warns of what ends within 14 days
		der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
		if err != nil {
			s.t.Fatal(err)
		}
		cert, err := x509.ParseCertificate(der)
		if err != nil {
			s.t.Fatal(err)
		}
		return cert, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	var keys [2]*ecdsa.PrivateKey
	for i := range keys {
		var err error
		if keys[i], err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			s.t.Fatal(err)
		}
	}
	root := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the cluster"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	authority, text := issue(root, root, keys[0], keys[0])
	server := &x509.Certificate{SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "all servers"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}}
	for i := range 9 {
		server.IPAddresses = append(server.IPAddresses, net.ParseIP(s.pod(i)))
	}
	_, s.cert = issue(server, authority, keys[1], keys[0])
	secret, err := x509.MarshalPKCS8PrivateKey(keys[1])
	if err != nil {
		s.t.Fatal(err)
	}
	s.ca, s.key = text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// pod is the address of a pod.
func (s *stage) pod(i int) string { return fmt.Sprint(s.network, 11+i) }

func (s *stage) write(name string, text []byte) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, text, 0o600); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// startKafka starts one whose further listener has TLS, and asks for a user's password.
func (s *stage) startKafka() {
	s.t.Helper()
	s.kafka = freeAddr(s.t)
	keys := s.write("kafka.pem", append(append([]byte{}, s.key...), s.cert...))
	s.script("kafka.sh", "KAFKA_LISTENERS=SECURED://"+s.kafka, "KAFKA_ADVERTISED=SECURED://"+s.kafka, "KAFKA_HEAP=512m", "KAFKA_JAVA=-XX:TieredStopAtLevel=1",
		`KAFKA_EXTRA=listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL
listener.name.secured.sasl.enabled.mechanisms=PLAIN
listener.name.secured.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required user_tallygate="kafka-secret";
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location=`+keys)
}

func (s *stage) startRedis() {
	s.t.Helper()
	s.redis = freeAddr(s.t)
	_, port, _ := net.SplitHostPort(s.redis)
	s.script("redis.sh", fmt.Sprintf("REDIS_EXTRA=--tls-port %s --tls-cert-file %s --tls-key-file %s --tls-auth-clients no --requirepass redis-secret",
		port, s.write("redis.crt", s.cert), s.write("redis.key", s.key)))
}

// script starts a server by a script of the repository, until the test ends.
func (s *stage) script(name string, env ...string) {
	s.t.Helper()
	path, dir := filepath.Join(repository, "scripts", name), filepath.Join(s.dir, name)
	run := func(what string) {
		c := exec.Command(path, what, dir) //nolint:gosec // ours
		c.Env = append(os.Environ(), env...)
		if out, err := c.CombinedOutput(); err != nil {
			s.t.Errorf("%s %s: %v\n%s", name, what, err, out)
		}
	}
	run("start")
	s.t.Cleanup(func() { run("kill9") })
}

func freeAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}

// client trusts the stage's authority.
func (s *stage) client() *http.Client {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.ca)
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}}
}

// process runs a program until the test ends.
func (s *stage) process(name string, env []string, path string, args ...string) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	c := exec.CommandContext(ctx, path, args...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	c.WaitDelay = 20 * time.Second
	var out output
	c.Env, c.Stdout, c.Stderr = env, &out, &out
	if err := c.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		_ = c.Wait()
		close(ended)
	}()
	s.t.Cleanup(func() {
		cancel()
		<-ended
		if s.t.Failed() {
			s.t.Logf("%s wrote:\n%s", name, out.String())
		}
	})
}

type output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

func eventually(t *testing.T, what string, ok func() (said string, ok bool)) {
	t.Helper()
	said := ""
	for end := time.Now().Add(time.Minute); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		var good bool
		if said, good = ok(); good {
			return
		}
	}
	t.Fatalf("not within a minute: %s; at last: %.2000s", what, said)
}

// get returns a reply's status and body; 0 means that there was none.
func get(c *http.Client, url string) (status int, body string) {
	resp, err := c.Get(url) //nolint:noctx // the client has a timeout
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}
