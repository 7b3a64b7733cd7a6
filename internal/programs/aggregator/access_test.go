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

	"golang.org/x/sync/errgroup"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask/asktest"
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

// parsed is one on any port; with client it speaks TLS, and is asked so.
func parsed(t *testing.T, client *tls.Config, args ...string) *program {
	t.Helper()
	p := &program{t: t, said: &testrun.Output{}}
	args = append([]string{"--partitions", "4", "--rules", rulesFile(t, someRules),
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
	return p
}

// run runs the program, or a part of it, until the test or stop ends it.
func (p *program) run(run func(context.Context) error) {
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.WithoutCancel(p.t.Context()))
	done := make(chan error, 1)
	go func() { done <- run(ctx) }()
	p.t.Cleanup(func() {
		p.client.CloseIdleConnections()
		p.stop()
		if err := <-done; err != nil {
			p.t.Error(err)
		}
	})
}

// began starts one.
func began(t *testing.T, brokers []string, prefix string, client *tls.Config, args ...string) *program {
	t.Helper()
	p := parsed(t, client, append([]string{"--kafka", strings.Join(brokers, ","), "--prefix", prefix}, args...)...)
	p.run(p.Run)
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

// groupOf is a group without Kafka.
func groupOf(t *testing.T, text string) *asktest.Group {
	t.Helper()
	set, err := CompileRules("rules.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return asktest.New(t, set)
}

// joined starts the HTTP listeners of one that is a member of a group without Kafka; of none, it has not connected yet.
func joined(t *testing.T, group *asktest.Group, client *tls.Config, args ...string) *program {
	t.Helper()
	p := parsed(t, client, args...)
	p.configure()
	agg, err := aggregate.New(p.Config)
	if err != nil {
		t.Fatal(err)
	}
	answers, inGroup := agg.Answers, agg.Ready
	if group != nil {
		answers, inGroup = group.Join(ask.Config{Advertise: p.Config.Advertise, PeerTLS: p.Config.PeerTLS}, p.Config.AdvertiseTLS).Answers, func() error { return nil }
	}
	p.run(func(ctx context.Context) error {
		g, ctx := errgroup.WithContext(ctx)
		again := &reloader{Program: p.Program, agg: agg, file: newFileState(nil, nil)}
		if err := p.serveHTTP(ctx, g, again, answers, inGroup); err != nil {
			return err
		}
		return g.Wait()
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
	var all strings.Builder
	for {
		var rec *kafkalog.Record
		if _, rec, err = log.Next(t.Context()); err != nil {
			break
		}
		all.Write(rec.Value)
		all.WriteByte('\n')
	}
	if !errors.Is(err, io.EOF) {
		t.Fatal(err)
	}
	return asDescribed(t, all.String())
}

// auditOf is the audit of a group without Kafka.
func auditOf(t *testing.T, group *asktest.Group) string { return asDescribed(t, group.Audit()) }

// asDescribed holds lines of the audit against their schema.
func asDescribed(t *testing.T, lines string) string {
	t.Helper()
	schema, err := apitest.CompileClosed(apidocs.Audit)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(lines) {
		if wrong := schema.Validate([]byte(line)); wrong != nil {
			t.Errorf("the audit has %s: %v", line, wrong)
		}
	}
	return lines
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
	group := groupOf(t, someRules)
	p := joined(t, group, nil)
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
	if all := auditOf(t, group); !strings.Contains(all, `"by":"alice","command":"block"`) {
		t.Errorf("by is not what the caller says: %s", all)
	}
}

// Everybody may command where --open-api says so, and each start warns of it.
func TestOpenAPI(t *testing.T) {
	t.Parallel()
	p := joined(t, groupOf(t, someRules), nil, "--listen", "0.0.0.0:0", "--open-api")
	if got, said := p.ask("", http.MethodPost, "/v1/commands", block("1"), func(r *http.Request) { r.Host = "aggregator.example.com" }); got != 200 {
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
		rolesAcross(t, "the-", nil, func(role string) (*tls.Config, string) { return nil, role }, "--tokens", staff(t))
	})
	t.Run("certificates", func(t *testing.T) {
		rolesAcross(t, "cert-", shown("admin"), func(role string) (*tls.Config, string) { return shown(role), "" }, mutual...)
	})
}

func rolesAcross(t *testing.T, prefix string, client *tls.Config, as func(role string) (*tls.Config, string), args ...string) {
	t.Helper()
	group := groupOf(t, someRules)
	two := []*program{joined(t, group, client, args...), joined(t, group, client, args...)}
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
				want := http.StatusOK
				if c.path == "/-/reload" || c.path == "/v1/dead-letters" { // they need Kafka
					want = http.StatusServiceUnavailable
				}
				if got, said := try(p, role, c.method, c.path, c.body); got != want {
					t.Errorf("%s: %d %s", about, got, said)
				}
			}
		}
	}
	all := auditOf(t, group)
	for _, uid := range []string{"a", "b", "c"} {
		for i := range two {
			for _, role := range []string{"operator", "admin"} {
				if want := fmt.Sprintf(`"by":"%s%s","on_behalf_of":"alice","command":"block","key":"uid=%s%d"`, prefix, role, uid, i); !strings.Contains(all, want) {
					t.Errorf("the audit lacks %s", want)
				}
			}
		}
	}
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
