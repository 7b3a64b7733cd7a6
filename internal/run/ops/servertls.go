package ops

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// ServerTLSOptions are the options of TLS for listeners.
type ServerTLSOptions struct{ cert, key, clientCA string }

// ServerTLS adds the options of TLS for listeners.
func (o *Options) ServerTLS() *ServerTLSOptions {
	s := &ServerTLSOptions{}
	o.StringVar(&s.cert, "tls-cert", "", "`FILE` with the server's PEM certificate, to serve the API with TLS; reloaded when it changes")
	o.StringVar(&s.key, "tls-key", "", "`FILE` with the certificate's key")
	o.StringVar(&s.clientCA, "tls-client-ca", "", "`FILE` with PEM certificates: clients need a certificate that one of them signed")
	return s
}

// Build reads the files; nil is no TLS. The configuration reads them again when they change. While
// they are wrong, it logs that and keeps the previous ones.
func (s *ServerTLSOptions) Build(log *slog.Logger) (*tls.Config, error) {
	if s.cert == "" && s.key == "" && s.clientCA == "" {
		return nil, nil //nolint:nilnil // no TLS is a choice
	}
	if s.cert == "" || s.key == "" {
		return nil, errors.New("--tls-cert and --tls-key need each other, and --tls-client-ca needs both")
	}
	f := &tlsFiles{ServerTLSOptions: *s, log: log}
	f.stamp = f.stamps()
	var err error
	if f.config, err = f.read(); err != nil {
		return nil, err
	}
	f.looked = time.Now()
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return f.current(), nil },
	}, nil
}

// tlsFiles is the configuration that the files give.
type tlsFiles struct {
	ServerTLSOptions
	log *slog.Logger

	mu     sync.Mutex
	config *tls.Config
	stamp  string // of the files, when they were read
	looked time.Time
}

// lookEvery bounds how often handshakes check the files.
const lookEvery = time.Second

func (f *tlsFiles) current() *tls.Config {
	f.mu.Lock()
	defer f.mu.Unlock()
	if now := time.Now(); now.Sub(f.looked) >= lookEvery {
		f.looked = now
		if stamp := f.stamps(); stamp != f.stamp {
			f.stamp = stamp
			if c, err := f.read(); err != nil {
				f.log.Error("the TLS files changed and are invalid; keeping the old ones", "error", err)
			} else {
				f.config = c
			}
		}
	}
	return f.config
}

// stamps tells whether a file is another one.
func (f *tlsFiles) stamps() (all string) {
	for _, path := range []string{f.cert, f.key, f.clientCA} {
		if info, err := os.Stat(path); err == nil {
			all += fmt.Sprintf("%d %d,", info.ModTime().UnixNano(), info.Size())
		}
	}
	return all
}

func (f *tlsFiles) read() (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, fmt.Errorf("read --tls-cert and --tls-key: %w", err)
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if f.clientCA == "" {
		return c, nil
	}
	pem, err := os.ReadFile(f.clientCA)
	if err != nil {
		return nil, fmt.Errorf("read --tls-client-ca: %w", err)
	}
	c.SessionTicketsDisabled = true // a resumed session would not be asked for its certificate
	c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, x509.NewCertPool()
	if !c.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-client-ca %s: no PEM certificate in it", f.clientCA)
	}
	return c, nil
}
