package enforcer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/enforce"
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		ctx, stop := ops.Stoppable(context.Background())
		status := Command(ctx, os.Args[1:], os.Stdout, os.Stderr, testrun.NoEnv)
		stop()
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}

// described is a client that fails the test if an answer is not as the OpenAPI document has it.
func described(t *testing.T, transport http.RoundTripper) *http.Client {
	return &http.Client{Transport: apitest.Open(t, apidocs.Enforcer).Transport(t, transport), Timeout: time.Minute}
}

// The public options are there by name, as flags and in the environment.
func TestPublicOptions(t *testing.T) {
	public := map[string]string{
		"kafka": "k:1", "redis": "r:1", "listen": "127.0.0.1:0", "grpc-listen": "127.0.0.1:0", "metrics-listen": "127.0.0.1:0", "prefix": "shop", "instance-id": "enf-1",
		"uid-header": "X-User", "rls-entries": "user_id=uid,remote_address=",
	}
	var flags []string
	env := map[string]string{}
	for name, value := range public {
		flags = append(flags, "--"+name, value)
		env[ops.EnvName(name)] = value
	}
	nothing := testrun.NoEnv
	var log bytes.Buffer
	for about, try := range map[string]struct {
		args   []string
		getenv func(string) string
	}{
		"flags":       {flags, nothing},
		"environment": {nil, testrun.Env(env)},
	} {
		log.Reset()
		e, err := parse(try.args, io.Discard, &log, try.getenv)
		if err != nil {
			t.Fatalf("%s: %v", about, err)
		}
		_, _, _ = e.HTTP.Close(), e.GRPC.Close(), e.Metrics.Close()
		if r := e.Redis.(*redis.Client).Options(); r.Addr != "r:1" || e.Prefix != "shop" || e.Config.Headers.UID != "X-User" || e.Config.Entries["user_id"] != "uid" {
			t.Errorf("%s: %+v, %+v", about, e, r)
		}
		if e.Log.Info("here"); !strings.Contains(log.String(), `"instance":"enf-1"`) {
			t.Errorf("%s: the log is %s", about, &log)
		}
		_ = e.Redis.Close()
	}
}

// The program answers on one port, tells its metrics on another, and ends with 0 when it is told
// to.
func TestProgram(t *testing.T) {
	server := miniredis.RunT(t)
	e, err := parse([]string{"--redis", server.Addr(), "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "error"},
		io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()

	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 10 * time.Second}
	ask := func(addr, path string) (int, string) {
		t.Helper()
		resp, err := client.Get("http://" + addr + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(body)
	}
	public, private := e.HTTP.Addr().String(), e.Metrics.Addr().String()
	if status, body := ask(public, "/readyz"); status != 503 || !strings.Contains(body, "not been read yet") {
		t.Errorf("before the first snapshot: %d %s", status, body)
	}
	if status, _ := ask(public, "/healthz"); status != 200 {
		t.Errorf("healthz: %d", status)
	}
	if status, _ := ask(public, "/v1/forward-auth"); status != 204 {
		t.Errorf("forward-auth: %d", status)
	}
	if status, _ := ask(public, "/metrics"); status != 404 {
		t.Errorf("the metrics are public: %d", status)
	}
	_, metrics := ask(private, "/metrics")
	for _, name := range []string{"tallygate_checks_total", "tallygate_blocklist_entries", "tallygate_blocklist_staleness_seconds", "tallygate_feed_errors_total", "tallygate_build_info"} {
		if !strings.Contains(metrics, "\n"+name) {
			t.Errorf("there is no %s", name)
		}
	}
	stop()
	if err := <-ended; err != nil {
		t.Errorf("it ends with %v", err)
	}
	if err := e.Redis.Close(); err != nil {
		t.Error(err)
	}
}

// An enforcer that starts while Redis is away denies what the one before it knew.
func TestSnapshotOption(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "blocklist")
	server := miniredis.RunT(t)
	addr := server.Addr()
	publish(t, addr)
	run := func(addr string, denied func(public string) bool) {
		e, err := parse([]string{"--redis", addr, "--snapshot", file, "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--log-level", "error"},
			io.Discard, io.Discard, testrun.NoEnv)
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- e.Run(ctx) }()
		for end := time.Now().Add(time.Minute); !denied(e.HTTP.Addr().String()); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("42 is not denied after a minute")
			}
		}
		stop()
		if err := errors.Join(<-ended, e.Redis.Close()); err != nil {
			t.Error(err)
		}
	}
	client := described(t, &http.Transport{DisableKeepAlives: true})
	status := func(public, path string) int {
		req, err := http.NewRequest(http.MethodGet, "http://"+public+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Tallygate-Uid", "42")
		req.Header.Set("X-Tallygate-Api", "any")
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		return resp.StatusCode
	}
	run(addr, func(public string) bool {
		return status(public, "/v1/forward-auth") == 429 && status(public, "/readyz") == 200
	})
	server.Close()
	run(addr, func(public string) bool {
		return status(public, "/v1/forward-auth") == 429 && status(public, "/readyz") == 503
	})
}

