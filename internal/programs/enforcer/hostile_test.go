package enforcer

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/verdict"
)

// asProgram makes this test binary the enforcer itself: with it in the environment, TestMain runs
// Command.
const asProgram = "TALLYGATE_TEST_AS_ENFORCER"

// maxMemory bounds what the attacks may make an enforcer take, in bytes.
const maxMemory = 512 << 20

// target is a listener under attack.
type target struct {
	addr string // with a slash in it, a Unix socket
	tls  bool
	grpc bool
}

// dial connects to an address of a target.
func dial(ctx context.Context, addr string) (net.Conn, error) {
	network := "tcp"
	if strings.Contains(addr, "/") {
		network = "unix"
	}
	return (&net.Dialer{Timeout: time.Second}).DialContext(ctx, network, addr)
}

// Whatever is sent to any listener, the program lives, its memory stays bounded, a client that
// behaves gets its answers, and in the end it stops as it should. TALLYGATE_TEST_HOSTILE is for how
// long (3 s).
func TestHostileClients(t *testing.T) {
	t.Parallel()
	length, err := time.ParseDuration(cmp.Or(os.Getenv("TALLYGATE_TEST_HOSTILE"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	seed := testrun.Seed(t)
	rds := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: rds.Addr()})
	defer func() { _ = client.Close() }()
	now := event.FromTime(time.Now())
	servers.Blocklist(t, client, "tallygate", verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: "uid", Value: "42"}},
		Action: verdict.ActBlock, APIs: []string{"*"}, Limit: event.One, Since: now, Until: now + event.Hour})
	cert, key := testca.New(t).Files("enforcer")
	plain := startSelf(t, rds.Addr(), false)
	secure := startSelf(t, rds.Addr(), false, "--tls-cert", cert, "--tls-key", key)
	local := startSelf(t, rds.Addr(), true)
	all := []*self{plain, secure, local}

	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var wg sync.WaitGroup
	var attacks atomic.Int64
	for i := range uint64(24) {
		wg.Go(func() {
			for r := rand.New(rand.NewPCG(seed, i)); ctx.Err() == nil; attacks.Add(1) {
				p := all[r.IntN(len(all))]
				at := []target{{p.http, p.tls, false}, {p.grpc, p.tls, true}, {p.metrics, false, false}}[r.IntN(3)]
				if at.grpc || r.IntN(4) == 0 {
					attackHTTP2(ctx, r, at)
				} else {
					attackHTTP1(ctx, r, at)
				}
			}
		})
	}
	var most float64
	checks := 0
	for ctx.Err() == nil {
		for _, p := range all {
			p.checks()
			checks++
			most = max(most, p.memory())
		}
	}
	wg.Wait()
	t.Logf("%d attacks, %d rounds of checks, at most %.0f MiB resident", attacks.Load(), checks, most/(1<<20))
	if most > maxMemory {
		t.Errorf("an enforcer takes %.0f MiB", most/(1<<20))
	}
	for _, p := range all {
		p.checks()
		p.stop()
	}
}

// self is an enforcer in a process of its own.
type self struct {
	t                   *testing.T
	cmd                 *exec.Cmd
	said                *bytes.Buffer
	http, grpc, metrics string
	tls                 bool
	client              *http.Client
}

// startSelf starts one that listens on ports or, but for its metrics, on Unix sockets.
func startSelf(t *testing.T, redisAddr string, sockets bool, args ...string) *self {
	t.Helper()
	s := &self{t: t, http: free(t), grpc: free(t), metrics: free(t), tls: len(args) > 0, said: &bytes.Buffer{}}
	prefix := ""
	if sockets {
		dir := t.TempDir()
		s.http, s.grpc, prefix = filepath.Join(dir, "h"), filepath.Join(dir, "g"), "unix:"
	}
	args = append(args, "--redis", redisAddr, "--listen", prefix+s.http, "--grpc-listen", prefix+s.grpc, "--metrics-listen", s.metrics,
		"--max-staleness", "1h", "--log-level", "error", "--max-connections", "500")
	s.cmd = exec.Command(os.Args[0], args...)
	s.cmd.Env = append(os.Environ(), asProgram+"=1")
	s.cmd.Stdout, s.cmd.Stderr = s.said, s.said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		if t.Failed() {
			said := s.said.String()
			t.Logf("the enforcer said:\n%s", said[:min(len(said), 8000)])
		}
	})
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, //nolint:gosec // it is a test's own server
		DialContext: func(ctx context.Context, _, addr string) (net.Conn, error) {
			if addr == socketHost+":80" {
				addr = s.http
			}
			return dial(ctx, addr)
		}}
	t.Cleanup(transport.CloseIdleConnections)
	s.client = &http.Client{Transport: transport, Timeout: time.Minute}
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if status, _ := s.get(s.url("/readyz")); status == http.StatusOK {
			return s
		}
		if time.Now().After(end) {
			t.Fatal("it is never ready")
		}
	}
}

// socketHost is in the place of a socket's path in URLs.
const socketHost = "socket.test"

func (s *self) url(path string) string {
	if strings.Contains(s.http, "/") {
		return "http://" + socketHost + path
	}
	if s.tls {
		return "https://" + s.http + path
	}
	return "http://" + s.http + path
}

func (s *self) get(url string) (status int, body string) {
	resp, err := s.client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	content, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(content)
}

// checks asks as a client that behaves.
func (s *self) checks() {
	s.t.Helper()
	for uid, allowed := range map[string]bool{"42": false, "43": true} {
		resp, err := s.client.Post(s.url("/v1/check"), "application/json", strings.NewReader(`{"api": "a", "uid": "`+uid+`"}`))
		if err != nil {
			s.t.Errorf("a client that behaves: %v", err)
			continue
		}
		var a struct{ Allowed bool }
		err = json.NewDecoder(resp.Body).Decode(&a)
		_ = resp.Body.Close()
		if err != nil || a.Allowed != allowed {
			s.t.Errorf("uid %s: %+v, %v", uid, a, err)
		}
	}
	if status, body := s.get(s.url("/metrics")); status != http.StatusNotFound {
		s.t.Errorf("metrics are public: %d %.80s", status, body)
	}
}

var resident = regexp.MustCompile(`(?m)^process_resident_memory_bytes (\S+)$`)

func (s *self) memory() float64 {
	s.t.Helper()
	_, body := s.get("http://" + s.metrics + "/metrics")
	m := resident.FindStringSubmatch(body)
	if m == nil {
		s.t.Errorf("no metrics: %.200s", body)
		return 0
	}
	bytes, _ := strconv.ParseFloat(m[1], 64)
	return bytes
}

// stop ends it as an operator does, and expects that it had nothing to complain about.
func (s *self) stop() {
	s.t.Helper()
	s.client.CloseIdleConnections()
	_ = s.cmd.Process.Signal(syscall.SIGTERM)
	if err := s.cmd.Wait(); err != nil {
		s.t.Errorf("it ends with %v", err)
	}
	if said := s.said.String(); strings.Contains(said, "panic") || strings.Contains(said, "DATA RACE") {
		s.t.Errorf("it said\n%s", said)
	}
}

func free(t *testing.T) string {
	t.Helper()
	l, err := ops.Listen("listen", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	return l.Addr().String()
}
