package console

import (
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Enforcers that serve with a certificate of --ca can be asked, as aggregators can: they were trusted only if the
// system trusted them.
func TestEnforcersOfOurAuthority(t *testing.T) {
	ca := testca.New(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Pair("enforcer")}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	p, _, err := parse([]string{"--aggregator", "https://127.0.0.1:1", "--ca", ca.File(), "--listen", "127.0.0.1:0", "--metrics-listen", "none"}, io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = p.HTTP.Close(), p.Keys.redis.Close() }()
	for name, c := range map[string]*apiclient.Enforcers{"a check": p.Keys.checks, "a rule's state": apiclient.NewEnforcers(p.Enforcers)} {
		resp, err := c.Do(t.Context(), http.MethodGet, server.URL, "/", nil)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if _ = resp.Body.Close(); resp.StatusCode != http.StatusNotFound {
			t.Errorf("%s: %s", name, resp.Status)
		}
		c.CloseIdleConnections()
	}
}

// Enforcers with --tokens are shown a token for them, over TLS to whom --ca trusts, and to nobody else.
func TestEnforcersGetTheirToken(t *testing.T) {
	ca := testca.New(t)
	shown := make(chan string, 1)
	handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { shown <- r.Header.Get("Authorization") })
	secure, plain := httptest.NewUnstartedServer(handler), httptest.NewServer(handler)
	secure.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Pair("enforcer")}, MinVersion: tls.VersionTLS12}
	secure.StartTLS()
	stranger := httptest.NewTLSServer(handler) // of another authority
	for _, s := range []*httptest.Server{secure, plain, stranger} {
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		defer s.Close()
	}
	file := filepath.Join(t.TempDir(), "token")
	write := func(token string) {
		if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("first")
	args := []string{"--aggregator", "https://127.0.0.1:1", "--enforcer-token-file", file, "--listen", "127.0.0.1:0", "--metrics-listen", "none"}
	if _, _, err := parse(args, io.Discard, io.Discard, testrun.NoEnv); err == nil || !strings.Contains(err.Error(), "--enforcer-token-file needs --ca") {
		t.Errorf("without --ca: %v", err)
	}
	p, _, err := parse(append(args, "--ca", ca.File()), io.Discard, io.Discard, testrun.NoEnv)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = p.HTTP.Close(), p.Keys.redis.Close() }()
	client := &http.Client{Transport: p.Enforcers}
	defer client.CloseIdleConnections()
	get := func(url string) string {
		resp, err := client.Get(url)
		if err != nil {
			return "no answer"
		}
		_ = resp.Body.Close()
		return <-shown
	}
	if got := get(secure.URL); got != "Bearer first" {
		t.Errorf("over TLS: %q", got)
	}
	write("second")
	if got := get(secure.URL); got != "Bearer second" {
		t.Errorf("replaced: %q", got)
	}
	write("")
	if got := get(secure.URL); got != "Bearer second" {
		t.Errorf("emptied: %q", got)
	}
	if got := get(plain.URL); got != "" {
		t.Errorf("without TLS: %q", got)
	}
	if got := get(stranger.URL); got != "no answer" {
		t.Errorf("of another authority: %q", got)
	}
}