// publish writes a block of 42 by the layout that the reference documents.
func publish(t *testing.T, addr string) {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	now := time.Now().UTC()
	v := fmt.Sprintf(`{"rule":"r","key":{"uid":"42"},"state":"block","mode":"enforce","action":"block","apis":["*"],"count":2,"limit":1,"since":%q,"until":%q,"seq":1}`,
		now.Add(-time.Second).Format(time.RFC3339), now.Add(time.Hour).Format(time.RFC3339))
	hash, stream := "{tallygate:0}:verdicts", "{tallygate:0}:changes"
	if err := errors.Join(
		client.XAdd(t.Context(), &redis.XAddArgs{Stream: stream, ID: "1-1", Values: []any{"s", "a", "p", "", "h", "1"}}).Err(),
		client.HSet(t.Context(), hash, "uid=42|r", v, "\x00epoch", "1", "\x00n", "1", "\x00stamp", "a", "\x00applied", now.UnixMicro()).Err(),
		client.HSet(t.Context(), "{tallygate:rules}:strict", "latest", 1, "kept", "1", "partitions", 1, "shards", 1, "1", "").Err(),
	); err != nil {
		t.Fatal(err)
	}
}

// A wrong password at the start is told at once, and retried: a decision server that ended while the
// password was rotated would not come back by itself.
func TestWrongPassword(t *testing.T) {
	server := miniredis.NewMiniRedis()
	server.RequireAuth("right")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(server.Close)
	log := &testrun.Output{}
	ready := saying(t, log, "--redis", server.Addr())
	testrun.Eventually(t, "it is told, and the program is not ready", func() bool {
		status, _ := ready()
		return status == http.StatusServiceUnavailable && log.Has("NOAUTH") && log.Has("check the user, the password")
	})
}

func TestWrongConfig(t *testing.T) {
	for _, args := range [][]string{{"--allow-status", "302"}, {"--max-staleness", "-1s"}, {"--shards", "-2"}, {"--prefix", "a{b"},
		{"--rls-entries", "user=someone"}, {"--rls-entries", "user"}, {"--max-connections", "0"}, {"--drain-delay", "-1s"}, {"--tls-cert", "none.pem"},
		{"--in-doubt-rules", "orders=closed"}, {"--in-doubt-rules", "orders=shut order.*"}, {"--in-doubt-rules", "orders=local order.*"}, {"--in-doubt-rules", "orders="},
		{"--in-doubt-rules", "orders=local 5 order.*"}, {"--in-doubt-rules", "orders=local 5/1m order.* by user"}, {"--in-doubt-rules", "orders=local 5/1m order.* by"},
		{"--in-doubt-rules", "orders=closed order.* by uid"}, {"--in-doubt", "local"}, {"--instances", "0"},
		{"--repeated-headers", "any"}, {"--trusted-proxies", "10.0.0.0/33"}, {"--trusted-proxies", "shop.example"}} {
		var out bytes.Buffer
		status := Command(testrun.Context(t), append(args, "--listen", "127.0.0.1:0", "--grpc-listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"), io.Discard, &out, testrun.NoEnv)
		if status != ops.ExitUsage {
			t.Errorf("%v: status %d, %s", args, status, &out)
		}
	}
}

