package ops

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
)

// AsksClients reports whether only clients with a certificate are answered.
func (s *ServerTLSOptions) AsksClients() bool { return s.clientCA != "" }

// Peer returns how a program asks others that are served as it is: it shows the certificate that it
// serves with, and trusts those of the file ca; without one the system's, those of the client CA,
// and what is in its own certificate's file, which the others may have, too. The files are read at
// each call, so that what was rotated is used.
func (s *ServerTLSOptions) Peer(ca string) func() (*tls.Config, error) {
	o := *s
	return func() (*tls.Config, error) {
		pair, err := tls.LoadX509KeyPair(o.cert, o.key)
		if err != nil {
			return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
		}
		c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
		from := []string{ca}
		if ca != "" {
			c.RootCAs = x509.NewCertPool()
		} else {
			if c.RootCAs, err = x509.SystemCertPool(); err != nil {
				c.RootCAs = x509.NewCertPool()
			}
			if from = []string{o.cert}; o.clientCA != "" {
				from = append(from, o.clientCA)
			}
		}
		for _, path := range from {
			pem, err := os.ReadFile(path)
			if err != nil {
				return nil, fmt.Errorf("read the certificates to trust: %w", err)
			}
			if !c.RootCAs.AppendCertsFromPEM(pem) {
				return nil, fmt.Errorf("%s: no PEM certificate in it", path)
			}
		}
		return c, nil
	}
}

// CheckPeer tells why another program that is served alike would not answer this one. It is an
// error only where clients are asked for certificates.
func (s *ServerTLSOptions) CheckPeer() error {
	if s.clientCA == "" {
		return nil
	}
	pair, err := tls.LoadX509KeyPair(s.cert, s.key)
	if err != nil {
		return fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	pem, err := os.ReadFile(s.clientCA)
	if err != nil {
		return fmt.Errorf("read --tls-client-ca: %w", err)
	}
	roots, chain := x509.NewCertPool(), x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	for _, der := range pair.Certificate[1:] {
		if cert, err := x509.ParseCertificate(der); err == nil {
			chain.AddCert(cert)
		}
	}
	_, err = pair.Leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: chain, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}})
	if err != nil {
		return fmt.Errorf("--tls-client-ca would not let --tls-cert in as a client: %w", err)
	}
	return nil
}
