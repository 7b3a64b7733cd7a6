package decision_test

import (
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/run/access"
)

// The list names users: on loopback it is for all, elsewhere for viewers.
func TestWhoMaySeeTheBlocklist(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens")
	// sha256 of "secret"
	text := `[{"name": "ann", "role": "viewer", "sha256": "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"}]`
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	local, public := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: 1}
	for _, c := range []struct {
		name   string
		cfg    access.Config
		off    bool
		token  string
		origin string
		want   int
	}{
		{"loopback", access.Config{Addr: local}, false, "", "", 200},
		{"a page of the web, on loopback", access.Config{Addr: local}, false, "", "http://evil.example", 403},
		{"elsewhere", access.Config{Addr: public}, false, "", "", 401},
		{"elsewhere, a viewer", access.Config{Addr: public, Tokens: file}, false, "secret", "", 200},
		{"elsewhere, another token", access.Config{Addr: public, Tokens: file}, false, "secrets", "", 401},
		{"loopback with tokens", access.Config{Addr: local, Tokens: file}, false, "", "", 401},
		{"turned off", access.Config{Addr: local}, true, "", "", 404},
	} {
		guard, err := access.New(c.cfg)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, func(cfg *decision.Config) { cfg.Guard, cfg.NoList = guard, c.off }).blocks(block("r", "uid", "42"))
		req := mustRequest(t, http.MethodGet, "/v1/blocklist")
		if req.Host = "127.0.0.1:1"; c.token != "" {
			req.Header.Set("Authorization", "Bearer "+c.token)
		}
		if c.origin != "" {
			req.Header.Set("Origin", c.origin)
		}
		if got := r.do(req).StatusCode; got != c.want {
			t.Errorf("%s: %d, want %d", c.name, got, c.want)
		}
		check := r.post("/v1/check", `{"uid": "42", "api": "a"}`)
		if check.StatusCode != 200 {
			t.Errorf("%s: a check is answered with %d", c.name, check.StatusCode)
		}
	}
}
