package enforcer

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"

	"github.com/tallygate/tallygate/api"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// An enforcer tells viewers how it is, whatever becomes of Redis.
func TestStatus(t *testing.T) {
	t.Parallel()
	server := miniredis.RunT(t)
	publish(t, server.Addr())
	tokens := filepath.Join(t.TempDir(), "tokens")
	off := filepath.Join(t.TempDir(), "off")
	roles := fmt.Sprintf("- {name: a, role: viewer, sha256: %x}\n- {name: b, role: service, sha256: %x}\n", sha256.Sum256([]byte("viewer")), sha256.Sum256([]byte("service")))
	if err := os.WriteFile(tokens, []byte(roles), 0o600); err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{"TALLYGATE_REDIS_PASSWORD": "hush"}
	server.RequireUserAuth("me", "hush")
	e, err := parse([]string{"--redis", server.Addr(), "--redis-user", "me", "--tokens", tokens, "--off-file", off, "--no-blocklist", "--instance-id", "edge-1",
		"--listen", "127.0.0.1:0", "--metrics-listen", "127.0.0.1:0", "--grpc-listen", "none"}, io.Discard, io.Discard, testrun.Env(secrets))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := errors.Join(<-ended, e.Redis.Close()); err != nil {
			t.Error(err)
		}
	})
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	client := described(t, transport)
	ask := func(token, query string, want int) (s api.Status) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+e.HTTP.Addr().String()+"/v1/status"+query, nil)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			req.Header.Set("Authorization", "Bearer "+token)
		}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if resp.StatusCode != want || err != nil || strings.Contains(string(body), "hush") {
			t.Errorf("%s as %q: %d %s %v", query, token, resp.StatusCode, body, err)
		}
		if want == http.StatusOK {
			if err := json.Unmarshal(body, &s); err != nil {
				t.Error(err)
			}
		}
		return s
	}
	ask("", "", 401)
	ask("service", "", 403)
	ask("viewer", "?uid=42", 400)
	testrun.Eventually(t, "it follows the blocklist", func() bool {
		s := ask("viewer", "?metrics=tallygate_blocklist_", 200)
		return s.Ready && s.Component == "enforcer" && s.Instance == "edge-1" && len(s.Metrics["tallygate_blocklist_entries"]) == 1 &&
			s.Enforcer.Staleness >= 0 && s.Enforcer.Enabled && s.Enforcer.Redis == nil && strings.Contains(fmt.Sprint(s.Config), "{redis-password ••• environment}")
	})
	if err := os.WriteFile(off, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	server.Close()
	testrun.Eventually(t, "it tells that Redis is away, and that it is off", func() bool {
		s := ask("viewer", "", 200)
		return !s.Enforcer.Enabled && s.Enforcer.OffCause == "file" && !s.Enforcer.OffSince.IsZero() && s.Enforcer.Redis != nil && s.Enforcer.Redis.Reason == "unreachable" && s.Ready && len(s.Errors) > 0
	})
}
