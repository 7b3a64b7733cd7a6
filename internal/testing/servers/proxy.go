package servers

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Network is the network between a client and its servers. A test can cut it, stall it, drop replies
// and slow it down. Give its Dial to the client. Every address that the client learns, such as from a
// Cluster or a Sentinel, is reached through it, by one TCP proxy each.
//
// The gate of internal/testing/e2e is another proxy, for another job: it is one fixed address for a process
// that has no Dial to give away, it holds bytes back and loses none, and it knows Kafka's requests. A
// Network loses what it stalls, as a broken route does.
type Network struct {
	t       testing.TB
	ctx     context.Context
	running sync.WaitGroup
	dials   atomic.Int64

	mu      sync.Mutex
	proxies map[string]net.Listener // by the server's address
	pairs   map[*pair]struct{}
	cut     bool
	stalled bool
	delay   time.Duration
}

// pair is one connection: its client's side and its server's.
type pair struct {
	client, server net.Conn
	stalled        atomic.Bool // what comes is dropped, both ways
	repliesDropped atomic.Bool // only what the server sends is dropped
}

// NewNetwork returns a network without faults, which ends with the test.
func NewNetwork(t testing.TB) *Network {
	ctx, cancel := context.WithCancel(context.Background())
	n := &Network{t: t, ctx: ctx, proxies: map[string]net.Listener{}, pairs: map[*pair]struct{}{}}
	t.Cleanup(func() {
		cancel()
		n.mu.Lock()
		for _, l := range n.proxies {
			_ = l.Close()
		}
		for p := range n.pairs {
			p.close()
		}
		n.mu.Unlock()
		n.running.Wait()
	})
	return n
}

func (p *pair) close() { _, _ = p.client.Close(), p.server.Close() }

// Dial connects to a server through the network.
func (n *Network) Dial(ctx context.Context, _, addr string) (net.Conn, error) {
	n.dials.Add(1)
	through, err := n.Through(addr)
	if err != nil {
		return nil, err
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", through)
}

// Dials returns how often Dial was called.
func (n *Network) Dials() int64 { return n.dials.Load() }

// Through returns the address at which the server at addr is reached through the network.
func (n *Network) Through(addr string) (string, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.proxies[addr]
	if l == nil {
		var err error
		if l, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			return "", err
		}
		n.proxies[addr] = l
		n.running.Go(func() { n.serve(l, addr) })
	}
	return l.Addr().String(), nil
}

func (n *Network) serve(l net.Listener, addr string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return // the test is over
		}
		n.running.Go(func() { n.join(client, addr) })
	}
}

// join connects a client with its server, until one of them leaves or the network is cut.
func (n *Network) join(client net.Conn, addr string) {
	defer func() { _ = client.Close() }()
	server, err := (&net.Dialer{}).DialContext(n.ctx, "tcp", addr)
	if err != nil {
		return // the server is away: so is the connection
	}
	p := &pair{client: client, server: server}
	n.mu.Lock()
	if n.cut || n.ctx.Err() != nil {
		n.mu.Unlock()
		p.close()
		return
	}
	p.stalled.Store(n.stalled)
	n.pairs[p] = struct{}{}
	n.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { n.forward(p, server, client) })
	both.Go(func() { n.forward(p, client, server) })
	both.Wait()
	n.mu.Lock()
	delete(n.pairs, p)
	n.mu.Unlock()
}

func (n *Network) forward(p *pair, dst, src net.Conn) {
	defer p.close()
	buf := make([]byte, 32<<10)
	for {
		size, err := src.Read(buf)
		if err != nil {
			return
		}
		n.mu.Lock()
		delay := n.delay
		n.mu.Unlock()
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-n.ctx.Done():
				return
			}
		}
		if p.stalled.Load() || src == p.server && p.repliesDropped.Load() {
			continue
		}
		if _, err := dst.Write(buf[:size]); err != nil {
			return
		}
	}
}

// Cut closes all connections, and each new one at once, until Heal.
func (n *Network) Cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut = true
	for p := range n.pairs {
		p.close()
	}
}

// Stall drops what the connections carry, without closing them, and so with new ones until Heal:
// both sides wait. A connection that was stalled never works again.
func (n *Network) Stall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stalled = true
	for p := range n.pairs {
		p.stalled.Store(true)
	}
}

// DropReplies leaves the connections half open: requests arrive, and replies are dropped. New
// connections work.
func (n *Network) DropReplies() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for p := range n.pairs {
		p.repliesDropped.Store(true)
	}
}

// Slow makes every packet wait, until Heal.
func (n *Network) Slow(delay time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.delay = delay
}

// Heal ends all faults, for connections made from now on.
func (n *Network) Heal() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cut, n.stalled, n.delay = false, false, 0
}
