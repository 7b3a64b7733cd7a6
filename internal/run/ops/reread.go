package ops

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
)

// ClientFiles name the credentials of a client of an HTTP server; "" is none.
type ClientFiles struct {
	CA        string    // PEM certificates to trust instead of the system's
	Cert, Key string    // our certificate, for mutual TLS: both or none
	Names     [3]string // what errors call these three, such as --ca

	Log func() *slog.Logger // hears of replaced files that cannot be used; nil, or what returns nil, is nobody
}

// Reread is a transport that goes by what files hold now, so that a program that runs for long needs no restart when
// one of them is replaced. While they cannot be read, or do not fit, it goes by what they held before, and the log
// says so. Many goroutines may use it.
type Reread struct {
	files ClientFiles
	base  *http.Transport
	state complaint

	mu   sync.Mutex
	held [3][]byte
	now  *http.Transport
}

// NewReread reads the files. The transport is like base, whose TLSClientConfig it replaces.
func NewReread(files ClientFiles, base *http.Transport) (*Reread, error) {
	if (files.Cert == "") != (files.Key == "") {
		return nil, fmt.Errorf("%s and %s need each other", files.Names[1], files.Names[2])
	}
	r := &Reread{files: files, base: base, state: complaint{log: files.Log}}
	held, err := r.read()
	if err != nil {
		return nil, err
	}
	if r.now, err = r.transport(held); err != nil {
		return nil, err
	}
	r.held = held
	return r, nil
}

func (r *Reread) read() (held [3][]byte, err error) {
	for i, file := range []string{r.files.CA, r.files.Cert, r.files.Key} {
		if file == "" {
			continue
		}
		if held[i], err = os.ReadFile(file); err != nil {
			return held, fmt.Errorf("read %s: %w", r.files.Names[i], err)
		}
	}
	return held, nil
}

func (r *Reread) transport(held [3][]byte) (*http.Transport, error) {
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if r.files.CA != "" {
		if c.RootCAs = x509.NewCertPool(); !c.RootCAs.AppendCertsFromPEM(held[0]) {
			return nil, fmt.Errorf("%s %s contains no PEM certificate", r.files.Names[0], r.files.CA)
		}
	}
	if r.files.Cert != "" {
		pair, err := tls.X509KeyPair(held[1], held[2])
		if err != nil {
			return nil, fmt.Errorf("read %s and %s: %w", r.files.Names[1], r.files.Names[2], err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	t := r.base.Clone()
	t.TLSClientConfig = c
	return t, nil
}

// RoundTrip sends a request. Files that have changed end the connections that wait for a further one.
func (r *Reread) RoundTrip(req *http.Request) (*http.Response, error) {
	return r.current().RoundTrip(req)
}

func (r *Reread) current() *http.Transport {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, err := r.read()
	if err == nil && slices.EqualFunc(held[:], r.held[:], bytes.Equal) {
		r.state.note(nil)
		return r.now
	}
	var next *http.Transport
	if err == nil {
		next, err = r.transport(held)
	}
	if r.state.note(err); err != nil { // perhaps one of two files has been replaced
		return r.now
	}
	r.now.CloseIdleConnections()
	r.held, r.now = held, next
	return r.now
}

// CloseIdleConnections ends the connections that wait for a further request.
func (r *Reread) CloseIdleConnections() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now.CloseIdleConnections()
}
