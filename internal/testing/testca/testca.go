// Package testca issues certificates to tests.
package testca

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Authority signs certificates. What goes wrong ends its test.
type Authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// New makes an authority that nobody trusts yet.
func New(t testing.TB) *Authority {
	t.Helper()
	a := &Authority{t: t}
	der, key := a.sign(&x509.Certificate{Subject: pkix.Name{CommonName: "test authority"}, IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign})
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	a.cert, a.key = cert, key
	return a
}

// sign makes a certificate that is good for an hour; the authority's own signs itself.
func (a *Authority) sign(template *x509.Certificate) (der []byte, key *ecdsa.PrivateKey) {
	a.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template.SerialNumber, template.NotAfter = big.NewInt(time.Now().UnixNano()), time.Now().Add(time.Hour)
	parent, signer := a.cert, a.key
	if parent == nil {
		parent, signer = template, key
	}
	if der, err = x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer); err != nil {
		a.t.Fatal(err)
	}
	return der, key
}

// Issue returns, as PEM, a certificate of a server at 127.0.0.1 or of a client, and its key.
func (a *Authority) Issue(commonName string) (cert, key []byte) {
	a.t.Helper()
	der, private := a.sign(&x509.Certificate{
		Subject: pkix.Name{CommonName: commonName}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	})
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		a.t.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: secret})
}

// Pair is what Issue returns, for this process.
func (a *Authority) Pair(commonName string) tls.Certificate {
	a.t.Helper()
	pair, err := tls.X509KeyPair(a.Issue(commonName))
	if err != nil {
		a.t.Fatal(err)
	}
	return pair
}

// Write puts what Issue returns into two files, which it replaces.
func (a *Authority) Write(commonName, certFile, keyFile string) {
	a.t.Helper()
	cert, key := a.Issue(commonName)
	a.put(certFile, cert)
	a.put(keyFile, key)
}

// Files returns two new files with what Issue returns.
func (a *Authority) Files(commonName string) (certFile, keyFile string) {
	a.t.Helper()
	dir := a.t.TempDir()
	certFile, keyFile = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	a.Write(commonName, certFile, keyFile)
	return certFile, keyFile
}

// PEM is the authority's own certificate.
func (a *Authority) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// File returns a new file with PEM.
func (a *Authority) File() string {
	a.t.Helper()
	path := filepath.Join(a.t.TempDir(), "ca.pem")
	a.put(path, a.PEM())
	return path
}

// Pool trusts the authority alone.
func (a *Authority) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(a.cert)
	return pool
}

// Client is the TLS of a client that trusts the authority, with a certificate of this name; "" is
// without one.
func (a *Authority) Client(commonName string) *tls.Config {
	a.t.Helper()
	c := &tls.Config{RootCAs: a.Pool()}
	if commonName != "" {
		c.Certificates = []tls.Certificate{a.Pair(commonName)}
	}
	return c
}

func (a *Authority) put(path string, content []byte) {
	a.t.Helper()
	if err := os.WriteFile(path, content, 0o600); err != nil {
		a.t.Fatal(err)
	}
}
