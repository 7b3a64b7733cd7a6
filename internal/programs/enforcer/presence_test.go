package enforcer

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// startEnforcer starts the program with these options beside its usual ones.
func startEnforcer(t *testing.T, redisAddr string, options ...string) (e *Program, log *testrun.Output, stop func()) {
	t.Helper()
	log = &testrun.Output{}
	args := append([]string{"--redis", redisAddr, "--listen", "127.0.0.1:0", "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"}, options...)
	e, err := parse(args, io.Discard, log, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	return e, log, testrun.Start(t, func(ctx context.Context) error {
		err := e.Run(ctx)
		_ = e.Redis.Close()
		return err
	})
}

func enforcers(t *testing.T, addr string) []presence.Beat {
	t.Helper()
	client := redis.NewClient(&redis.Options{Addr: addr})
	defer client.Close()
	all, err := presence.List(t.Context(), client, "")
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// Operators see a decision server: what it is called, where it is, what it does, and that a kill switch is
// on. When it stops it is away at once.
func TestAnnounced(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	off := filepath.Join(t.TempDir(), "off")
	e, _, stop := startEnforcer(t, server.Addr(), "--instance-id", "edge-1", "--off-file", off)
	testrun.Eventually(t, "it is there", func() bool { return len(enforcers(t, server.Addr())) == 1 })
	b := enforcers(t, server.Addr())[0]
	url := "http://" + e.HTTP.Addr().String()
	if b.Name != "edge-1" || b.Kind != presence.DecisionServer || b.Version != ops.Version() || b.URL != url || !b.Enabled || b.Staleness != -1 || !b.Stale {
		t.Errorf("it is %+v", b)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Post(b.URL+"/v1/check", "application/json", strings.NewReader(`{"uid":"42","api":"a"}`))
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp, err)
	}
	_ = resp.Body.Close()
	testrun.Eventually(t, "its check is told", func() bool { return enforcers(t, server.Addr())[0].Checks == 1 })
	if err := os.WriteFile(off, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	testrun.Eventually(t, "the kill switch is told", func() bool {
		b := enforcers(t, server.Addr())[0]
		return !b.Enabled && b.OffCause == "file" && !b.OffSince.IsZero()
	})
	stop()
	if all := enforcers(t, server.Addr()); len(all) != 0 {
		t.Errorf("it has stopped, and there are %+v", all)
	}
}

// An installation whose Redis user has only the rights of former versions keeps working, and is told.
func TestWithoutTheRightToBeAnnounced(t *testing.T) {
	server := servers.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer admin.Close()
	if err := admin.Do(t.Context(), "ACL", "SETUSER", "former", "reset", "on", ">secret", "%R~{tallygate:*", "+hmget", "+hscan", "+xread", "+ping").Err(); err != nil {
		t.Fatal(err)
	}
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	e, log, _ := startEnforcer(t, server.Addr(), "--redis-user", "former", "--redis-password-file", secret)
	testrun.Eventually(t, "it is told", func() bool { return log.Has("not announced in Redis") })
	if log.Count("not announced in Redis") != 1 || !log.Has("doctor --acls") {
		t.Errorf("the log: %s", log)
	}
	if err := e.RedisAccess.Ready(); err != nil {
		t.Errorf("it counts as a refusal: %v", err)
	}
	if errs := presenceErrors(t, e); len(errs) != len(blocklist.ErrorKinds) || errs["auth"] < 1 || errs["unreachable"] != 0 {
		t.Errorf("the metric: %v", errs)
	}
}

// presenceErrors are the values of tallygate_presence_errors_total by reason.
func presenceErrors(t *testing.T, e *Program) map[string]float64 {
	t.Helper()
	families, err := e.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	errs := map[string]float64{}
	for _, f := range families {
		if f.GetName() != "tallygate_presence_errors_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			errs[m.GetLabel()[0].GetValue()] = m.GetCounter().GetValue()
		}
	}
	return errs
}

func TestNotAnnounced(t *testing.T) {
	server := miniredis.RunT(t)
	e, log, _ := startEnforcer(t, server.Addr(), "--no-presence")
	testrun.Eventually(t, "it waits for a publisher", func() bool { return log.Has("is waiting") })
	if all := enforcers(t, server.Addr()); len(all) != 0 {
		t.Errorf("there are %+v", all)
	}
	if errs := presenceErrors(t, e); len(errs) != 0 {
		t.Errorf("metrics of what does not run: %v", errs)
	}
}

type listensAt struct {
	net.Listener
	addr net.Addr
}

func (l listensAt) Addr() net.Addr { return l.addr }

func TestReached(t *testing.T) {
	tcp := func(text string) net.Addr {
		addr, err := net.ResolveTCPAddr("tcp", text)
		if err != nil {
			t.Fatal(err)
		}
		return addr
	}
	for _, is := range []struct {
		advertise string
		addr      net.Addr
		tls       bool
		want      string
	}{
		{"", tcp("10.1.2.3:8080"), false, "http://10.1.2.3:8080"},
		{"", tcp("[fd00::1]:8080"), true, "https://[fd00::1]:8080"},
		{"", tcp("0.0.0.0:8080"), false, ""},
		{"", tcp("[::]:8080"), false, ""},
		{"", &net.UnixAddr{Name: "/run/a", Net: "unix"}, false, ""},
		{"enforcer-1.shop:443", tcp("0.0.0.0:8080"), true, "https://enforcer-1.shop:443"},
	} {
		if got, err := reached(is.advertise, listensAt{addr: is.addr}, is.tls); got != is.want || err != nil {
			t.Errorf("%+v: %q, %v", is, got, err)
		}
	}
	for _, wrong := range []string{"enforcer", ":80", "a:b", "a:0", "http://a:80"} {
		if _, err := reached(wrong, listensAt{addr: tcp("127.0.0.1:1")}, false); err == nil || !strings.Contains(err.Error(), "--advertise") {
			t.Errorf("%q: %v", wrong, err)
		}
	}
}
