package ops

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
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

func (t *tlsOptions) build() (*tls.Config, error) {
	if !t.on {
		if t.ca != "" || t.cert != "" || t.key != "" {
			return nil, fmt.Errorf("--%s-ca, -cert and -key need --%s-tls", t.name, t.name)
		}
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
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
	if (t.cert == "") != (t.key == "") {
		return nil, fmt.Errorf("--%s-cert and --%s-key need each other", t.name, t.name)
	}
	if t.cert != "" {
		pair, err := tls.LoadX509KeyPair(t.cert, t.key)
		if err != nil {
			return nil, fmt.Errorf("read --%s-cert and --%s-key: %w", t.name, t.name, err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}
