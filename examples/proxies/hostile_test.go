package proxies

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// hostile are requests of a client that is blocked, each of which is for GET /search of a host.
func hostile(host string) map[string]string {
	all := map[string]string{}
	add := func(about, target string, headers ...string) {
		all[about] = "GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\nX-User: 42\r\n" + strings.Join(headers, "") + "\r\n"
	}
	for _, n := range []int{1000, 7900, 8100, 14_000, 15_000, 15_200, 15_280, 15_300, 15_340, 16_300, 30_000, 41_000, 55_000, 61_000, 100_000, 500_000, 1_040_000} {
		long := strings.Repeat("a", n)
		add(fmt.Sprint("a query of ", n), "/search?"+long)
		add(fmt.Sprint("a parameter of ", n), "/search;"+long)
		add(fmt.Sprint("dots of ", n), strings.Repeat("/.", n/2)+"/search")
		add(fmt.Sprint("Accept-Language of ", n), "/search", "Accept-Language: "+long+"\r\n")
		add(fmt.Sprint("cookie of ", n), "/search", "Cookie: a="+long+"\r\n")
		add(fmt.Sprint("many headers, ", n), "/search", strings.Repeat("X-A: bcdef\r\n", n/12))
	}
	for _, query := range []string{"\xff", "\xe2\x28", "%zz", "%", "%00", "%ff%0d%0a", `"'<>{}|\^`, "é", "\x7f", "\x01", "#x", "?", "http://[::1"} {
		add(fmt.Sprintf("the query %q", query), "/search?"+query)
		add(fmt.Sprintf("the parameter %q", query), "/search;"+strings.NewReplacer("/", "", "\\", "").Replace(query))
	}
	for _, value := range []string{"\xff", "\x01", "\x7f", "\t", `"\`, "é"} {
		add(fmt.Sprintf("a header of %q", value), "/search", "X-Tallygate-Attr-A: "+value+"\r\nAccept-Language: "+value+"\r\nTracestate: "+value+"\r\n")
	}
	add("an expectation", "/search", "Expect: the impossible\r\n")
	add("an upgrade", "/search", "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\n")
	add("trailers", "/search", "TE: trailers\r\nTrailer: X-A\r\n")
	add("a body", "/search", "Content-Length: 5\r\n")
	all["a body"] += "hello"
	return all
}

// raw sends a request as it is. The status is 0 when the proxy closes without an answer.
func (r *rig) raw(request string) (status int, body string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.proxy)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = io.WriteString(conn, request) }()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	content, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
	return resp.StatusCode, string(content)
}

// raw2 is raw over HTTP/2, without TLS.
func (r *rig) raw2(path, user string) (status string) {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.proxy)
	if err != nil {
		r.t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(patience))
	var block bytes.Buffer
	e := hpack.NewEncoder(&block)
	for _, h := range [][2]string{{":method", "GET"}, {":scheme", "http"}, {":authority", "shop"}, {":path", path}, {"x-user", user}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	_, _ = io.WriteString(conn, http2.ClientPreface)
	f := http2.NewFramer(conn, conn)
	f.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_ = f.WriteSettings()
	_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndHeaders: true, EndStream: true})
	for {
		frame, err := f.ReadFrame()
		if err != nil {
			return err.Error()
		}
		switch frame := frame.(type) {
		case *http2.SettingsFrame:
			if !frame.IsAck() {
				_ = f.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			return frame.PseudoValue("status")
		case *http2.RSTStreamFrame:
			return frame.ErrCode.String()
		}
	}
}

// A client could make the question fail, by a long path or by bytes that are not UTF-8, and what fails is
// open. These files are open while the decision server is away, and it is not.
func TestNoClientMakesTheQuestionFail(t *testing.T) {
	for name, c := range recipes {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			program(t, c.program)
			r := newRig(t, runsWith(t, c.file))
			r.patient = true // only a question that fails is open, not a slow machine
			c.run(r)
			reached := 0
			for about, request := range hostile(r.proxy) {
				status, body := r.raw(request)
				if strings.Contains(body, "the app got") || status == http.StatusOK || status == http.StatusSwitchingProtocols {
					t.Errorf("%s: %d %s", about, status, body)
				}
				if status == http.StatusTooManyRequests {
					reached++
				}
			}
			if reached < 30 {
				t.Errorf("%d requests were denied by the decision server", reached)
			}
			if c.program == "envoy" {
				for _, path := range []string{"/search?\xff", "/search?\xe2\x28", "/search;\x80"} {
					if status := r.raw2(path, "42"); status == "200" {
						t.Errorf("%q over HTTP/2: %s", path, status)
					}
				}
				if status := r.raw2("/search", "\xff43"); status != "200" {
					t.Errorf("a user's name of bytes: %s", status)
				}
			}
			if a := r.ask(http.MethodGet, "/search", "X-User: 43"); a.status != http.StatusOK {
				t.Errorf("another user: %+v", a)
			}
		})
	}
}
