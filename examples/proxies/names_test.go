package proxies

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tallygate/tallygate/internal/testing/servers"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// nginxNames answers each exact location with the name that all ways to it have.
const nginxNames = `daemon off; pid nginx.pid; worker_processes 1;
events {}
http {
    access_log off;
    client_body_temp_path tmp; proxy_temp_path tmp; fastcgi_temp_path tmp; uwsgi_temp_path tmp; scgi_temp_path tmp;
    server {
        listen %s;
        location = /               { return 200 "get"; }
        location = /search         { return 200 "get.search"; }
        location = /search/        { return 200 "get.search"; }
        location = /search/query   { return 200 "get.search.query"; }
        location = "/a b/c;d"      { return 200 "get.a-b.c"; }
        location = /é              { return 200 "get.-"; }
        location /                 { return 404; }
    }
}
`

// Whatever reaches the same location of nginx has the same name, however it is written.
func TestNamesAgreeWithNginx(t *testing.T) {
	path := program(t, "nginx")
	r, dir := &rig{t: t, proxy: servers.FreeAddr(t)}, t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "main.conf"), fmt.Appendf(nil, nginxNames, r.proxy), 0o600); err != nil {
		t.Fatal(err)
	}
	r.start(dir, path, "-p", dir, "-c", "main.conf", "-e", "stderr")
	c := &rawClient{addr: r.proxy}
	defer c.close()
	reached := 0
	check := func(t interface{ Fatalf(string, ...any) }, method, target string) {
		want, err := c.ask(method, target)
		if err != nil {
			t.Fatalf("%s %q: %v", method, target, err)
		}
		if want == "" {
			return
		}
		reached++
		if got := httplimit.PathAPI(method, target); got != want {
			t.Fatalf("%s %q reaches %s, and its name is %s", method, target, want, got)
		}
	}
	for _, target := range []string{"/%73earch", "//search", "/x/../search", "/x/%2e%2E/search?q", "/x/..%2fsearch", "/search#x", "/x//../search", "/./search", "/%C3%A9",
		"http://h/search", "/a%20b/c%3Bd", "/x/%2e%2e%2fsearch%2f%2fquery", "/search%23", "/search%3f", "/search/."} {
		check(t, http.MethodGet, target)
	}
	rapid.Check(t, func(t *rapid.T) {
		for _, target := range rapid.SliceOfN(rapid.Custom(drawTarget), 30, 30).Draw(t, "targets") {
			check(t, http.MethodGet, target)
		}
	})
	if reached < 100 {
		t.Errorf("only %d requests reached a location: nothing is compared", reached)
	}
}

// drawTarget draws a way of writing one of a few paths, or something near one.
func drawTarget(t *rapid.T) string {
	path := rapid.SampledFrom([]string{"/", "/search", "/search/", "/search/query", "/a b/c;d", "/é"}).Draw(t, "path")
	var out strings.Builder
	for i := range len(path) {
		switch c, how := path[i], rapid.IntRange(0, 15).Draw(t, "how"); {
		case how < 3 || c <= ' ':
			fmt.Fprintf(&out, "%%%02x", c)
		case how == 3:
			out.WriteString(rapid.SampledFrom([]string{"//", "/./", "/x/../", "/%2e/", "/%2E%2e/", "/x/.%2e/", "%2f", "%2F..%2f", "/y//../"}).Draw(t, "more") + strings.TrimPrefix(string(c), "/"))
		default:
			out.WriteByte(c)
		}
	}
	return rapid.SampledFrom([]string{"", "", "", "http://h"}).Draw(t, "before") + out.String() +
		rapid.SampledFrom([]string{"", "", "", "?q", "#f", "/.", "/x/..", ";p=1", "%23", "\\", "%"}).Draw(t, "behind")
}

// rawClient sends requests as they are written, over one connection as long as nginx keeps it.
type rawClient struct {
	addr string
	conn net.Conn
	in   *bufio.Reader
}

func (c *rawClient) close() {
	if c.conn != nil {
		_ = c.conn.Close()
		c.conn = nil
	}
}

// ask returns the body of a 200, else nothing.
func (c *rawClient) ask(method, target string) (string, error) {
	if c.conn == nil {
		conn, err := net.Dial("tcp", c.addr)
		if err != nil {
			return "", err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	if err := c.conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	if _, err := fmt.Fprintf(c.conn, "%s %s HTTP/1.1\r\nHost: h\r\n\r\n", method, target); err != nil {
		return "", err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return "", err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.Close {
		c.close()
	}
	if resp.StatusCode != http.StatusOK {
		return "", err
	}
	return string(body), err
}
