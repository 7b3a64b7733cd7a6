package ops_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/ops"
)

// A socket that a killed process left is taken over; one that is in use, or a file that is no socket, is not.
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
		t.Fatalf("a socket that nobody answers on: %v", err)
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

// ca signs certificates.
type ca struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  []byte
}

func newCA(t *testing.T, name string) *ca {
	t.Helper()
	c := &ca{t: t}
	c.cert, c.key, c.pem = c.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	return c
}

func (c *ca) issue(template *x509.Certificate) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
	c.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		c.t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	parent, signer := c.cert, c.key
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		c.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		c.t.Fatal(err)
	}
	return cert, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
}

// leaf writes a certificate for 127.0.0.1 and its key to these files.
func (c *ca) leaf(name, certFile, keyFile string) tls.Certificate {
	c.t.Helper()
	_, key, cert := c.issue(&x509.Certificate{Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}})
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		c.t.Fatal(err)
	}
	secret := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	for file, content := range map[string][]byte{certFile: cert, keyFile: secret} {
		if err := os.WriteFile(file, content, 0o600); err != nil {
			c.t.Fatal(err)
		}
	}
	pair, err := tls.X509KeyPair(cert, secret)
	if err != nil {
		c.t.Fatal(err)
	}
	return pair
}

func (c *ca) pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(c.cert)
	return pool
}

// serveTLS serves with these options until the test ends.
func serveTLS(t *testing.T, log io.Writer, args ...string) (addr string) {
	t.Helper()
	o := ops.NewOptions("test", "", io.Discard, func(string) string { return "" })
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
	authority, dir := newCA(t, "authority"), t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	authority.leaf("first", cert, key)
	var log strings.Builder
	addr := serveTLS(t, &log, "--tls-cert", cert, "--tls-key", key)
	trust := &tls.Config{RootCAs: authority.pool()}
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
	authority.leaf("second", cert, key)
	becomes("second")
	if err := os.WriteFile(cert, []byte("half a certif"), 0o600); err != nil {
		t.Fatal(err)
	}
	becomes("second")
	authority.leaf("third", cert, key)
	becomes("third")
	if _, err := name(addr, &tls.Config{RootCAs: authority.pool(), MaxVersion: tls.VersionTLS11}); err == nil {
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
	authority, stranger, dir := newCA(t, "authority"), newCA(t, "stranger"), t.TempDir()
	file := func(name string) string { return filepath.Join(dir, name) }
	authority.leaf("server", file("cert.pem"), file("key.pem"))
	if err := os.WriteFile(file("ca.pem"), authority.pem, 0o600); err != nil {
		t.Fatal(err)
	}
	addr := serveTLS(t, io.Discard, "--tls-cert", file("cert.pem"), "--tls-key", file("key.pem"), "--tls-client-ca", file("ca.pem"))
	for about, c := range map[string]struct {
		with []tls.Certificate
		ok   bool
	}{
		"ours":         {[]tls.Certificate{authority.leaf("client", file("1"), file("2"))}, true},
		"a stranger's": {[]tls.Certificate{stranger.leaf("client", file("3"), file("4"))}, false},
		"none":         {nil, false},
	} {
		got, err := name(addr, &tls.Config{RootCAs: authority.pool(), Certificates: c.with})
		if (err == nil) != c.ok {
			t.Errorf("a client with a certificate of %s: %q, %v", about, got, err)
		}
	}
}

func TestWrongServerTLS(t *testing.T) {
	authority, dir := newCA(t, "authority"), t.TempDir()
	cert, key := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	authority.leaf("server", cert, key)
	for args, want := range map[string]string{
		"--tls-cert " + cert:                        "need each other",
		"--tls-key " + key:                          "need each other",
		"--tls-client-ca x":                         "--tls-client-ca needs both",
		"--tls-cert " + cert + " --tls-key " + cert: "read --tls-cert and --tls-key",
		"--tls-cert " + cert + " --tls-key " + key + " --tls-client-ca " + key:   "no PEM certificate in it",
		"--tls-cert " + cert + " --tls-key " + key + " --tls-client-ca /no/such": "read --tls-client-ca",
	} {
		o := ops.NewOptions("test", "", io.Discard, func(string) string { return "" })
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
