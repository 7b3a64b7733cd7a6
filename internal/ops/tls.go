package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
)

// tlsOptions are the TLS options of one kind of connection.
type tlsOptions struct {
	on            bool
	name          string
	ca, cert, key string
}

func (t *tlsOptions) add(o *Options, name string) {
	t.name = name
	o.BoolVar(&t.on, name+"-tls", false, "connect with TLS")
	o.StringVar(&t.ca, name+"-ca", "", "`FILE` with the PEM certificates to trust instead of the system's")
	o.StringVar(&t.cert, name+"-cert", "", "`FILE` with our certificate, for mutual TLS")
	o.StringVar(&t.key, name+"-key", "", "`FILE` with our certificate's key")
}

// build checks the options, and reads the files; nil is no TLS. Each handshake reads our certificate anew; read gives a configuration
// for one connection, with the certificates to trust as they are then.
func (t *tlsOptions) build() (*tls.Config, error) {
	if !t.on {
		if t.ca != "" || t.cert != "" || t.key != "" {
			return nil, fmt.Errorf("--%s-ca, -cert and -key need --%s-tls", t.name, t.name)
		}
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
	if (t.cert == "") != (t.key == "") {
		return nil, fmt.Errorf("--%s-cert and --%s-key need each other", t.name, t.name)
	}
	c, err := t.read()
	if err != nil || t.cert == "" {
		return c, err
	}
	c.Certificates = nil
	c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.certificate() }
	return c, nil
}

// read makes a configuration of what the files hold now.
func (t *tlsOptions) read() (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.ca != "" {
		pem, err := os.ReadFile(t.ca)
		if err != nil {
			return nil, fmt.Errorf("read --%s-ca: %w", t.name, err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("--%s-ca %s: no PEM certificate in it", t.name, t.ca)
		}
	}
	if t.cert != "" {
		pair, err := t.certificate()
		if err != nil {
			return nil, err
		}
		c.Certificates = []tls.Certificate{*pair}
	}
	return c, nil
}

func (t *tlsOptions) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("read --%s-cert and --%s-key: %w", t.name, t.name, err)
	}
	return &pair, nil
}

// handshake puts TLS on a connection to address, by what the files hold now. It closes the connection when it fails.
func (t *tlsOptions) handshake(ctx context.Context, conn net.Conn, address string) (net.Conn, error) {
	c, err := t.read()
	if err != nil {
		_ = conn.Close()
		return nil, &Refusal{err}
	}
	if c.ServerName, _, err = net.SplitHostPort(address); err != nil {
		c.ServerName = address
	}
	secure := tls.Client(conn, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		_ = conn.Close()
		return nil, asRefusal(fmt.Errorf("TLS with %s: %w", address, err))
	}
	return secure, nil
}
