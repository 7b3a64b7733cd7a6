// Package proxies drives real proxies, with the configurations of this folder, against the decision
// server.
package proxies

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/verdict"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(status int) {
		_ = os.RemoveAll(builtIn)
		os.Exit(status)
	}))
}

// patience is for programs that start and stop.
const patience = time.Minute

// rig is an app and a decision server.
type rig struct {
	t        *testing.T
	app      *httptest.Server
	http     string // the decision server's addresses
	grpc     string
	stopOnce func()
	proxy    string // the proxy's address
	patient  bool   // the proxy waits for answers
}

// runsWith are the options of the enforcer that a proxy's file names.
func runsWith(t *testing.T, file string) (c decision.Config) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	_, options, ok := strings.Cut(string(text), "# The enforcer runs with\n#   ")
	if !ok {
		t.Fatalf("%s does not say what the enforcer runs with", file)
	}
	options, _, _ = strings.Cut(options, "\n")
	f := flag.NewFlagSet(file, flag.ContinueOnError)
	f.StringVar(&c.Headers.UID, "uid-header", "", "")
	f.StringVar(&c.Headers.IP, "ip-header", "", "")
	f.StringVar(&c.Headers.Method, "method-header", "", "")
	f.StringVar(&c.Headers.Path, "path-header", "", "")
	f.String("grpc-listen", "", "") // a rig always has one
	f.Func("usage-descriptors", "", func(text string) error {
		name, value, _ := strings.Cut(text, "=")
		c.Usage.Entries = map[string]string{name: value}
		return nil
	})
	f.BoolVar(&c.Usage.Quotas, "rlqs", false, "")
	f.BoolVar(&c.RequireDimensions, "require-dimensions", false, "")
	if err := f.Parse(strings.Fields(options)); err != nil || !c.RequireDimensions {
		t.Fatalf("%s: %v; are dimensions required? %v", file, err, c.RequireDimensions)
	}
	return c
}

// newRig is one whose blocklist denies user 42 GET /search, and one address everything.
func newRig(t *testing.T, c decision.Config) *rig {
	t.Helper()
	rds := redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()})
	now := event.FromTime(time.Now())
	block := func(dim, value, api string) verdict.Verdict {
		return verdict.Verdict{Rule: "search-scraper-detector", Public: "searches", Key: []event.Dim{{Name: dim, Value: value}}, Action: verdict.ActBlock, APIs: []string{api},
			Count: 101 * event.One, Limit: 100 * event.One, Since: now, Until: now + 5*event.Minute}
	}
	servers.Blocklist(t, rds, "tallygate", block("uid", "42", "get.search"), block("uid", "7", "post.search"), block("ip", "127.0.0.9", "*"),
		block("uid", "-", "*")) // what some proxies write for a header that is absent: that must be nobody
	return decide(t, "/readyz", &enforcer.Program{Redis: rds, Config: c})
}

// newDoubtfulRig is one that never learns of a blocklist, and then closes GET /orders.
func newDoubtfulRig(t *testing.T, c decision.Config) *rig {
	t.Helper()
	return decide(t, "/healthz", &enforcer.Program{
		Config:  c,
		Redis:   redis.NewClient(&redis.Options{Addr: miniredis.RunT(t).Addr()}),
		OnStale: enforcer.OnStale{Rules: map[string]enforce.RuleOnStale{"orders": {Do: enforce.Closed, APIs: []string{"get.orders"}}}},
	})
}

