package e2e

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Every secret that there is gets replaced while events come and enforcers are asked, as docs/runbooks.md says it:
// no program is restarted, no request is refused, and each event counts once.
func TestEverySecretIsRotatedWithoutAnOutage(t *testing.T) {
	servers.Nightly(t, "secrets")
	s := newSecured(t)
	stop := testrun.Start(t, s.asks)
	ended := s.load()
	for _, step := range []struct {
		name   string
		rotate func(s *secured)
	}{
		{"Kafka's password", (*secured).rotateKafkaPassword},
		{"Redis' password", (*secured).rotateRedisPassword},
		{"the tokens", (*secured).rotateTokens},
		{"the certificates of our listeners, then their authority", (*secured).rotateListeners},
		{"Kafka's certificate and its authority", (*secured).rotateKafkaCertificate},
		{"Redis' certificate and its authority", (*secured).rotateRedisCertificate},
		{"the session key", (*secured).rotateSessionKey},
		{"the webhook's secret", (*secured).rotateHook},
	} {
		began := time.Now()
		step.rotate(s)
		s.works(step.name)
		t.Logf("%s: %v", step.name, time.Since(began).Round(time.Millisecond))
	}
	rounds := ended()
	for uid := range 20 {
		eventually(t, fmt.Sprintf("of load-%d %d events are counted", uid, rounds), func() bool { return s.count(uid) >= rounds })
		if n := s.count(uid); n != rounds {
			t.Errorf("of load-%d %d events are counted, want %d", uid, n, rounds)
		}
	}
	stop()
	t.Logf("%d events, %d requests, %d refused", 20*rounds, s.answeredAsks.Load(), s.refusedAsks.Load())
	for _, p := range []*Process{s.a, s.b, s.guard, s.console, s.notify} {
		if !p.Running() {
			t.Errorf("%s has ended", p.name)
		}
		for line := range strings.Lines(p.Logs()) {
			if strings.Contains(line, "requires a credential") || strings.Contains(line, "reading the verdict topic is interrupted") && strings.Contains(line, "EOF") {
				t.Errorf("%s says, where nothing is wrong: %s", p.name, line)
			}
		}
	}
}

// works sees an event through the whole chain, with connections of today: all sessions at Kafka end within three
// seconds. The console, who asks the aggregators, Kafka and Redis, and notify find what is there.
func (s *secured) works(after string) {
	s.t.Helper()
	s.redisSays("PING")
	time.Sleep(3500 * time.Millisecond) // sessions at Kafka end, and nothing tells
	uid := strings.ReplaceAll(after, " ", "-")
	s.putEvents(uid, 6)
	eventually(s.t, after+": who is over the limit is denied", func() bool {
		_, text := s.ask(s.t.Context(), "viewer", "https://"+s.guard.addr+"/v1/check", fmt.Sprintf(`{"uid":%q,"api":"search.query"}`, uid))
		return strings.Contains(text, `"allowed":false`)
	})
	eventually(s.t, after+": the console sees every link", func() bool {
		page := s.page()
		for _, bad := range []string{"no aggregator answers", "refuses the console", "does not answer", "not heard of"} {
			if page == "" || strings.Contains(page, bad) {
				return false
			}
		}
		return true
	})
	s.command("command-after-" + uid)
}

// putEvents sends events past the programs.
func (s *secured) putEvents(uid string, n int) {
	var all []*sarama.ProducerMessage
	for range n {
		all = append(all, &sarama.ProducerMessage{Topic: s.names.Events, Value: sarama.StringEncoder(fmt.Sprintf(`{"uid":%q,"api":"search.query"}`, uid))})
	}
	s.put(all)
}

// Kafka has one password for a user: between the change there and in the file, new connections are refused, and tried
// again.
func (s *secured) rotateKafkaPassword() {
	s.kafka.Password("tallygate", "kafka-2")
	s.file("kafka", "kafka-2\n")
}

// Redis takes both passwords meanwhile.
func (s *secured) rotateRedisPassword() {
	s.redisSays("ACL", "SETUSER", "tallygate", ">redis-2")
	s.file("redis", "redis-2\n")
	s.redisSays("ACL", "SETUSER", "tallygate", "<redis-1")
}

