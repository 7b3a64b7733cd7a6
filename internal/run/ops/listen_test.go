package ops_test

import (
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// A socket that a killed process left is taken over; one that is in use, or a file that is no
// socket, is not.
func TestListenOnAUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tallygate.sock")
	l, err := ops.Listen("listen", "unix:"+path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ops.Listen("listen", "unix:"+path); err == nil || !strings.Contains(err.Error(), "--listen unix:") {
		t.Errorf("a socket in use: %v", err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as a killed process leaves it
	_ = l.Close()
	l, err = ops.Listen("listen", "unix:"+path)
	if err != nil {
		t.Fatalf("a socket without a listener: %v", err)
	}
	_ = l.Close()
	if err := os.WriteFile(path, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := ops.Listen("listen", "unix:"+path); err == nil {
		t.Error("a file was taken for a socket")
	}
	if content, err := os.ReadFile(path); err != nil || string(content) != "precious" {
		t.Errorf("the file: %q, %v", content, err)
	}
}

// serveTLS serves with these options until the test ends.
func serveTLS(t *testing.T, log io.Writer, args ...string) (addr string) {
	t.Helper()
	o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
	options := o.ServerTLS()
	if err := o.Parse(args); err != nil {
		t.Fatal(err)
	}
	config, err := options.Build(slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	l := ops.Guard(listen(t), 100, config, "h2", "http/1.1")
	s := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Proto) }),
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(l) }()
	t.Cleanup(func() {
		_ = s.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return l.Addr().String()
}

// name connects, and returns the server's name.
func name(addr string, config *tls.Config) (string, error) {
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + addr)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.TLS.PeerCertificates[0].Subject.CommonName + " " + string(body), err
}

// The certificate is read again when its file changes; while it is wrong, the old one serves.
func TestTLSReloads(t *testing.T) {
	authority := testca.New(t)
	cert, key := authority.Files("first")
	var log strings.Builder
	addr := serveTLS(t, &log, "--tls-cert", cert, "--tls-key", key)
	trust := &tls.Config{RootCAs: authority.Pool()}
	if got, err := name(addr, trust); err != nil || got != "first HTTP/2.0" {
		t.Fatalf("%q, %v", got, err)
	}
	becomes := func(want string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			got, err := name(addr, trust)
			if err != nil {
				t.Fatal(err)
			}
			if got == want+" HTTP/2.0" {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("it stays %q", got)
			}
		}
	}
	authority.Write("second", cert, key)
	becomes("second")
	if err := os.WriteFile(cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	becomes("second")
	authority.Write("third", cert, key)
	becomes("third")
	if _, err := name(addr, &tls.Config{RootCAs: authority.Pool(), MaxVersion: tls.VersionTLS11}); err == nil {
		t.Error("TLS 1.1 is served")
	}
	if resp, err := http.Get("http://" + addr); err == nil {
		_ = resp.Body.Close()
		if resp.StatusCode == http.StatusOK {
			t.Error("plain HTTP is served")
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// With a client CA, only clients whose certificate it signed are answered.
func TestMutualTLS(t *testing.T) {
	authority, stranger := testca.New(t), testca.New(t)
	cert, key := authority.Files("server")
	addr := serveTLS(t, io.Discard, "--tls-cert", cert, "--tls-key", key, "--tls-client-ca", authority.File())
	for about, c := range map[string]struct {
		with []tls.Certificate
		ok   bool
	}{
		"ours":         {[]tls.Certificate{authority.Pair("client")}, true},
		"a stranger's": {[]tls.Certificate{stranger.Pair("client")}, false},
		"none":         {nil, false},
	} {
		got, err := name(addr, &tls.Config{RootCAs: authority.Pool(), Certificates: c.with})
		if (err == nil) != c.ok {
			t.Errorf("a client with a certificate of %s: %q, %v", about, got, err)
		}
	}
}

func TestWrongServerTLS(t *testing.T) {
	cert, key := testca.New(t).Files("server")
	for args, want := range map[string]string{
		"--tls-cert " + cert:                        "need each other",
		"--tls-key " + key:                          "need each other",
		"--tls-client-ca x":                         "--tls-client-ca needs both",
		"--tls-cert " + cert + " --tls-key " + cert: "read --tls-cert and --tls-key",
		"--tls-cert " + cert + " --tls-key " + key + " --tls-client-ca " + key:   "no PEM certificate in it",
		"--tls-cert " + cert + " --tls-key " + key + " --tls-client-ca /no/such": "read --tls-client-ca",
	} {
		o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
		options := o.ServerTLS()
		if err := o.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if _, err := options.Build(slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// Further connections than allowed wait, and are served when another ends.
func TestConnectionsAreBounded(t *testing.T) {
	l := ops.Guard(listen(t), 1, nil)
	defer l.Close()
	accepted := make(chan net.Conn, 2)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Error("two are served at once")
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	_ = (<-accepted).Close()
}
