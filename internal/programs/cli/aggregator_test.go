package cli_test

import (
	"bytes"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/programs/cli"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// An aggregator that speaks TLS and wants a token is asked with both, by every command that asks one; a token goes to no
// other place.
func TestTokenAndTLS(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the token was sent elsewhere") }))
	t.Cleanup(elsewhere.Close)
	fake := fakeAggregator()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer good":
			fake.ServeHTTP(w, r)
		case "Bearer moved":
			http.Redirect(w, r, elsewhere.URL, http.StatusTemporaryRedirect)
		case "Bearer small":
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusForbidden)
			_, _ = w.Write([]byte(`{"status": 403, "detail": "this needs the role operator, and vera has the role viewer"}`))
		default:
			w.WriteHeader(http.StatusUnauthorized)
		}
	}))
	t.Cleanup(srv.Close)
	write := func(name, text string) string {
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})))
	good, none := write("token", "good\n"), testrun.NoEnv
	env := func(token string) func(string) string {
		return func(name string) string {
			if name == "TALLYGATE_TOKEN" {
				return token
			}
			return ""
		}
	}
	run := func(getenv func(string) string, args ...string) (int, string) {
		var out bytes.Buffer
		status := cli.Main(testrun.Context(t), args, strings.NewReader("yes\n"), &out, &out, getenv)
		return status, out.String()
	}
	letter := write("letter", `{"value":"{}"}`)
	for _, command := range []string{"explain uid=42", "hot-keys", "block uid=42 --for 1h --reason x", "unblock uid=42 --reason x", "unblock --all --reason x", "erase uid=42 --reason x", "dead-letters --send " + letter} {
		args := append(strings.Fields(command), "--aggregator", srv.URL, "--ca", ca)
		if status, said := run(env("good"), args...); status != 0 {
			t.Errorf("%s, a token in the environment: %d %s", command, status, said)
		}
		if status, said := run(env("bad"), append(args, "--token-file", good)...); status != 0 {
			t.Errorf("%s, a token in a file: %d %s", command, status, said)
		}
		if status, said := run(none, args...); status != 1 || !strings.Contains(said, "TALLYGATE_TOKEN or --token-file") {
			t.Errorf("%s, no token: %d %s", command, status, said)
		}
		if status, said := run(env("bad-secret"), args...); status != 1 || strings.Contains(said, "bad-secret") {
			t.Errorf("%s, a wrong token: %d %s", command, status, said)
		}
		if status, said := run(env("small"), args...); status != 1 || !strings.Contains(said, "vera has the role viewer") {
			t.Errorf("%s, too small a role: %d %s", command, status, said)
		}
		if status, _ := run(env("moved"), args...); status != 1 {
			t.Errorf("%s, a redirect: %d", command, status)
		}
	}
	for about, args := range map[string][]string{
		"the authority is not known": {"--aggregator", srv.URL},
		"a user in the address":      {"--aggregator", "https://good@" + strings.TrimPrefix(srv.URL, "https://"), "--ca", ca},
		"TLS without it":             {"--aggregator", strings.TrimPrefix(srv.URL, "https://"), "--ca", ca},
		"no certificate in the file": {"--aggregator", srv.URL, "--ca", good},
		"a certificate without key":  {"--aggregator", srv.URL, "--ca", ca, "--cert", ca},
		"an empty token":             {"--aggregator", srv.URL, "--ca", ca, "--token-file", write("empty", "\n")},
		"another scheme":             {"--aggregator", "ftp://x"},
	} {
		if status, said := run(env("good"), append([]string{"explain", "uid=42"}, args...)...); status == 0 || said == "" {
			t.Errorf("%s: %d %s", about, status, said)
		}
	}
}
