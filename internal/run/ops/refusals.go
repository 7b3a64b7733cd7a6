package ops

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strconv"

	"github.com/tallygate/tallygate/api"
)

// refusals is a listener on which a request that net/http refuses before any handler sees it is answered
// as all others are: in problem+json, with a length. net/http's own answer has none, and after one about
// too large a header it keeps the connection for half a second. A proxy that waits for the end takes that
// for a failure, and may let the request in. Connections with TLS are left alone, since net/http has to
// see that they are.
type refusals struct{ net.Listener }

func (l refusals) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if _, is := c.(*tls.Conn); is || err != nil {
		return c, err
	}
	return &refusing{c}, nil
}

type refusing struct{ net.Conn }

// Write is told of net/http's own answers in one piece.
func (c *refusing) Write(p []byte) (int, error) {
	own := refusal(p)
	if own == nil {
		return c.Conn.Write(p)
	}
	if _, err := c.Conn.Write(own); err != nil {
		return 0, err
	}
	return len(p), nil
}

// CloseWrite lets a client that still sends read the answer.
func (c *refusing) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return nil
}

// What net/http's own answers begin with: a status line, and behind it these headers, without the date
// that each answer of a handler has.
var (
	statusLine = []byte("HTTP/1.1 ")
	ownHeaders = []byte("\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\n")
)

// refusal is the answer in place of one of net/http's own; nil: it is none of these.
func refusal(p []byte) []byte {
	line := bytes.IndexByte(p, '\r')
	if line < len(statusLine)+3 || !bytes.HasPrefix(p, statusLine) || !bytes.HasPrefix(p[line:], ownHeaders) {
		return nil
	}
	status, err := strconv.Atoi(string(p[len(statusLine) : len(statusLine)+3]))
	if err != nil {
		return nil
	}
	title := http.StatusText(status)
	body, err := json.Marshal(api.NewProblem(status, string(p[line+len(ownHeaders):])))
	if err != nil {
		return nil
	}
	return fmt.Appendf(nil, "HTTP/1.1 %d %s\r\nCache-Control: no-store\r\nConnection: close\r\nContent-Length: %d\r\nContent-Type: application/problem+json\r\n\r\n%s",
		status, title, len(body), body)
}
