package ops

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
)

// Listen opens a listener on HOST:PORT or unix:PATH, or says which option to change. It replaces
// the socket that a killed process left at PATH, but not one that still answers.
func Listen(option, addr string) (net.Listener, error) {
	l, err := listen(addr)
	if err != nil {
		return nil, fmt.Errorf("--%s %s: %w", option, addr, err)
	}
	return l, nil
}

func listen(addr string) (net.Listener, error) {
	path, ok := strings.CutPrefix(addr, "unix:")
	if !ok {
		return net.Listen("tcp", addr)
	}
	l, err := net.Listen("unix", path)
	if !errors.Is(err, syscall.EADDRINUSE) {
		return l, err
	}
	if info, statErr := os.Lstat(path); statErr != nil || info.Mode()&os.ModeSocket == 0 {
		return nil, err
	}
	if c, dialErr := net.Dial("unix", path); !errors.Is(dialErr, syscall.ECONNREFUSED) {
		if dialErr == nil {
			_ = c.Close()
		}
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return net.Listen("unix", path)
}

// Guard bounds how many connections l has open at once, and how many one address has of these. Idle ones
// give way to new ones, if Serve answers on it; further ones wait to be accepted. On TCP it wraps them in
// TLS, with these protocols, unless t is nil: a Unix socket is guarded by its file's rights.
func Guard(l net.Listener, connections int, t *tls.Config, protocols ...string) net.Listener {
	if connections > 0 {
		l = newPlaces(l, connections)
	}
	if t == nil || l.Addr().Network() == "unix" {
		return l
	}
	return tls.NewListener(l, withProtocols(t, protocols))
}

// withProtocols is t for listeners that speak these.
func withProtocols(t *tls.Config, protocols []string) *tls.Config {
	inner := t.GetConfigForClient
	t = t.Clone()
	t.NextProtos = protocols
	if inner != nil {
		t.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			c, err := inner(hello)
			if c == nil || err != nil {
				return c, err
			}
			c = c.Clone()
			c.NextProtos = protocols
			return c, nil
		}
	}
	return t
}
