package e2e

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testca"
)

// secured is an installation in which everything has a secret: Kafka and Redis have TLS and passwords, all listeners
// have TLS, and all who ask have tokens.
type secured struct {
	*rig
	kafka        *servers.SCRAMKafka
	dir          string
	ours         *testca.Authority // of our listeners
	theirs       [2]*testca.Authority
	a, b         *Process
	guard        *Process
	console      *Process
	notify       *Process
	tokens       map[string]string // by role
	told         chan string       // what the webhook's receiver got: the signature, a space, the body
	reader       *http.Client
	refusedAsks  atomic.Int64
	answeredAsks atomic.Int64
	asking       sync.Mutex // the token and the trust of who asks
	client       *http.Client
}

// file replaces a file at once, as an operator should.
func (s *secured) file(name, text string) (path string) {
	s.t.Helper()
	path = filepath.Join(s.dir, name)
	if err := os.WriteFile(path+".new", []byte(text), 0o600); err != nil {
		s.t.Fatal(err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		s.t.Fatal(err)
	}
	return path
}

// pair replaces a certificate and its key.
func (s *secured) pair(of *testca.Authority, name string) (cert, key string) {
	s.t.Helper()
	c, k := of.Issue(name)
	return s.file(name+".crt", string(c)), s.file(name+".key", string(k))
}

// keystore writes what a broker serves with.
func (s *secured) keystore(name string, of *testca.Authority) string {
	c, k := of.Issue("kafka")
	return s.file(name, string(k)+string(c))
}

func newSecured(t *testing.T) *secured {
	servers.Kafka(t)
	s := &secured{dir: t.TempDir(), ours: testca.New(t), theirs: [2]*testca.Authority{testca.New(t), testca.New(t)},
		tokens: map[string]string{"admin": "admin-1", "viewer": "viewer-1"}, told: make(chan string, 1000)}
	s.rig = &rig{t: t} // for the files
	at, redisAt := servers.FreeAddr(t), servers.FreeAddr(t)
	process := servers.StartKafka(t, map[string]string{
		"listener.security.protocol.map":                       "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SECURED:SASL_SSL",
		"listener.name.secured.sasl.enabled.mechanisms":        "SCRAM-SHA-512",
		"listener.name.secured.scram-sha-512.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required;",
		"listener.name.secured.ssl.keystore.type":              "PEM",
		"listener.name.secured.ssl.keystore.location":          s.keystore("kafka-1.pem", s.theirs[0]),
		// Sessions end, so that each connection soon shows the secrets of today.
		"listener.name.secured.connections.max.reauth.ms": "3000",
	}, "KAFKA_LISTENERS=SECURED://"+at, "KAFKA_ADVERTISED=SECURED://"+at)
	s.kafka = &servers.SCRAMKafka{KafkaProc: process, Secured: at}
	_, port, _ := net.SplitHostPort(redisAt)
	cert, key := s.pair(s.theirs[1], "redis-1")
	store := servers.StartRedis(t, "--tls-port", port, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no")
	s.rig = newBareRig(t, []string{process.Addr()}, store.Addr(), searches+
		"    - {name: load, match: {api: load}, limit: 1000000, per: year, window: calendar, then: {block: until-reset}}\n", 4)
	s.start(redisAt)
	return s
}

// start starts the programs, each with the secrets that it has in files.
func (s *secured) start(redisAt string) {
	t := s.t
	t.Helper()
	s.kafka.Password("tallygate", "kafka-1")
	if err := s.redis.Do(t.Context(), "ACL", "SETUSER", "tallygate", "reset", "on", ">redis-1", "~*", "&*", "+@all").Err(); err != nil {
		t.Fatal(err)
	}
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.told <- r.Header.Get("Tallygate-Signature") + " " + string(body)
	}))
	t.Cleanup(receiver.Close)
	kafka := []string{"--kafka", s.kafka.Secured, "--kafka-tls", "--kafka-ca", s.file("kafka-ca.pem", string(s.theirs[0].PEM())),
		"--kafka-sasl", "scram-sha-512", "--kafka-user", "tallygate", "--kafka-password-file", s.file("kafka", "kafka-1\n"), "--prefix", s.prefix}
	store := []string{"--redis", redisAt, "--redis-tls", "--redis-ca", s.file("redis-ca.pem", string(s.theirs[1].PEM())),
		"--redis-user", "tallygate", "--redis-password-file", s.file("redis", "redis-1\n")}
	tokens, ca := s.tokenFile(s.tokens), s.file("ca.pem", string(s.ours.PEM()))
	serve := func(name string) []string {
		cert, key := s.pair(s.ours, name)
		return []string{"--tls-cert", cert, "--tls-key", key}
	}
	ask := []string{"--ca", ca, "--token-file", s.file("token", "viewer-1\n")}
	join := func(lists ...[]string) (all []string) {
		for _, l := range lists {
			all = append(all, l...)
		}
		return all
	}
	member := func(name string) *Process {
		return s.aggregator(name, join(kafka, store, serve("aggregator"), []string{"--tokens", tokens, "--peer-ca", ca, "--instance-id", name, "--replication", "1"})...)
	}
	s.a, s.b = member("a"), member("b")
	s.guard = newProcess(t, "guard", program(t, "enforcer"), join(kafka, store, serve("guard"), []string{"--tokens", tokens, "--emit-admitted"})...)
	aggregators := []string{"--aggregator", "https://" + s.a.addr + ",https://" + s.b.addr}
	s.console = newProcess(t, "console", program(t, "tallygate"), join(kafka, store, serve("console"), ask, aggregators, []string{"--session-key-file", s.file("session", strings.Repeat("1", 64)+"\n")})...)
	s.console.args = append([]string{"console"}, s.console.args...)
	file := s.file("notify.yaml", fmt.Sprintf("receivers: [{name: hook, webhook: {url: %q, secret_files: [%s]}}]\nroutes: [{name: all, on: command, to: hook, wait: 0s, every: 0s}]\n",
		receiver.URL, s.file("hook", "hook-secret-number-1")))
	s.notify = newProcess(t, "notify", program(t, "tallygate"), join(kafka, store, ask, []string{"--aggregator", "https://" + s.a.addr, "--notify", file})...)
	s.notify.args = append([]string{"notify"}, s.notify.args[2:]...) // it has no --listen
	for _, p := range []*Process{s.a, s.b, s.guard, s.console, s.notify} {
		p.Start()
	}
	for _, p := range []*Process{s.a, s.b, s.guard, s.console, s.notify} {
		eventually(t, p.name+" is ready", func() bool {
			status, _ := get("http://" + p.metrics + "/readyz")
			return status == http.StatusOK
		})
	}
	s.trust(s.ours)
	s.logIn()
}