// What holds for single rules while the table is stale is an option, in a file as well as on the command line.
func TestInDoubtByRule(t *testing.T) {
	file := filepath.Join(t.TempDir(), "enforcer.yaml")
	if err := os.WriteFile(file, []byte(`
in-doubt: open
instances: 10
in-doubt-rules:
  orders: closed order.* cart.checkout
  searches: local 100/1m search.*
  signups: local 3/1h signup by ip/64 attrs.device
  reports: last-known
`), 0o600); err != nil {
		t.Fatal(err)
	}
	want := OnStale{Do: enforce.Open, Instances: 10, Rules: map[string]enforce.RuleOnStale{
		"orders":   {Do: enforce.Closed, APIs: []string{"order.*", "cart.checkout"}},
		"searches": {Do: enforce.Local, APIs: []string{"search.*"}, Limit: 100, Per: time.Minute},
		"signups":  {Do: enforce.Local, APIs: []string{"signup"}, Key: []string{"ip/64", "attrs.device"}, Limit: 3, Per: time.Hour},
		"reports":  {Do: enforce.LastKnown, APIs: []string{}},
	}}
	for about, args := range map[string][]string{
		"file": {"--config", file},
		"flags": {"--in-doubt", "open", "--instances", "10", "--in-doubt-rules",
			"orders=closed order.* cart.checkout, searches=local 100/1m search.*,signups=local 3/1h signup by ip/64 attrs.device,reports=last-known"},
	} {
		e, err := parse(append(args, "--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"), io.Discard, io.Discard, testrun.NoEnv)
		if err != nil {
			t.Fatalf("%s: %v", about, err)
		}
		if !reflect.DeepEqual(e.OnStale, want) {
			t.Errorf("%s: %+v, want %+v", about, e.OnStale, want)
		}
		_, _, _ = e.HTTP.Close(), e.Metrics.Close(), e.Redis.Close()
	}
}

// What it answers while the table is stale, and the file that turns it off, are options.
func TestInDoubtAndOff(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t) // without a blocklist: there is never a snapshot
	off := filepath.Join(t.TempDir(), "off")
	var log bytes.Buffer
	e, err := parse([]string{"--redis", server.Addr(), "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--in-doubt", "closed", "--off-file", off,
		"--in-doubt-rules", "logins=last-known login"},
		io.Discard, &log, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- e.Run(ctx) }()
	address := "http://" + e.HTTP.Addr().String() + "/v1/forward-auth"
	answers := func(api string, status int) {
		t.Helper()
		for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			req, err := http.NewRequest(http.MethodGet, address, nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Header.Set("X-Tallygate-Api", api)
			resp, err := described(t, http.DefaultTransport).Do(req)
			if err == nil {
				_ = resp.Body.Close()
				if resp.StatusCode == status {
					return
				}
			}
			if time.Now().After(deadline) {
				t.Fatalf("no answer %d: %v, %v", status, resp, err)
			}
		}
	}
	answers("search.query", http.StatusServiceUnavailable)
	answers("login", http.StatusNoContent)
	if err := os.WriteFile(off, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	answers("search.query", http.StatusNoContent)
	http.DefaultClient.CloseIdleConnections()
	cancel()
	if err := errors.Join(<-done, e.Redis.Close()); err != nil {
		t.Error(err)
	}
	if _, err := parse([]string{"--in-doubt", "maybe"}, io.Discard, &log, testrun.NoEnv); err == nil {
		t.Error("--in-doubt=maybe is accepted")
	}
}

// What proxies say is read as the options have it, also from a file.
func TestProxyOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "enforcer.yaml")
	if err := os.WriteFile(file, []byte("require-dimensions: true\nrepeated-headers: last\ntrusted-proxies: 10.0.0.0/8, 192.0.2.7\npath-header: X-Original-Uri\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, err := parse([]string{"--config", file, "--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"}, io.Discard, io.Discard, testrun.Getenv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = errors.Join(e.Redis.Close(), e.HTTP.Close(), e.Metrics.Close()) }()
	h := e.Config.Headers.WithDefaults()
	if got := h.Address("203.0.113.9, 192.0.2.7, 10.1.2.3"); got != "203.0.113.9" || !e.Config.RequireDimensions {
		t.Errorf("the address is %q, dimensions are required: %v", got, e.Config.RequireDimensions)
	}
	header := http.Header{"X-Tallygate-Uid": {"43", "42"}, "X-Original-Uri": {"/search"}, "X-Forwarded-Uri": {"/harmless"}}
	if api, dims, err := h.Read(header); err != nil || api != "get.search" || len(dims) != 1 || dims[0].Value != "42" {
		t.Errorf("%s, %v, %v", api, dims, err)
	}
}

// A second enforcer on a host died of the port of gRPC, which nobody had asked for.
func TestGRPCOnlyWhereItIsAskedFor(t *testing.T) {
	e, err := parse([]string{"--redis", "r:1", "--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0"}, io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	if e.GRPC != nil {
		t.Errorf("it listens on %s", e.GRPC.Addr())
		_ = e.GRPC.Close()
	}
	_, _, _ = e.HTTP.Close(), e.Metrics.Close(), e.Redis.Close()
}
