package ops_test

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/run/ops"
)

// What net/http refuses had no length, and a proxy that waited for its end was open to who sent it.
func TestServeRefusesInItsOwnFormat(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	l, ended := listen(t), make(chan error, 1)
	handler := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "418 of a handler")
	})
	go func() { ended <- ops.Serve(ctx, l, handler) }()
	for _, c := range []struct {
		about, request string
		status         int
	}{
		{"a path that is none", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
		{"a header with a control character", "GET / HTTP/1.1\r\nHost: x\r\nX-User: 4\x012\r\n\r\n", 400},
		{"a header without a name", "GET / HTTP/1.1\r\nHost: x\r\n: 1\r\n\r\n", 400},
		{"no host", "GET / HTTP/1.1\r\n\r\n", 400},
		{"two hosts", "GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400},
		{"no HTTP", "GET /\r\n\r\n", 400},
		{"a version of tomorrow", "GET / HTTP/3.7\r\nHost: x\r\n\r\n", 505},
		{"an encoding", "POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\n", 501},
		{"two lengths", "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400},
		{"a large header", "GET / HTTP/1.1\r\nHost: x\r\nX-A: " + strings.Repeat("a", 40<<10) + "\r\n\r\n", 431},
		{"a long path", "GET /" + strings.Repeat("a", 40<<10) + " HTTP/1.1\r\nHost: x\r\n\r\n", 431},
		{"a handler's own", "GET / HTTP/1.1\r\nHost: x\r\n\r\n", 418},
	} {
		conn, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		go func() { _, _ = io.WriteString(conn, c.request) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatalf("%s: %v", c.about, err)
		}
		body, err := io.ReadAll(resp.Body)
		var problem struct {
			Title, Detail string
			Status        int
		}
		switch {
		case err != nil || resp.StatusCode != c.status || resp.ContentLength != int64(len(body)):
			t.Errorf("%s: %s with a length of %d, %v: %s", c.about, resp.Status, resp.ContentLength, err, body)
		case c.status == http.StatusTeapot:
			if string(body) != "418 of a handler" {
				t.Errorf("%s: %s", c.about, body)
			}
		case json.Unmarshal(body, &problem) != nil || problem.Status != c.status || problem.Title == "" || problem.Detail == "" ||
			resp.Header.Get("Content-Type") != "application/problem+json":
			t.Errorf("%s: %s, %s", c.about, resp.Header.Get("Content-Type"), body)
		}
		_ = conn.Close()
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
