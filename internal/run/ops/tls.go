package ops

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"time"
)

// DialWithin bounds how long it may take to open a connection to a server, with TLS and all that
// proves who we are.
const DialWithin = 10 * time.Second

// ClientTLSOptions are the options of TLS for connections to one kind of server. The zero value is
// without TLS.
type ClientTLSOptions struct {
	on            bool
	name          string
	ca, cert, key string
}

// ClientTLS adds the options of TLS for connections to a kind of server, whose name they begin
// with.
func (o *Options) ClientTLS(name string) *ClientTLSOptions {
	t := &ClientTLSOptions{name: name}
	o.BoolVar(&t.on, name+"-tls", false, "connect with TLS")
	o.StringVar(&t.ca, name+"-ca", "", "`FILE` with the PEM certificates to trust instead of the system's")
	o.StringVar(&t.cert, name+"-cert", "", "`FILE` with our certificate, for mutual TLS")
	o.StringVar(&t.key, name+"-key", "", "`FILE` with our certificate's key")
	return t
}

// On reports whether there is TLS.
func (t *ClientTLSOptions) On() bool { return t.on }

// Build checks the options, and reads the files; nil is no TLS. Each handshake by what it returns
// reads our certificate anew, but trusts the certificates that it was built with; Dial reads these
// again, too.
func (t *ClientTLSOptions) Build() (*tls.Config, error) {
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
func (t *ClientTLSOptions) read() (*tls.Config, error) {
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

func (t *ClientTLSOptions) certificate() (*tls.Certificate, error) {
	pair, err := tls.LoadX509KeyPair(t.cert, t.key)
	if err != nil {
		return nil, fmt.Errorf("read --%s-cert and --%s-key: %w", t.name, t.name, err)
	}
	return &pair, nil
}

// Dial opens a connection, with TLS by what the files hold now.
func (t *ClientTLSOptions) Dial(ctx context.Context, d *net.Dialer, network, address string) (net.Conn, error) {
	conn, err := d.DialContext(ctx, network, address)
	if err != nil || !t.on {
		return conn, err
	}
	secure, err := t.handshake(ctx, conn, address)
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return secure, nil
}

func (t *ClientTLSOptions) handshake(ctx context.Context, conn net.Conn, address string) (*tls.Conn, error) {
	c, err := t.read()
	if err != nil {
		return nil, &Refusal{err}
	}
	if c.ServerName, _, err = net.SplitHostPort(address); err != nil {
		c.ServerName = address
	}
	secure := tls.Client(conn, c)
	if err := secure.HandshakeContext(ctx); err != nil {
		return nil, AsRefusal(fmt.Errorf("TLS with %s: %w", address, err))
	}
	return secure, nil
}
