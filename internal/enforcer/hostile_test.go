package enforcer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"os/exec"
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
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/servers"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// asProgram makes this test binary the enforcer itself: with it in the environment, TestMain runs Command.
const asProgram = "TALLYGATE_TEST_AS_ENFORCER"

// maxMemory bounds what the attacks may make an enforcer take, in bytes.
const maxMemory = 512 << 20

// target is a listener under attack.
type target struct {
	addr string
	tls  bool
	grpc bool
}

// Whatever is sent to any listener, the program lives, its memory stays bounded, a client that behaves gets its
// answers, and in the end it stops as it should. TALLYGATE_TEST_HOSTILE is for how long (3 s).
func TestHostileClients(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("TALLYGATE_TEST_HOSTILE"), "3s"))
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := strconv.ParseUint(os.Getenv("TALLYGATE_TEST_SEED"), 10, 64)
	seed = cmp.Or(seed, rand.Uint64())
	t.Logf("TALLYGATE_TEST_SEED=%d", seed)
	rds := miniredis.RunT(t)
	client := redis.NewClient(&redis.Options{Addr: rds.Addr()})
	defer func() { _ = client.Close() }()
	now := event.FromTime(time.Now())
	servers.Blocklist(t, client, "tallygate", verdict.Verdict{Rule: "r", Key: []event.Dim{{Name: "uid", Value: "42"}},
		Action: verdict.ActBlock, APIs: []string{"*"}, Limit: event.One, Since: now, Until: now + event.Hour})
	cert, key := selfSigned(t)
	plain := startSelf(t, rds.Addr())
	secure := startSelf(t, rds.Addr(), "--tls-cert", cert, "--tls-key", key)

	ctx, stop := context.WithTimeout(t.Context(), length)
	defer stop()
	var wg sync.WaitGroup
	var attacks atomic.Int64
	for i := range uint64(24) {
		wg.Go(func() {
			for r := rand.New(rand.NewPCG(seed, i)); ctx.Err() == nil; attacks.Add(1) {
				p := []*self{plain, secure}[r.IntN(2)]
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
		for _, p := range []*self{plain, secure} {
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
	for _, p := range []*self{plain, secure} {
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

func startSelf(t *testing.T, redisAddr string, args ...string) *self {
	t.Helper()
	s := &self{t: t, http: free(t), grpc: free(t), metrics: free(t), tls: len(args) > 0, said: &bytes.Buffer{}}
	args = append(args, "--redis", redisAddr, "--listen", s.http, "--grpc-listen", s.grpc, "--metrics-listen", s.metrics,
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
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // it is a test's own server
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

func (s *self) url(path string) string {
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

// connect opens a connection that ends within a second or two, whatever happens on it.
func connect(ctx context.Context, r *rand.Rand, at target) net.Conn {
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at.addr)
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(time.Second + time.Duration(r.IntN(1000))*time.Millisecond))
	if at.tls && r.IntN(8) > 0 { // now and then, what comes is no TLS
		protocols := []string{"h2"}
		if !at.grpc {
			protocols = nil
		}
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}) //nolint:gosec // it is a test's own server
	}
	return c
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// attackHTTP1 sends one hostile request, or half of one.
func attackHTTP1(ctx context.Context, r *rand.Rand, at target) {
	c := connect(ctx, r, at)
	if c == nil {
		return
	}
	defer func() { _ = c.Close() }()
	path := []string{"/v1/check", "/v1/check/batch", "/v1/forward-auth", "/v1/ext-authz//../%2e%2e/%00", "/v1/blocklist?limit=1000&cursor=%ff", "/metrics", "/" + strings.Repeat("a/", r.IntN(30_000))}[r.IntN(7)]
	post := "POST " + path + " HTTP/1.1\r\nHost: x\r\n"
	big := strings.Repeat("x", 2<<20)
	var sent string
	switch r.IntN(12) {
	case 0: // too large
		sent = post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(big)) + big
	case 1: // too large, without saying so
		sent = post + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + big + "\r\n0\r\n\r\n"
	case 2: // one huge header
		sent = post + "X-Tallygate-Uid: " + big + "\r\n\r\n"
	case 3: // very many headers
		sent = post + strings.Repeat("X-Tallygate-Attr-A: b\r\n", 50_000) + "\r\n"
	case 4: // lengths that lie
		sent = post + []string{"Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5\r\nContent-Length: 6",
			"Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked"}[r.IntN(5)] + "\r\n\r\n{}"
	case 5: // chunks that are none
		sent = post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + string(noise(r, 1000))
	case 6: // deep JSON
		body := `{"checks":` + strings.Repeat([]string{"[", `{"a":`, `[{"attrs":`}[r.IntN(3)], 100_000)
		sent = post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	case 7: // long lists, and noise as JSON
		body := `{"checks": [` + strings.Repeat(`{"api": "a", "attrs": {"x": 1e400}},`, 20_000) + `{}]}`
		if r.IntN(2) == 0 {
			body = `{"api": "` + string(noise(r, 100_000)) + `"}`
		}
		sent = post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	case 8: // noise
		sent = string(noise(r, 1+r.IntN(100_000)))
	case 9: // many requests, whose answers nobody reads
		sent = strings.Repeat("GET "+path[:min(len(path), 200)]+" HTTP/1.1\r\nHost: x\r\n\r\n", 500)
		_, _ = io.WriteString(c, sent)
		<-time.After(time.Duration(r.IntN(1000)) * time.Millisecond)
		return
	case 10: // slowly
		for _, b := range []byte(post) {
			if _, err := c.Write([]byte{b}); err != nil || ctx.Err() != nil {
				return
			}
			<-time.After(20 * time.Millisecond)
		}
		return
	case 11: // half of a request
		sent = (post + "Content-Length: 100\r\n\r\n{")[:20+r.IntN(20)]
	}
	_, _ = io.WriteString(c, sent)
	if r.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, io.LimitReader(bufio.NewReader(c), 1<<20))
	}
}

// attackHTTP2 speaks HTTP/2, or nearly.
func attackHTTP2(ctx context.Context, r *rand.Rand, at target) {
	c := connect(ctx, r, at)
	if c == nil {
		return
	}
	defer func() { _ = c.Close() }()
	if r.IntN(8) == 0 {
		_, _ = c.Write(noise(r, 1+r.IntN(10_000)))
		return
	}
	if r.IntN(2) == 0 {
		go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
	}
	out := bufio.NewWriter(c)
	_, _ = out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(out, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	block := headerBlock(at.grpc, "x-a", "b")
	attack := r.IntN(10)
	for id := uint32(1); id < 2000 && ctx.Err() == nil; id += 2 {
		begin := func(end bool) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end})
		}
		var err error
		switch attack {
		case 0: // rapid reset
			begin(false)
			err = f.WriteRSTStream(id, http2.ErrCodeCancel)
		case 1: // headers that never end
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block})
			for range 1000 {
				err = f.WriteContinuation(1, false, noise(r, 1000))
			}
		case 2: // calls that say that much will come, and never send it
			begin(false)
			err = f.WriteData(id, false, []byte{0, 0, 1, 255, 255, 1, 2, 3})
		case 3: // a message with a huge length
			begin(false)
			err = f.WriteData(id, true, []byte{0, 255, 255, 255, 255, 1})
		case 4: // no protobuf
			message := noise(r, r.IntN(1000))
			begin(false)
			err = f.WriteData(id, true, append([]byte{byte(r.IntN(3)), 0, 0, byte(len(message) >> 8), byte(len(message))}, message...))
		case 5: // pings and settings
			_ = f.WritePing(false, [8]byte{1})
			err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: r.Uint32()}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: r.Uint32()})
		case 6: // windows that overflow
			begin(false)
			err = f.WriteWindowUpdate(id*(r.Uint32()%2), 1<<31-1)
		case 7: // a large header again and again, in few bytes
			block = headerBlock(at.grpc, "x-bomb", strings.Repeat("x", 4000))
			block = append(block, bytes.Repeat([]byte{0xbe}, 15_000)...)
			begin(true)
			err = out.Flush()
		case 8: // frames that are none
			err = f.WriteRawFrame(http2.FrameType(r.Uint32()), http2.Flags(r.Uint32()), id*(r.Uint32()%2), noise(r, r.IntN(2000)))
		case 9: // data without a call, and more than the window
			begin(false)
			for range 20 {
				err = f.WriteData(id, false, make([]byte, 16<<10))
			}
		}
		if err != nil {
			return
		}
	}
	_ = out.Flush()
	if r.IntN(2) == 0 {
		<-time.After(time.Duration(r.IntN(500)) * time.Millisecond) // keep it open
	}
}

// headerBlock is what begins a request, with one more header.
func headerBlock(grpc bool, name, value string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	path := "/v1/forward-auth"
	if grpc {
		path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	}
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {name, value}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return b.Bytes()
}
