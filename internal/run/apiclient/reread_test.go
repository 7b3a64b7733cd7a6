package apiclient_test

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
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A program that runs for long shows the token, shows the certificate and trusts the authorities of today:
// none of them needs a restart.
func TestWhatIsReplacedIsUsedAtOnce(t *testing.T) {
	before, after := testca.New(t), testca.New(t)
	var served tls.Certificate
	var shown, client string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown, client = r.Header.Get("Authorization"), r.TLS.PeerCertificates[0].Subject.CommonName
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS12, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) {
		return &tls.Config{MinVersion: tls.VersionTLS12, ClientAuth: tls.RequireAnyClientCert, Certificates: []tls.Certificate{served}}, nil
	}}
	served = before.Pair("server")
	server.StartTLS()
	defer server.Close()

	dir := t.TempDir()
	file := func(name string, text []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path+".new", text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		return path
	}
	shows := func(name string) (cert, key string) {
		c, k := before.Issue(name)
		return file("tls.crt", c), file("tls.key", k)
	}
	cert, key := shows("console-1")
	o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
	options := apiclient.NewOptions(o)
	if err := o.Parse([]string{"--aggregator", server.URL, "--ca", file("ca.pem", before.PEM()), "--token-file", file("token", []byte("one\n")), "--cert", cert, "--key", key}); err != nil {
		t.Fatal(err)
	}
	api, err := options.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	says := func(what, token, name string) {
		t.Helper()
		if _, err := api.Get(t.Context(), "/"); err != nil || shown != "Bearer "+token || client != name {
			t.Errorf("%s: %v; it shows %q and the certificate of %q", what, err, shown, client)
		}
	}
	says("at first", "one", "console-1")
	file("token", []byte("two\n"))
	says("with another token", "two", "console-1")
	file("token", nil)
	says("with an empty file", "two", "console-1")
	shows("console-2")
	says("with another certificate", "two", "console-2")

	served = after.Pair("server")
	server.CloseClientConnections()
	if _, err := api.Get(t.Context(), "/"); err == nil || !strings.Contains(err.Error(), "unknown authority") {
		t.Errorf("of an authority that it does not know: %v", err)
	}
	file("ca.pem", []byte("half of a file"))
	file("ca.pem", append(before.PEM(), after.PEM()...))
	says("with both authorities", "two", "console-2")
	if api.WithToken("reader").Close(); api.WithToken("").Base() != server.URL {
		t.Error(api.Base())
	}
	if _, err := api.WithToken("reader").Get(t.Context(), "/"); err != nil || shown != "Bearer reader" {
		t.Errorf("a reader's token: %v, %q", err, shown)
	}
}
