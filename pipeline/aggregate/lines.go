package aggregate

import (
	"net"
	"sync"

	"github.com/IBM/sarama"
)

// lines dials for a client of sarama, and hangs up: sarama waits for the answer to a join whatever becomes of the
// context, and a broker holds that back while another member is missed, up to its session timeout.
//
// Closing sarama's broker instead would not do: it waits until each request that is under way has its answer. Nor would
// closing the group, which waits for the lock that the join holds.
type lines struct {
	dialer dialer
	mu     sync.Mutex
	open   map[*line]struct{} // those that nobody has closed
}

// line is a connection that is forgotten when it is closed: a broker that restarts often would fill the map.
type line struct {
	net.Conn
	of *lines
}

// dialer is sarama's proxy.Dialer. The caller's does TLS and SASL: sarama gets connections that are ready.
type dialer interface {
	Dial(network, address string) (net.Conn, error)
}

// dialerOf returns what sarama dials with by these settings, as its Config.getDialer does.
func dialerOf(cfg *sarama.Config) dialer {
	if cfg.Net.Proxy.Enable {
		return cfg.Net.Proxy.Dialer
	}
	return &net.Dialer{Timeout: cfg.Net.DialTimeout, KeepAlive: cfg.Net.KeepAlive, LocalAddr: cfg.Net.LocalAddr}
}

// tapped makes the client of cfg dial by lines. cfg itself is left alone: other clients of the instance have it, too, and
// theirs must last until the last checkpoint is written.
func tapped(cfg *sarama.Config) (*sarama.Config, *lines) {
	l := &lines{open: map[*line]struct{}{}, dialer: dialerOf(cfg)}
	own := *cfg
	own.Net.Proxy.Enable, own.Net.Proxy.Dialer = true, l
	return &own, l
}

// Dial is for sarama.
func (l *lines) Dial(network, address string) (net.Conn, error) {
	conn, err := l.dialer.Dial(network, address)
	if err != nil {
		return nil, err
	}
	c := &line{conn, l}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open[c] = struct{}{}
	return c, nil
}

// Close ends the connection.
func (c *line) Close() error {
	c.of.mu.Lock()
	delete(c.of.open, c)
	c.of.mu.Unlock()
	return c.Conn.Close()
}

// hangUp closes all connections; what is dialed afterwards, to leave the group, works.
func (l *lines) hangUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		_ = c.Conn.Close()
	}
}
