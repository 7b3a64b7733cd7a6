package apiclient

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"
)

// reread is a transport that goes by what the files of --ca, --cert and --key hold now, so that a program that
// runs for long needs no restart when one of them is replaced. While they are not readable, or do not fit, it
// goes by what they held before.
type reread struct {
	files [3]string // --ca, --cert, --key; "" is none

	mu   sync.Mutex
	held [3][]byte
	now  *http.Transport
}

func newReread(ca, cert, key string) (*reread, error) {
	r := &reread{files: [3]string{ca, cert, key}}
	held, err := r.read()
	if err != nil {
		return nil, err
	}
	c, err := r.tls(held)
	if err != nil {
		return nil, err
	}
	r.held, r.now = held, transport(c)
	return r, nil
}

func transport(c *tls.Config) *http.Transport {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: c, MaxIdleConnsPerHost: AtOnce, ExpectContinueTimeout: time.Second}
}

func (r *reread) read() (held [3][]byte, err error) {
	for i, file := range r.files {
		if file == "" {
			continue
		}
		if held[i], err = os.ReadFile(file); err != nil {
			return held, fmt.Errorf("read --%s: %w", [...]string{"ca", "cert", "key"}[i], err)
		}
	}
	return held, nil
}

func (r *reread) tls(held [3][]byte) (*tls.Config, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.files[0] != "" {
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(held[0]) {
			return nil, fmt.Errorf("--ca %s contains no PEM certificate", r.files[0])
		}
	}
	if (r.files[1] == "") != (r.files[2] == "") {
		return nil, errors.New("--cert and --key need each other")
	}
	if r.files[1] != "" {
		pair, err := tls.X509KeyPair(held[1], held[2])
		if err != nil {
			return nil, fmt.Errorf("read --cert and --key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// RoundTrip sends a request. Files that have changed end the connections that wait for a further one.
func (r *reread) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.current().RoundTrip(req)
}

func (r *reread) current() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, err := r.read()
	if err != nil || slices.EqualFunc(held[:], r.held[:], bytes.Equal) {
		return r.now
	}
	c, err := r.tls(held)
	if err != nil { // one of two files may have been replaced
		return r.now
	}
	before := r.now
	r.held, r.now = held, transport(c)
	before.CloseIdleConnections()
	return r.now
}

// CloseIdleConnections ends the connections that wait for a further request.
func (r *reread) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.CloseIdleConnections()
}
