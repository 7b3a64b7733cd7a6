package fenced

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
)

// fault selects the fate of a produce request.
type fault int

const (
	none        fault = iota
	lostAnswer        // the broker works on it, but its answer never arrives
	lostRequest       // it never arrives
)

// dialer opens connections that break in the middle of produce requests, as next decides.
type dialer struct {
	mu    sync.Mutex
	next  func() fault
	hits  int
	dials int
}

func (d *dialer) Dial(network, addr string) (net.Conn, error) {
	c, err := net.Dial(network, addr)
	if err != nil {
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.dials++
	return &faultyConn{Conn: c, d: d}, nil
}

func (d *dialer) opened() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dials
}

func (d *dialer) fault() fault {
	d.mu.Lock()
	defer d.mu.Unlock()
	f := d.next()
	if f != none {
		d.hits++
	}
	return f
}

func (d *dialer) faults() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.hits
}

// faultyConn relies on sarama's writing a request in one piece, and on one request at a time.
type faultyConn struct {
	net.Conn
	d *dialer

	mu     sync.Mutex
	broken bool
}

func (c *faultyConn) Write(b []byte) (int, error) {
	if binary.BigEndian.Uint16(b[4:]) != 0 { // the API key of Produce
		return c.Conn.Write(b)
	}
	switch c.d.fault() {
	case lostRequest:
		c.breakOff()
		return len(b), nil
	case lostAnswer:
		c.mu.Lock()
		defer c.mu.Unlock()
		c.broken = true // whoever reads meanwhile must not get it
		return c.Conn.Write(b)
	}
	return c.Conn.Write(b)
}

func (c *faultyConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.broken { // the answer has come: what was sent is in the log
		_ = c.Conn.Close()
		return 0, io.EOF
	}
	return n, err
}

func (c *faultyConn) breakOff() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = true
	_ = c.Conn.Close()
}
