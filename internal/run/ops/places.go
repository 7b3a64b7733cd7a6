package ops

import (
	"container/list"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"sync"
)

// places is a listener with a bounded number of open connections. When it is reached, connections on which
// no request is under way give way to new ones, the one that waits longest first; are there none, new ones
// wait. One client's address has at most nine tenths of the places, so that it cannot keep out all others;
// what it opens beyond takes the place of its own, or is closed.
//
// netutil.LimitListener counts all alike: whoever opens enough connections and sends nothing closes the
// program to everybody.
type places struct {
	net.Listener
	all, each int

	mu      sync.Mutex
	changed sync.Cond // a place is free, or a connection waits for a request
	closed  bool
	open    int
	from    map[netip.Prefix]int // open connections by client
	conns   list.List            // those that wait for a request, longest first; then mark; then the others
	mark    *list.Element
}

func newPlaces(l net.Listener, all int) *places {
	p := &places{Listener: l, all: all, each: all - all/10, from: map[netip.Prefix]int{}}
	p.changed.L = &p.mu
	p.mark = p.conns.PushBack(nil)
	return p
}

// Accept returns the next connection that has a place.
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		placed := &placed{Conn: c, in: p, client: clientOf(c.RemoteAddr())}
		gone, ok := p.take(placed)
		if gone != nil {
			_ = gone.Conn.Close() // its reader ends, and closes what is around it
		}
		if ok {
			return placed, nil
		}
		_ = c.Close()
	}
}

// take gives c a place, and returns the connection that had it before; nil: the place was free. It waits
// while all places are taken by requests under way.
func (p *places) take(c *placed) (gone *placed, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.closed {
		beyond, full := p.each < p.all && p.from[c.client] >= p.each && c.client.IsValid(), p.open >= p.all
		if beyond || full {
			gone = p.longest(c.client, beyond)
			if gone == nil && beyond {
				return nil, false
			}
			if gone == nil {
				p.changed.Wait()
				continue
			}
			p.leave(gone)
		}
		p.open++
		p.from[c.client]++
		c.at = p.conns.PushBack(c)
		return gone, true
	}
	return nil, false
}

// longest returns the connection that waits for a request longest, of all or of this client; nil if there
// is none.
func (p *places) longest(client netip.Prefix, only bool) *placed {
	for e := p.conns.Front(); e != p.mark; e = e.Next() { // a client beyond its bound leaves a tenth to others
		if c := e.Value.(*placed); !only || c.client == client {
			return c
		}
	}
	return nil
}

// leave frees c's place, once.
func (p *places) leave(c *placed) {
	if c.at == nil {
		return
	}
	p.conns.Remove(c.at)
	c.at = nil
	p.open--
	if p.from[c.client]--; p.from[c.client] == 0 {
		delete(p.from, c.client)
	}
	p.changed.Signal()
}

// Close ends who waits for a place, too.
func (p *places) Close() error {
	err := p.Listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	p.changed.Broadcast()
	return err
}

// placed is a connection that has a place. It counts as one with a request under way until the server says
// that it waits for one.
type placed struct {
	net.Conn
	in     *places
	client netip.Prefix
	at     *list.Element // in places.conns; nil: it has no place any more
}

func (c *placed) Close() error {
	err := c.Conn.Close()
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	c.in.leave(c)
	return err
}

// CloseWrite lets a client that still sends read the answer.
func (c *placed) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// waits marks a connection that waits for a request, or for the rest of its header.
func (c *placed) waits(does bool) {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	switch {
	case c.at == nil:
	case does:
		c.in.conns.MoveBefore(c.at, c.in.mark)
		c.in.changed.Signal()
	default:
		c.in.conns.MoveToBack(c.at)
	}
}

// tellPlaces has a server tell the places of its listener which connections wait for a request.
func tellPlaces(s *http.Server) {
	s.ConnState = func(c net.Conn, state http.ConnState) {
		for {
			switch of := c.(type) {
			case *refusing:
				c = of.Conn
			case *tls.Conn:
				c = of.NetConn()
			case *placed:
				of.waits(state == http.StateNew || state == http.StateIdle)
				return
			default:
				return
			}
		}
	}
}

// clientOf identifies the client at an address: an IPv4 address, or a network of /64, of which one client has all
// addresses. It is not valid for one of a Unix socket.
func clientOf(a net.Addr) netip.Prefix {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	ip := tcp.AddrPort().Addr().Unmap()
	client, _ := ip.WithZone("").Prefix(min(ip.BitLen(), 64))
	return client
}
