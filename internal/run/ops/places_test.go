package ops_test

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// serves answers on l with h, bounded, until the test ends.
func serves(t *testing.T, l net.Listener, bound int, config *tls.Config, h http.HandlerFunc) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- ops.Serve(t.Context(), ops.Guard(l, bound, config, "h2", "http/1.1"), h) }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// dialFrom connects from this address of the machine, as another client would.
func dialFrom(t *testing.T, from string, to net.Addr) net.Conn {
	t.Helper()
	c, err := (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext(t.Context(), to.Network(), to.String())
	if err != nil {
		t.Skipf("no connection from %s: %v", from, err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// asks sends a request, and returns the answer's text; "" if there is none.
func asks(c net.Conn, path string) string {
	_ = c.SetDeadline(time.Now().Add(time.Minute))
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: tallygate\r\n\r\n", path); err != nil {
		return ""
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return ""
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return string(text)
}

func hello(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "hello") }

// A thousand connections on which nobody asks kept everybody else out: whether they have sent nothing, half
// a request, or were answered before.
func TestIdleConnectionsGiveWay(t *testing.T) {
	const bound = 20
	for about, idle := range map[string]func(net.Conn){
		"nothing sent":   func(net.Conn) {},
		"half a request": func(c net.Conn) { _, _ = io.WriteString(c, "GET / HTTP/1.1\r\nHo") },
		"answered once": func(c net.Conn) {
			if got := asks(c, "/"); got != "hello" {
				t.Errorf("the first request of one: %q", got)
			}
		},
	} {
		t.Run(about, func(t *testing.T) {
			l := listen(t)
			serves(t, l, bound, nil, hello)
			for range 3 * bound {
				idle(dialFrom(t, "127.0.0.1", l.Addr()))
			}
			if got := asks(dialFrom(t, "127.0.0.2", l.Addr()), "/"); got != "hello" {
				t.Errorf("another client got %q", got)
			}
			if got := asks(dialFrom(t, "127.0.0.1", l.Addr()), "/"); got != "hello" { // all come from a proxy
				t.Errorf("one of the same address got %q", got)
			}
		})
	}
}

func TestIdleConnectionsWithTLSGiveWay(t *testing.T) {
	authority := testca.New(t)
	cert, key := authority.Files("server")
	o := ops.NewOptions("test", "", io.Discard, testrun.NoEnv)
	options := o.ServerTLS()
	if err := o.Parse([]string{"--tls-cert", cert, "--tls-key", key}); err != nil {
		t.Fatal(err)
	}
	config, err := options.Build(slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l := listen(t)
	serves(t, l, 10, config, hello)
	for range 10 {
		dialFrom(t, "127.0.0.1", l.Addr()) // no handshake
	}
	for range 11 {
		c := tls.Client(dialFrom(t, "127.0.0.1", l.Addr()), &tls.Config{RootCAs: authority.Pool(), ServerName: "127.0.0.1"})
		if got := asks(c, "/"); got != "hello" {
			t.Errorf("%q", got)
		}
	}
	for range 11 { // over HTTP/2, which says by itself when no request is under way
		transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: authority.Pool()}, ForceAttemptHTTP2: true}
		defer transport.CloseIdleConnections()
		resp, err := (&http.Client{Transport: transport, Timeout: time.Minute}).Get("https://" + l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if _ = resp.Body.Close(); resp.ProtoMajor != 2 || resp.StatusCode != http.StatusOK {
			t.Errorf("%s %s", resp.Proto, resp.Status)
		}
	}
}

// busy holds n requests under way from an address, until the test's handler lets them go.
func busy(t *testing.T, from string, l net.Listener, n int, begun <-chan struct{}) (conns []net.Conn) {
	t.Helper()
	for range n {
		c := dialFrom(t, from, l.Addr())
		if _, err := io.WriteString(c, "GET /slow HTTP/1.1\r\nHost: tallygate\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		<-begun
		conns = append(conns, c)
	}
	return conns
}

// Requests under way keep their connections; one address has nine tenths of the places at most. What is
// more waits for the others, and is turned away if it is of the same address.
func TestRequestsUnderWayGiveNoWay(t *testing.T) {
	begun, finish := make(chan struct{}), make(chan struct{})
	l := listen(t)
	serves(t, l, 10, nil, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			begun <- struct{}{}
			<-finish
		}
		hello(w, r)
	})
	nine := busy(t, "127.0.0.1", l, 9, begun)
	if got := asks(dialFrom(t, "127.0.0.1", l.Addr()), "/"); got != "" {
		t.Errorf("a tenth connection of one address got %q", got)
	}
	if got := asks(dialFrom(t, "127.0.0.2", l.Addr()), "/"); got != "hello" {
		t.Errorf("another address got %q", got)
	}
	last := busy(t, "127.0.0.2", l, 1, begun)
	late := make(chan string, 1)
	c := dialFrom(t, "127.0.0.3", l.Addr())
	go func() { late <- asks(c, "/") }()
	select {
	case got := <-late:
		t.Errorf("with all places taken somebody got %q", got)
	case <-time.After(50 * time.Millisecond):
	}
	close(finish)
	if got := <-late; got != "hello" {
		t.Errorf("when places were free again: %q", got)
	}
	for _, c := range append(nine, last...) {
		if resp, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || resp.StatusCode != http.StatusOK {
			t.Errorf("a request under way: %v", err)
		}
	}
}

// Behind a Unix socket nobody has an address; all share the places, and idle ones give way.
func TestAUnixSocketHasNoAddresses(t *testing.T) {
	l, err := ops.Listen("listen", "unix:"+filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	serves(t, l, 10, nil, hello)
	var got string
	for range 30 {
		c, err := net.Dial("unix", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		got = asks(c, "/")
	}
	if got != "hello" {
		t.Errorf("%q", got)
	}
}

// Who waits for a place must not keep a closed listener from ending.
func TestAClosedListenerEndsWhoWaits(t *testing.T) {
	inner := listen(t)
	l := ops.Guard(inner, 1, nil)
	dialFrom(t, "127.0.0.1", inner.Addr())
	dialFrom(t, "127.0.0.1", inner.Addr())
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	ended := make(chan error, 1)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	_ = l.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) && !errors.Is(err, os.ErrClosed) {
		t.Errorf("%v", err)
	}
}
