package enforcer

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/servers"
)

// logLines collects a program's log.
type logLines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *logLines) has(part string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), part)
}

// Redis' password is changed, then the file: meanwhile the enforcer is not ready, and says why; then it follows the blocklist again by itself.
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
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	log := &logLines{}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	ended := make(chan int, 1)
	go func() {
		ended <- Command(ctx, []string{"--redis", rds.Addr(), "--redis-user", "tallygate", "--redis-password-file", file,
			"--listen", addr, "--grpc-listen", "none", "--metrics-listen", "127.0.0.1:0"}, io.Discard, log, func(string) string { return "" })
	}()
	t.Cleanup(func() {
		stop()
		if status := <-ended; status != 0 || t.Failed() {
			t.Errorf("it ended with %d:\n%s", status, log.text.String())
		}
	})
	ready := func() string {
		resp, err := http.Get("http://" + addr + "/readyz")
		if err != nil {
			return err.Error()
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		return fmt.Sprintf("%d %s", resp.StatusCode, body)
	}
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
	eventually("it is not ready, and says why", func() bool {
		return strings.Contains(ready(), "503 Redis has refused us since") && log.has("Redis refuses us")
	})
	put("hunter-2\n")
	eventually("it lets itself in again", func() bool { return log.has("Redis lets us in again") })
	servers.Blocklist(t, admin, "tallygate") // as a publisher would, so that it is in step
	eventually("it is ready again", func() bool { return strings.HasPrefix(ready(), "200") })
	if log.has("hunter-") {
		t.Error("the log tells the password")
	}
}
