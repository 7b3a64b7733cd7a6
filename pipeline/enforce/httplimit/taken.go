package httplimit

import (
	"net"
	"sync"
)

// takenConn is a connection that a handler has taken over by http.Hijacker.
type takenConn struct {
	net.Conn

	mu     sync.Mutex
	closed bool
	then   func() // at the end; nil: nothing, or not yet known
}

// closesWriting is a connection of which one direction can be closed, as that of TCP.
type closesWriting interface{ CloseWrite() error }

// takenDuplex is a takenConn that closesWriting: proxies ask for it.
type takenDuplex struct {
	*takenConn
	closesWriting
}

// NetConn is the connection itself. Whoever closes it directly leaves what is held to the end of its hold.
func (c *takenConn) NetConn() net.Conn { return c.Conn }

// Close closes the connection, and ends what was held for it.
func (c *takenConn) Close() error {
	err := c.Conn.Close()
	c.mu.Lock()
	then := c.then
	c.closed, c.then = true, nil
	c.mu.Unlock()
	if then != nil {
		then()
	}
	return err
}

// whenClosed calls a function once the connection is closed: now, if it is.
func (c *takenConn) whenClosed(then func()) {
	c.mu.Lock()
	closed := c.closed
	if !closed {
		c.then = then
	}
	c.mu.Unlock()
	if closed {
		then()
	}
}
