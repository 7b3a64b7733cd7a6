package enforcer

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

var refusals = regexp.MustCompile(`\ntallygate_feed_errors_total\{reason="auth"\} [1-9]`)

// Redis' password is changed, then the file: meanwhile the enforcer, which has a snapshot, stays
// ready and says what is wrong; then it follows the blocklist again by itself. A password that was
// rotated wrongly took every enforcer out of rotation, and the services behind them.
func TestARotatedPasswordIsTakenUp(t *testing.T) {
	rds := servers.StartRedis(t)
	admin := redis.NewClient(&redis.Options{Addr: rds.Addr()})
	t.Cleanup(func() { _ = admin.Close() })
	file := filepath.Join(t.TempDir(), "password")
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	password := func(text string) {
		t.Helper()
		if err := admin.Do(t.Context(), "ACL", "SETUSER", "tallygate", "on", "resetpass", ">"+text, "~*", "&*", "+@all").Err(); err != nil {
			t.Fatal(err)
		}
		_ = admin.Do(t.Context(), "CLIENT", "KILL", "USER", "tallygate").Err()
	}
	password("hunter-1")
	put("hunter-1\n")
	servers.Blocklist(t, admin, "tallygate")
	addr, metrics := servers.FreeAddr(t), servers.FreeAddr(t)
	log := &testrun.Output{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- Command(ctx, []string{"--redis", rds.Addr(), "--redis-user", "tallygate", "--redis-password-file", file,
			"--listen", addr, "--grpc-listen", "none", "--metrics-listen", metrics, "--max-staleness", "1s"}, io.Discard, log, testrun.NoEnv)
	}()
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != 0 || t.Failed() {
			t.Errorf("it ended with %d:\n%s", status, log)
		}
	})
	get := func(url string) string {
		resp, err := http.Get("http://" + url)
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
	ready := func() string { return get(addr + "/readyz") }
	eventually := func(what string, ok func() bool) {
		t.Helper()
		for end := time.Now().Add(time.Minute); !ok(); time.Sleep(10 * time.Millisecond) {
			if time.Now().After(end) {
				t.Fatalf("never: %s; %s", what, ready())
			}
		}
	}
	eventually("it is ready", func() bool { return strings.HasPrefix(ready(), "200") })
	password("hunter-2")
	eventually("it says what is wrong, and stays ready", func() bool {
		now := ready()
		if strings.HasPrefix(now, "503") {
			t.Fatal(now)
		}
		return strings.HasPrefix(now, "200 ready\nbut Redis has refused us since") && strings.Contains(now, "WRONGPASS") && log.Has("Redis refuses us")
	})
	if on := get(metrics + "/readyz"); !strings.Contains(on, "but Redis has refused us since") {
		t.Errorf("a probe of the metrics listener gets %s", on)
	}
	if page := get(metrics + "/metrics"); !refusals.MatchString(page) || !strings.Contains(page, "\ntallygate_in_doubt 1\n") {
		t.Errorf("the metrics do not tell that it is refused and stale:\n%s", page)
	}
	put("hunter-2\n")
	eventually("it lets itself in again", func() bool { return log.Has("Redis accepts us again") })
	servers.Blocklist(t, admin, "tallygate") // as a publisher would, so that it is in step
	eventually("nothing is wrong any more", func() bool { return ready() == "200 ready\n" })
	if log.Has("hunter-") {
		t.Error("the log tells the password")
	}
}
