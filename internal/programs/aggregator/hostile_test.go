package aggregator

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/testing/testca"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// Whatever is sent to its listeners, an aggregator goes on answering those who may ask, and in the
// end it stops as it should.
func TestHostileClients(t *testing.T) {
	t.Parallel()
	seed := testrun.Seed(t)
	ca := testca.New(t)
	cert, key := ca.Files("aggregator")
	// More places than the attackers have connections that the program has not yet seen closed: who behaves comes from
	// their address, and beyond its share the program closes idle and new connections alike.
	p := joined(t, groupOf(t, someRules), ca.Client(""), "--tokens", staff(t), "--tls-cert", cert, "--tls-key", key, "--max-connections", "1000")
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Second)
	defer stop()
	var wg sync.WaitGroup
	for i := range uint64(16) {
		wg.Go(func() {
			for r := rand.New(rand.NewPCG(seed, i)); ctx.Err() == nil; {
				attack(ctx, r, p)
			}
		})
	}
	for ctx.Err() == nil {
		if got, said := p.ask("viewer", http.MethodGet, "/v1/explain?uid=1", ""); got != http.StatusOK {
			t.Errorf("a client that behaves: %d %s", got, said)
		}
		if got, said := p.ask("", http.MethodPost, "/v1/commands", block("1")); got != http.StatusUnauthorized {
			t.Errorf("one without a token: %d %s", got, said)
		}
	}
	wg.Wait()
	if got, said := p.ask("operator", http.MethodPost, "/v1/commands", block("1")); got != http.StatusOK {
		t.Errorf("a command afterwards: %d %s", got, said)
	}
}

// attack sends one hostile request, or half of one, with a token or without.
func attack(ctx context.Context, r *rand.Rand, p *program) {
	at := []string{p.HTTP.Addr().String(), p.HTTP.Addr().String(), p.Metrics.Addr().String()}[r.IntN(3)]
	c, err := (&net.Dialer{Timeout: time.Second}).DialContext(ctx, "tcp", at)
	if err != nil {
		return
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(time.Duration(100+r.IntN(900)) * time.Millisecond))
	if at != p.Metrics.Addr().String() && r.IntN(6) > 0 {
		c = tls.Client(c, &tls.Config{InsecureSkipVerify: true}) //nolint:gosec // it is a test's own server
	}
	path := []string{"/v1/commands", "/v1/dead-letters", "/-/reload", "/v1/explain?uid=" + strings.Repeat("u", 10_000), "/v1/blocked?partition=99999999999", "/v1/hot-keys?limit=-1"}[r.IntN(6)]
	head := "POST " + path + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	if r.IntN(2) == 0 {
		head += "Authorization: Bearer admin\r\n"
	}
	big := strings.Repeat("x", 1<<20)
	sent := []string{
		head + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(big)) + big,
		head + "Transfer-Encoding: chunked\r\n\r\n100000\r\n" + big + "\r\n0\r\n\r\n",
		head + "X-Tallygate-Peer: " + big + "\r\n\r\n",
		head + "X-Tallygate-Peer: " + strings.Repeat("e30", 1000) + ".e30\r\nContent-Length: 2\r\n\r\n{}",
		head + strings.Repeat("Authorization: Bearer b\r\n", 20_000) + "\r\n",
		head + "Content-Length: -1\r\n\r\n{}",
		head + "Content-Length: 99999\r\n\r\n{\"command\":" + strings.Repeat(`{"key":`, 5000),
		(head + "Content-Length: 100\r\n\r\n{")[:20+r.IntN(20)],
		strings.Repeat("GET /v1/hot-keys HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer viewer\r\n\r\n", 200),
		big,
	}[r.IntN(10)]
	_, _ = io.WriteString(c, sent)
	if r.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, io.LimitReader(c, 1<<20))
	}
}

// No more connections are open at once than was said: one on which nobody asks gives way to a new one.
func TestConnectionsAreBounded(t *testing.T) {
	p := joined(t, groupOf(t, someRules), nil, "--max-connections", "2")
	var conns []net.Conn
	for range 3 {
		c, err := net.Dial("tcp", p.HTTP.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(time.Minute))
		conns = append(conns, c)
	}
	if n, err := conns[0].Read(make([]byte, 1)); n != 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the first of three stays open: %d bytes, %v", n, err)
	}
	for i, c := range conns[1:] {
		_, _ = io.WriteString(c, "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if line, err := bufio.NewReader(c).ReadString('\n'); !strings.Contains(line, "200") {
			t.Errorf("connection %d is not answered: %q, %v", i+1, line, err)
		}
	}
}