// decide starts an app and the decision server, and waits until the server is up by this page.
func decide(t *testing.T, up string, e *enforcer.Program) *rig {
	t.Helper()
	r := &rig{t: t, proxy: servers.FreeAddr(t)}
	r.app = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/forbidden" {
			http.Error(w, "the app says no", http.StatusForbidden)
			return
		}
		fmt.Fprintf(w, "the app got %s %s and %q", r.Method, r.URL.Path, body)
	}))
	t.Cleanup(r.app.Close)

	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	log, err := ops.NewLogger(t.Output(), "error", "text")
	if err != nil {
		t.Fatal(err)
	}
	e.Config.MaxStaleness, e.Prefix = time.Hour, "tallygate"
	e.HTTP, e.GRPC, e.Registry, e.Log = listen(), listen(), ops.NewRegistry("test"), log
	r.http, r.grpc = e.HTTP.Addr().String(), e.GRPC.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	r.stopOnce = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the decision server ends with %v", err)
		}
		_ = e.Redis.Close()
	})
	t.Cleanup(r.stopOnce)
	r.eventually("the decision server is ready", func() bool {
		resp, err := http.Get("http://" + r.http + up)
		if err != nil {
			return false
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	http.DefaultClient.CloseIdleConnections()
	return r
}

// program finds a proxy, or skips the test (fails it where all tests are required).
func program(t *testing.T, name string) string {
	t.Helper()
	servers.Nightly(t, "proxies")
	path, err := exec.LookPath(name)
	if err != nil {
		path, err = exec.LookPath("/usr/sbin/" + name)
	}
	if err != nil {
		if os.Getenv("TALLYGATE_TEST_REQUIRE") == "1" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	return path
}

// config writes a file of this folder into dir, with the rig's addresses for the usual ones, and
// with changes (pairs of old and new, each of which must be there).
func (r *rig) config(dir, name string, changes ...string) string {
	r.t.Helper()
	src, err := os.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	text := string(src)
	for i := 0; i < len(changes); i += 2 {
		if !strings.Contains(text, changes[i]) {
			r.t.Fatalf("%s has no %q", name, changes[i])
		}
		text = strings.ReplaceAll(text, changes[i], changes[i+1])
	}
	all := here(map[string]string{"8008": r.proxy, "8000": r.app.Listener.Addr().String(), "8080": r.http, "8082": r.grpc})
	all = append(all, "/var/log/nginx/", dir+"/", "/var/log/tallygate/", dir+"/")
	if r.patient {
		all = append(all, "250ms", "20s", "0.25s", "20s", "timeout = 250", "timeout = 20000")
	}
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(strings.NewReplacer(all...).Replace(text)), 0o600); err != nil {
		r.t.Fatal(err)
	}
	return path
}

// here replaces the usual ports by addresses: pairs for a Replacer.
func here(addrs map[string]string) (pairs []string) {
	for usual, addr := range addrs {
		_, port, _ := net.SplitHostPort(addr)
		pairs = append(pairs, "127.0.0.1:"+usual, addr, "localhost:"+usual, addr, "port_value: "+usual+"}", "port_value: "+port+"}")
	}
	return pairs
}

// start starts a proxy that runs in the foreground, and returns when it listens. It ends with the
// test.
func (r *rig) start(dir, program string, args ...string) {
	r.t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CONFIG_HOME="+dir, "XDG_DATA_HOME="+dir) // Caddy writes there
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	r.t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // and whatever it has started
		<-exited
		if r.t.Failed() {
			r.t.Logf("%s said:\n%s", filepath.Base(program), &said)
		}
	})
	r.eventually(filepath.Base(program)+" listens", func() bool {
		select {
		case <-exited:
			r.t.Fatalf("it has ended: %v", cmd.ProcessState)
		default:
		}
		c, err := net.Dial("tcp", r.proxy)
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	})
}

// answer is what a client of the proxy gets.
type answer struct {
	status int
	header http.Header
	body   string
}

// ask sends a request through the proxy; headers are NAME: value.
func (r *rig) ask(method, path string, headers ...string) answer {
	r.t.Helper()
	return r.askFrom("", method, path, headers...)
}

// askFrom is ask from a local address.
func (r *rig) askFrom(local, method, path string, headers ...string) answer {
	r.t.Helper()
	var body io.Reader
	if method == http.MethodPost {
		body = strings.NewReader("what was posted")
	}
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.proxy+path, body)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
	}
	dialer := &net.Dialer{}
	if local != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(local)}
	}
	transport := &http.Transport{DialContext: dialer.DialContext}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return answer{resp.StatusCode, resp.Header, string(content)}
}

func (r *rig) eventually(what string, ok func() bool) {
	r.t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			r.t.Fatalf("never: %s", what)
		}
	}
}
