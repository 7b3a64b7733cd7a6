package console

import (
	"crypto/tls"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tallygate/tallygate/internal/testca"
)

// Enforcers that serve with a certificate of --ca can be asked, as aggregators can: they were trusted only if the
// system trusted them.
func TestEnforcersOfOurAuthority(t *testing.T) {
	ca := testca.New(t)
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.TLS = &tls.Config{Certificates: []tls.Certificate{ca.Pair("enforcer")}, MinVersion: tls.VersionTLS12}
	server.StartTLS()
	defer server.Close()
	p, _, err := parse([]string{"--aggregator", "https://127.0.0.1:1", "--ca", ca.File(), "--listen", "127.0.0.1:0", "--metrics-listen", "none"}, io.Discard, io.Discard, func(string) string { return "" })
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = p.HTTP.Close(), p.Keys.redis.Close() }()
	for name, c := range map[string]*http.Client{"a check": p.Keys.checks, "a rule's state": {Transport: p.Enforcers}} {
		resp, err := c.Get(server.URL)
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
