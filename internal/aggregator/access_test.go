package aggregator

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/apitest"
	"github.com/tallygate/tallygate/internal/devstack"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/internal/testca"
	"github.com/tallygate/tallygate/internal/testrun"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

// program is an aggregator as its command line starts it.
type program struct {
	*Program
	t      *testing.T
	said   *testrun.Output
	client *http.Client
	url    string
	stop   context.CancelFunc
}

// began starts one on any port; with client it speaks TLS, and is asked so.
func began(t *testing.T, brokers []string, prefix string, client *tls.Config, args ...string) *program {
	t.Helper()
	p := &program{t: t, said: &testrun.Output{}}
	args = append([]string{"--kafka", strings.Join(brokers, ","), "--prefix", prefix, "--partitions", "4", "--rules", rulesFile(t, someRules),
		"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "warn"}, args...)
	var err error
	if p.Program, err = parse(args, io.Discard, p.said, testrun.NoEnv); err != nil {
		t.Fatal(err)
	}
	scheme := "http://"
	if client != nil {
		scheme = "https://"
	}
	_, port, err := net.SplitHostPort(p.HTTP.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	p.url = scheme + "127.0.0.1:" + port
	transport := &http.Transport{TLSClientConfig: client, ExpectContinueTimeout: time.Minute}
	p.client = described(t, transport)
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		p.stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	testrun.Eventually(t, "the aggregator is ready, by its metrics listener", func() bool {
		resp, err := http.Get("http://" + p.Metrics.Addr().String() + "/readyz")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return p
}

// described is a client that fails the test if an answer is not as the OpenAPI document has it.
func described(t *testing.T, transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: apitest.Open(t, apidocs.Aggregator).Transport(t, transport), Timeout: time.Minute}
}

// ask sends a request, with a token unless it is "", and returns the answer.
func (p *program) ask(token, method, path, body string, change ...func(*http.Request)) (int, string) {
	p.t.Helper()
	req, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	for _, c := range change {
		c(req)
	}
	resp, err := p.client.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(answer)
}

func block(uid string) string {
	return fmt.Sprintf(`{"command":"block","for":"1h","key":{"uid":%q},"reason":"a test","by":"alice"}`, uid)
}

// staff has a token for each role, called as the role is, and a certificate of the name.
func staff(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, role := range []string{"viewer", "operator", "admin"} {
		fmt.Fprintf(&b, "- {name: the-%s, role: %s, sha256: %x}\n- {name: cert-%s, role: %s, certificate: %s.example.com}\n", role, role, sha256.Sum256([]byte(role)), role, role, role)
	}
	return rulesFile(t, b.String())
}

// audited is the audit topic, as it is now.
func audited(t *testing.T, brokers []string, prefix string) string {
	t.Helper()
	log, err := kafkalog.OpenMerge(t.Context(), kafkalog.Config{Brokers: brokers}, prefix+".audit", time.Now().Add(-time.Hour), time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	schema, err := apitest.CompileClosed(apidocs.Audit)
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for {
		var rec *kafkalog.Record
		if _, rec, err = log.Next(t.Context()); err != nil {
			break
		}
		if wrong := schema.Validate(rec.Value); wrong != nil {
			t.Errorf("the audit has %s: %v", rec.Value, wrong)
		}
		all.Write(rec.Value)
		all.WriteByte('\n')
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return all.String()
}

// Without credentials the API is this machine's programs' alone: on no other address, and for no
// page in a browser.
func TestLoopbackWithoutCredentials(t *testing.T) {
	t.Parallel()
	rules := rulesFile(t, someRules)
	for _, listen := range []string{"0.0.0.0:0", ":0", "[::]:0"} {
		var out bytes.Buffer
		status := Command(testrun.Context(t), []string{"--rules", rules, "--kafka", "127.0.0.1:1", "--listen", listen, "--metrics-listen", "127.0.0.1:0"}, io.Discard, &out, testrun.NoEnv)
		if status != ops.ExitUsage || !strings.Contains(out.String(), "--tokens") || !strings.Contains(out.String(), "--open-api") {
			t.Errorf("--listen %s: %d %s", listen, status, &out)
		}
	}
	kafka, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	p := began(t, kafka.Kafka, "loopback", nil)
	header := func(name, value string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set(name, value) }
	}
	for about, c := range map[string]struct {
		change func(*http.Request)
		want   int
	}{
		"a program":      {func(*http.Request) {}, 200},
		"a page's form":  {header("Content-Type", "text/plain"), 415},
		"a page":         {header("Origin", "http://evil.example"), 403},
		"a rebound name": {func(r *http.Request) { r.Host = "evil.example:8081" }, 403},
		"a tunnel":       {func(r *http.Request) { r.Host = "localhost:9000" }, 200},
	} {
		if got, said := p.ask("", http.MethodPost, "/v1/commands", block("1"), c.change); got != c.want {
			t.Errorf("%s: %d %s, want %d", about, got, said, c.want)
		}
	}
	for _, path := range []string{"/v1/explain?uid=1", "/v1/hot-keys", "/v1/rules", "/v1/unmatched", "/v1/blocked?partition=0"} {
		if got, said := p.ask("", http.MethodGet, path, "", header("Sec-Fetch-Site", "cross-site")); got != 403 {
			t.Errorf("%s by a page: %d %s", path, got, said)
		}
	}
	for request, want := range map[string]int{"GET /v1/commands": 405, "POST /v1/explain": 405, "POST /v1/exemptions": 405, "GET /v1/nothing": 404, "GET /v1/exemptions": 200} {
		method, path, _ := strings.Cut(request, " ")
		got, said := p.ask("", method, path, "")
		if got != want || want >= 400 && !strings.Contains(said, `"detail":`) {
			t.Errorf("%s: %d %s, want %d", request, got, said, want)
		}
	}
	if got, said := p.ask("", http.MethodPost, "/-/reload", "", header("Origin", "null")); got != 403 {
		t.Errorf("a reload by a page: %d %s", got, said)
	}
	if got, said := p.ask("", http.MethodGet, "/healthz", "", func(r *http.Request) { r.Host = "10.0.0.1" }); got != 200 {
		t.Errorf("a probe: %d %s", got, said)
	}
	testrun.Eventually(t, "by is what the caller says", func() bool {
		return strings.Contains(audited(t, kafka.Kafka, "loopback"), `"by":"alice","command":"block"`)
	})
}

// Everybody may command where --open-api says so, and each start warns of it.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	kafka, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kafka.Close)
	p := began(t, kafka.Kafka, "open", nil, "--listen", "0.0.0.0:0", "--open-api")
	if got, said := p.ask("", http.MethodPost, "/v1/commands", block("1"), func(r *http.Request) { r.Host = "aggregator.example.com" }); got != 200 && got != 503 {
		t.Errorf("%d %s", got, said)
	}
	if said := p.said.String(); !strings.Contains(said, "--open-api") || !strings.Contains(said, `"WARN"`) {
		t.Errorf("no warning: %s", said)
	}
}

// Two instances with one file of tokens: each role may what it may at either of them, and what is
// passed on keeps who gave it. So it is with certificates, and without any token.
func TestRolesAcrossInstances(t *testing.T) {
	t.Parallel()
	ca := testca.New(t)
	shown := func(role string) *tls.Config { return ca.Client(role + ".example.com") }
	cert, key := ca.Files("aggregator")
	mutual := []string{"--tokens", staff(t), "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", ca.File()}
	t.Run("tokens", func(t *testing.T) {
		servers.EachKafka(t, func(t *testing.T, brokers []string) {
			rolesAcross(t, brokers, "the-", nil, func(role string) (*tls.Config, string) { return nil, role }, "--tokens", staff(t))
		})
	})
	t.Run("certificates", func(t *testing.T) {
		servers.EachKafka(t, func(t *testing.T, brokers []string) {
			rolesAcross(t, brokers, "cert-", shown("admin"), func(role string) (*tls.Config, string) { return shown(role), "" }, mutual...)
		})
	})

}

func rolesAcross(t *testing.T, brokers []string, prefix string, client *tls.Config, as func(role string) (*tls.Config, string), args ...string) {
	t.Helper()
	group := servers.Name(t)
	two := []*program{began(t, brokers, group, client, args...), began(t, brokers, group, client, args...)}
	try := func(p *program, role, method, path, body string) (int, string) {
		config, token := as(role)
		one := *p
		transport := &http.Transport{TLSClientConfig: config}
		defer transport.CloseIdleConnections()
		one.client = described(t, transport)
		return one.ask(token, method, path, body)
	}
	for i, p := range two {
		for _, c := range []struct{ least, method, path, body string }{
			{"viewer", http.MethodGet, "/v1/explain?uid=1", ""},
			{"viewer", http.MethodGet, "/v1/explain?uid=2", ""},
			{"viewer", http.MethodGet, "/v1/explain?uid=7", ""},
			{"viewer", http.MethodGet, "/v1/hot-keys", ""},
			{"viewer", http.MethodGet, "/v1/cluster", ""},
			{"viewer", http.MethodGet, "/v1/rules/distribution?rule=a", ""},
			{"viewer", http.MethodPost, "/v1/reads", `{"key":{"uid":"i"},"what":"explain"}`},
			{"viewer", http.MethodGet, "/v1/blocked?partition=0", ""},
			{"viewer", http.MethodGet, "/v1/blocked?partition=3", ""},
			{"admin", http.MethodGet, "/v1/blocked?partition=3&unblock=all", ""},
			{"operator", http.MethodPost, "/v1/commands", block(fmt.Sprint("a", i))},
			{"operator", http.MethodPost, "/v1/commands", block(fmt.Sprint("b", i))},
			{"operator", http.MethodPost, "/v1/commands", block(fmt.Sprint("c", i))},
			{"operator", http.MethodPost, "/v1/commands", `{"command":"unblock","key":{"uid":"d"},"reason":"a test"}`},
			{"operator", http.MethodPost, "/v1/commands", `{"command":"reset","key":{"uid":"e"},"reason":"a test"}`},
			{"operator", http.MethodPost, "/v1/commands", `{"command":"exempt","for":"1h","key":{"uid":"f"},"reason":"a test"}`},
			{"admin", http.MethodPost, "/v1/commands", `{"command":"forget","key":{"uid":"g"},"reason":"a test"}`},
			{"admin", http.MethodPost, "/v1/dead-letters", `{"value":"{\"api\":\"a\",\"uid\":\"h\"}"}`},
			{"admin", http.MethodPost, "/-/reload", ""},
		} {
			may := false
			for _, role := range []string{"viewer", "operator", "admin"} {
				may = may || role == c.least
				about := fmt.Sprintf("%s %s%s as %s", c.method, c.path, c.body, role)
				if !may {
					if got, said := try(p, role, c.method, c.path, c.body); got != http.StatusForbidden || !strings.Contains(said, "needs the role") {
						t.Errorf("%s: %d %s", about, got, said)
					}
					continue
				}
				testrun.Eventually(t, about, func() bool { // the group may be changing still
					got, _ := try(p, role, c.method, c.path, c.body)
					return got == http.StatusOK
				})
			}
		}
	}
	testrun.Eventually(t, "the audit has the credentials' names", func() bool {
		all := audited(t, brokers, group)
		for _, uid := range []string{"a", "b", "c"} {
			for i := range two {
				for _, role := range []string{"operator", "admin"} {
					if !strings.Contains(all, fmt.Sprintf(`"by":"%s%s","on_behalf_of":"alice","command":"block","key":"uid=%s%d"`, prefix, role, uid, i)) {
						return false
					}
				}
			}
		}
		return true
	})
	stranger := *two[0]
	transport := &http.Transport{}
	if client != nil {
		transport.TLSClientConfig = &tls.Config{RootCAs: client.RootCAs}
	}
	defer transport.CloseIdleConnections()
	stranger.client = described(t, transport)
	want := http.StatusUnauthorized
	if client != nil {
		want = 0 // the handshake fails
	}
	if got, said := stranger.ask("", http.MethodGet, "/v1/explain?uid=1", ""); got != want {
		t.Errorf("without a credential: %d %s", got, said)
	}
}