func (s *secured) tokenFile(lists ...map[string]string) string {
	var text strings.Builder
	for _, tokens := range lists {
		for role, token := range tokens {
			sum := sha256.Sum256([]byte(token))
			fmt.Fprintf(&text, "- {name: %s, role: %s, sha256: %s}\n", role, role, hex.EncodeToString(sum[:]))
		}
	}
	return s.file("tokens.yaml", text.String())
}

// trust says whom those who ask trust. Each request opens a connection.
func (s *secured) trust(all ...*testca.Authority) {
	pool := all[0].Pool()
	for _, a := range all[1:] {
		pool.AppendCertsFromPEM(a.PEM())
	}
	s.asking.Lock()
	defer s.asking.Unlock()
	transport := &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}}
	s.client = &http.Client{Timeout: 10 * time.Second, Transport: transport}
	if s.reader == nil {
		s.reader = &http.Client{Timeout: 10 * time.Second}
		s.reader.Jar, _ = cookiejar.New(nil)
	}
	s.reader.Transport = transport
}

// ask sends a request with the token of a role as it is now.
func (s *secured) ask(ctx context.Context, role, url, body string) (status int, text string) {
	s.asking.Lock()
	client, token := s.client, s.tokens[role]
	s.asking.Unlock()
	method := http.MethodGet
	if body != "" {
		method = http.MethodPost
	}
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Authorization", "Bearer "+token)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer func() { _ = resp.Body.Close() }()
	var b bytes.Buffer
	_, _ = b.ReadFrom(resp.Body)
	return resp.StatusCode, b.String()
}

