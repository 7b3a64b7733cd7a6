package console

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	counting "github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/rules"
)

// keyRules are those of the tests about keys.
const keyRules = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  defaults: {key: uid, window: sliding}
  rules:
    - {name: search-combined, public: searches, match: {api: [search.query, search.suggest]}, limit: 5, per: 1h, then: {block: 30m}}
    - {name: daily, match: {api: "*"}, limit: 8, per: day, window: calendar, mode: shadow, then: {block: until-reset}}
    - {name: campaign, key: [uid, attrs.campaign], match: {api: ad.select}, limit: 3, per: 1h, then: {block: 10m}}
`

// keyRig is a console with all that it reads, in this process.
type keyRig struct {
	t      testing.TB
	kafka  []string
	redis  *redis.Client
	keys   *Keys
	base   string // the console's address
	log    testrun.Output
	api    *recorder
	stopDB func()

	mu   sync.Mutex
	urls []string // of all requests to the console
}

// recorder is between console and aggregator, and keeps what is asked.
type recorder struct {
	*httptest.Server
	mu    sync.Mutex
	posts []string // path, token and body
	down  bool     // it answers nothing
}

func (c *recorder) seen(parts ...string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, post := range c.posts {
		all := true
		for _, part := range parts {
			all = all && strings.Contains(post, part)
		}
		if all {
			return true
		}
	}
	return false
}

func record(t testing.TB, to string) *recorder {
	t.Helper()
	target, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target)
	c := &recorder{}
	c.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.mu.Lock()
		if r.Method == http.MethodPost {
			c.posts = append(c.posts, r.URL.Path+" "+r.Header.Get("Authorization")+" "+string(body))
		}
		down := c.down
		c.mu.Unlock()
		if down {
			http.Error(w, "down", http.StatusBadGateway)
			return
		}
		r.Host = target.Host
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(c.Close)
	return c
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// startKeyRig starts an embedded stack, an aggregator with roles, an enforcer and a console.
func startKeyRig(t testing.TB) *keyRig {
	t.Helper()
	db, err := devstack.Start(context.Background(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	return startKeyRigOn(t, db.Kafka, db.Redis, db.Close)
}

func startKeyRigOn(t testing.TB, brokers []string, redisAt string, stop func()) *keyRig {
	t.Helper()
	r := &keyRig{t: t, kafka: brokers, redis: redis.NewClient(&redis.Options{Addr: redisAt}), stopDB: stop}
	t.Cleanup(func() { _ = r.redis.Close() })
	k := &kafkaconn.Kafka{Brokers: brokers}
	set, err := rules.Compile("shop.yaml", []byte(keyRules))
	if err != nil {
		t.Fatal(err)
	}
	file := aggregate.RuleFile{Name: "shop.yaml", Source: []byte(keyRules), Modified: time.Now()}
	quiet := slog.New(slog.DiscardHandler)
	api := listen(t)
	counts := counting.Program{
		Config:        aggregate.Config{Prefix: "tallygate", Rules: set, RuleFile: file, Partitions: 2, Advertise: api.Addr().String()},
		RulesInMemory: true, Kafka: k, Redis: r.redis, HTTP: api, Registry: ops.NewRegistry("aggregator"), Log: quiet, Access: access.Config{Tokens: tokensFile(t)},
	}
	checks := listen(t)
	deciding := enforcer.Program{Config: decision.Config{MaxWait: enforcer.DefaultMaxWait}, Redis: r.redis, Prefix: "tallygate", HTTP: checks, Registry: ops.NewRegistry("enforcer"), Log: quiet,
		Presence: enforcer.Presence{Name: "edge-1", URL: "http://" + checks.Addr().String()}}
	t.Cleanup(testrun.Start(t, counts.Run))
	t.Cleanup(testrun.Start(t, deciding.Run))
	r.api = record(t, "http://"+api.Addr().String())
	r.startConsole(k)
	testrun.Eventually(t, "the aggregator is ready", func() bool {
		resp, err := http.Get("http://" + api.Addr().String() + "/readyz")
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	return r
}

func (r *keyRig) startConsole(k *kafkaconn.Kafka) {
	log := r.log.Logger()
	var err error
	if r.keys, err = NewKeys(KeysConfig{Kafka: k, Redis: r.redis, Secrets: [][]byte{[]byte("a secret of the tests")}, Ticket: "[A-Z]+-[0-9]+", Logger: log}); err != nil {
		r.t.Fatal(err)
	}
	api := apiclient.New(r.api.URL, nil).WithToken("token-viewer")
	inner := listen(r.t)
	p := Program{API: api, Health: watch.New(watch.Config{Kafka: k, Redis: r.redis, API: api}), Keys: r.keys, HTTP: inner, Registry: ops.NewRegistry("console"), Log: log}
	r.t.Cleanup(testrun.Start(r.t, p.Run))
	target, err := url.Parse("http://" + inner.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(target) // it sees every address that a browser asks for
	proxy.FlushInterval = -1
	proxy.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.mu.Lock()
		r.urls = append(r.urls, req.URL.RequestURI()+" "+req.Referer())
		r.mu.Unlock()
		proxy.ServeHTTP(w, req)
	}))
	r.t.Cleanup(front.Close)
	r.base = front.URL
}

// tokensFile gives each role a token.
func tokensFile(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, role := range []string{"viewer", "operator", "admin"} {
		fmt.Fprintf(&b, "- {name: ann-%s, role: %[1]s, sha256: %x}\n", role, sha256.Sum256([]byte("token-"+role)))
	}
	name := filepath.Join(t.TempDir(), "tokens.yaml")
	if err := os.WriteFile(name, []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// emits sends so many events of a user to an API.
func (r *keyRig) emits(n int, e event.Event) {
	r.t.Helper()
	out, err := emit.New(emit.Config{Brokers: r.kafka})
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = out.Close(context.Background()) }()
	for range n {
		if err := out.EmitWait(context.Background(), e); err != nil {
			r.t.Fatal(err)
		}
	}
	if err := out.Flush(context.Background()); err != nil {
		r.t.Fatal(err)
	}
}

// reader is somebody with a role, who keeps cookies as a browser does.
type reader struct {
	*keyRig
	client *http.Client
}

func (r *keyRig) as(role string) *reader {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	u := &reader{r, &http.Client{Jar: jar}}
	if a := u.post("/login", "token", "token-"+role); a.status != http.StatusOK {
		r.t.Fatalf("%d %s", a.status, mainOf(a.text))
	}
	return u
}

// answer is a page as a reader gets it.
type answer struct {
	status int
	path   string
	text   string
	header http.Header
}

func (u *reader) do(req *http.Request) answer {
	u.t.Helper()
	resp, err := u.client.Do(req)
	if err != nil {
		u.t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		u.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Request.URL.RequestURI(), string(body), resp.Header}
}

func (u *reader) get(path string) answer {
	u.t.Helper()
	req, err := http.NewRequest(http.MethodGet, u.base+path, nil)
	if err != nil {
		u.t.Fatal(err)
	}
	return u.do(req)
}

// post sends a form as a browser does from a page of the console.
func (u *reader) post(path string, fields ...string) answer {
	u.t.Helper()
	form := url.Values{}
	for i := 0; i < len(fields); i += 2 {
		form.Set(fields[i], fields[i+1])
	}
	req, err := http.NewRequest(http.MethodPost, u.base+path, strings.NewReader(form.Encode()))
	if err != nil {
		u.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Sec-Fetch-Site", "same-origin")
	return u.do(req)
}

// shows fails unless a page has these parts, and none of those that begin with "!".
func (a answer) shows(t testing.TB, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if want, not := strings.CutPrefix(part, "!"); not == strings.Contains(a.text, want) {
			t.Errorf("%s (%d): %q is there: %v\n%s", a.path, a.status, want, not, mainOf(a.text))
		}
	}
}

// mainOf returns a page's text, without its tags.
func mainOf(text string) string {
	if _, main, ok := strings.Cut(text, "<main"); ok {
		text = main
	}
	return strings.Join(strings.Fields(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(text, " ")), " ")
}