// Both tokens are good until everybody has the new one.
func (s *secured) rotateTokens() {
	before := s.tokens
	next := map[string]string{"admin": "admin-2", "viewer": "viewer-2"}
	s.tokenFile(before, next)
	for _, p := range []*Process{s.a, s.b, s.guard} {
		eventually(s.t, p.name+" knows the new token", func() bool { return s.with("viewer-2", p) == http.StatusOK })
	}
	s.asking.Lock()
	s.tokens = next
	s.asking.Unlock()
	s.file("token", "viewer-2\n")
	time.Sleep(time.Second) // requests with the old one end
	s.tokenFile(next)
	for _, p := range []*Process{s.a, s.b, s.guard} {
		eventually(s.t, p.name+" refuses the old token", func() bool { return s.with("viewer-1", p) == http.StatusUnauthorized })
	}
	s.logIn() // the reader's session was the old token's
}

// with asks a program for its status with a token.
func (s *secured) with(token string, p *Process) int {
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodGet, "https://"+p.addr+"/v1/status", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+token)
	resp, err := s.client.Do(req)
	if err != nil {
		return 0
	}
	_ = resp.Body.Close()
	return resp.StatusCode
}

// rotateListeners first replaces certificates, then has both authorities trusted, then replaces certificates by those of the new one,
// and trusts this one alone.
func (s *secured) rotateListeners() {
	before, next := s.ours, testca.New(s.t)
	s.replaceListeners(before)
	s.file("ca.pem", string(before.PEM())+string(next.PEM()))
	s.trust(before, next)
	s.replaceListeners(next)
	s.file("ca.pem", string(next.PEM()))
	s.trust(next)
	s.ours = next
}

func (s *secured) replaceListeners(of *testca.Authority) {
	serving := map[*Process]string{}
	for _, p := range []*Process{s.a, s.b, s.guard, s.console} {
		serving[p] = s.served(p)
	}
	for _, name := range []string{"aggregator", "guard", "console"} {
		s.pair(of, name)
	}
	for p, before := range serving {
		eventually(s.t, p.name+" serves with the new certificate", func() bool { now := s.served(p); return now != "" && now != before })
	}
}

// served is the number of the certificate that a program shows.
func (s *secured) served(p *Process) string {
	conn, err := tls.Dial("tcp", p.addr, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it only looks
	if err != nil {
		return ""
	}
	defer func() { _ = conn.Close() }()
	return conn.ConnectionState().PeerCertificates[0].SerialNumber.String()
}

func (s *secured) rotateKafkaCertificate() {
	next := testca.New(s.t)
	s.file("kafka-ca.pem", string(s.theirs[0].PEM())+string(next.PEM()))
	path := s.keystore("kafka-2.pem", next)
	change := map[string]sarama.IncrementalAlterConfigsEntry{"listener.name.secured.ssl.keystore.location": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &path}}
	if err := s.admin.IncrementalAlterConfig(sarama.BrokerResource, "1", change, false); err != nil {
		s.t.Fatal(err)
	}
	eventually(s.t, "the broker serves with the new certificate", func() bool {
		conn, err := tls.Dial("tcp", s.kafka.Secured, &tls.Config{RootCAs: next.Pool(), MinVersion: tls.VersionTLS12})
		if err != nil {
			return false
		}
		return conn.Close() == nil
	})
	s.file("kafka-ca.pem", string(next.PEM()))
}

func (s *secured) rotateRedisCertificate() {
	next := testca.New(s.t)
	s.file("redis-ca.pem", string(s.theirs[1].PEM())+string(next.PEM()))
	cert, key := s.pair(next, "redis-2")
	s.redisSays("CONFIG", "SET", "tls-cert-file", cert, "tls-key-file", key)
	s.file("redis-ca.pem", string(next.PEM()))
}

// Who is logged in stays so by the old key, which is the second line.
func (s *secured) rotateSessionKey() {
	s.file("session", strings.Repeat("2", 64)+"\n"+strings.Repeat("1", 64)+"\n")
}

// The receiver is taught the new secret while messages have signatures with both.
func (s *secured) rotateHook() {
	s.file("hook", "hook-secret-number-2")
	signed := func(secret, header, body string) bool {
		at, _, _ := strings.Cut(strings.TrimPrefix(header, "t="), ",")
		sum := hmac.New(sha256.New, []byte(secret))
		sum.Write([]byte(at + "." + body))
		return strings.Contains(header, "v1="+hex.EncodeToString(sum.Sum(nil)))
	}
	for len(s.told) > 0 {
		<-s.told
	}
	if header, body := s.command("signed"); !signed("hook-secret-number-2", header, body) {
		s.t.Errorf("the signature %s is not by the new secret", header)
	}
}
