package redisconn

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// sentinelPassword lets Sentinels' password be read again at each connection. The library takes it
// only as a text, and sends that text whenever it connects to one. It is given one that nobody else
// has, and a connection to a Sentinel sends what is in the file instead.
type sentinelPassword struct {
	token []byte // as it is sent: a bulk string of RESP
	read  func() (string, error)
}

func newSentinelPassword(read func() (string, error)) (p *sentinelPassword, token string) {
	token = rand.Text()
	return &sentinelPassword{token: bulk(token), read: read}, token
}

func bulk(text string) []byte { return fmt.Appendf(nil, "$%d\r\n%s\r\n", len(text), text) }

// sentinelConn is a connection that may be one to a Sentinel.
type sentinelConn struct {
	net.Conn
	password *sentinelPassword
	begun    atomic.Bool // what comes first, which has the password, is written
}

// Write writes the password where the token is. The library greets with it first, and says it once
// more to a server that does not know the greeting; nothing that comes later has it.
func (c *sentinelConn) Write(b []byte) (int, error) {
	if c.begun.Load() {
		return c.Conn.Write(b)
	}
	if !bytes.Contains(b, c.password.token) {
		c.begun.Store(true)
		return c.Conn.Write(b)
	}
	secret, err := c.password.read()
	if err != nil {
		return 0, fmt.Errorf("connect to a Sentinel: %w", &ops.Refusal{Err: err})
	}
	if _, err := c.Conn.Write(bytes.ReplaceAll(b, c.password.token, bulk(secret))); err != nil {
		return 0, err
	}
	return len(b), nil
}

// unlessSentinel is the connection itself for those that are found to be Redis' own.
func unlessSentinel(conn net.Conn) net.Conn {
	if c, ok := conn.(*sentinelConn); ok {
		return c.Conn
	}
	return conn
}