// asks has the enforcer and an aggregator answer until ctx ends: not one request may be refused.
func (s *secured) asks(ctx context.Context) error {
	tick := time.NewTicker(25 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, r := range [][2]string{{"https://" + s.guard.addr + "/v1/check", `{"uid":"blocked","api":"other"}`}, {"https://" + s.a.addr + "/v1/explain?uid=1", ""}} {
			status, text := s.ask(ctx, "viewer", r[0], r[1])
			if ctx.Err() != nil {
				return nil
			}
			if s.answeredAsks.Add(1); status != http.StatusOK {
				s.refusedAsks.Add(1)
				s.t.Errorf("%s is answered with %d: %s", r[0], status, text)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// load is `tallygate emit`, which gets 400 events a second until stop is called. It returns how many of each of 20
// uids were sent.
func (s *secured) load() (stop func() int) {
	t := s.t
	t.Helper()
	args := []string{"emit"}
	for i, a := range s.a.args { // Kafka's options of an aggregator
		if strings.HasPrefix(a, "--kafka") && a != "--kafka-tls" && s.a.args[i+1] != s.brokers[0] {
			args = append(args, a, s.a.args[i+1])
		}
	}
	cmd := exec.Command(program(t, "tallygate"), append(args, "--kafka-tls", "--prefix", s.prefix, "-")...)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var out logBuffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	rounds := make(chan int, 1)
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for ; ctx.Err() == nil; <-tick.C {
			for uid := range 20 {
				if _, err := fmt.Fprintf(in, "{\"uid\":\"load-%d\",\"api\":\"load\",\"id\":\"%d-%d\"}\n", uid, uid, n); err != nil {
					t.Errorf("tallygate emit takes no more: %v", err)
				}
			}
			n++
		}
		_ = in.Close()
		rounds <- n
	}()
	return func() int {
		t.Helper()
		cancel()
		n := <-rounds
		if err := cmd.Wait(); err != nil || !strings.Contains(out.String(), " 0 events dropped") {
			t.Errorf("tallygate emit: %v\n%s", err, out.tail(10))
		}
		return n
	}
}

// logIn logs the reader in at the console, which knows the role by the aggregator.
func (s *secured) logIn() {
	s.t.Helper()
	resp, err := s.reader.PostForm("https://"+s.console.addr+"/login", url.Values{"token": {s.tokens["viewer"]}})
	if err != nil {
		s.t.Fatal(err)
	}
	_ = resp.Body.Close()
	if path := resp.Request.URL.Path; resp.StatusCode != http.StatusOK || path == "/login" {
		s.t.Fatalf("the login is answered with %s at %s", resp.Status, path)
	}
}

// page is what the reader sees; "" if nobody is logged in.
func (s *secured) page() string {
	resp, err := s.reader.Get("https://" + s.console.addr + "/")
	if err != nil {
		return ""
	}
	defer func() { _ = resp.Body.Close() }()
	text, _ := io.ReadAll(resp.Body)
	if resp.Request.URL.Path == "/login" {
		return ""
	}
	return string(text)
}

// command has somebody blocked, and returns the signature of the message about it.
func (s *secured) command(uid string) (signature, body string) {
	s.t.Helper()
	status, text := s.ask(s.t.Context(), "admin", "https://"+s.a.addr+"/v1/commands", fmt.Sprintf(`{"command":"block","key":{"uid":%q},"for":"1h","reason":"test"}`, uid))
	if status != http.StatusOK {
		s.t.Fatalf("the command is answered with %d: %s", status, text)
	}
	eventually(s.t, "the webhook is told of the command", func() bool {
		select {
		case text := <-s.told:
			signature, body, _ = strings.Cut(text, " ")
			return true
		default:
			return false
		}
	})
	return signature, body
}

// count is what was counted for a uid of the load.
func (s *secured) count(uid int) (n int) {
	_, text := s.ask(s.t.Context(), "viewer", fmt.Sprintf("https://%s/v1/explain?uid=load-%d&api=load", s.b.addr, uid), "")
	var answer struct {
		Rules []struct{ Count int }
	}
	if json.Unmarshal([]byte(text), &answer) != nil || len(answer.Rules) == 0 {
		return -1
	}
	return answer.Rules[0].Count
}

// redisSays changes a setting of Redis, and ends the connections of programs, which then use what they have now.
func (s *secured) redisSays(args ...any) {
	s.t.Helper()
	if err := s.redis.Do(s.t.Context(), args...).Err(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.redis.Do(s.t.Context(), "CLIENT", "KILL", "USER", "tallygate").Err(); err != nil && err != redis.Nil { //nolint:errorlint // as it is
		s.t.Fatal(err)
	}
}
