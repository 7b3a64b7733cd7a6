package enforcer

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// connect opens a connection that ends within a second or two, whatever happens on it.
func connect(ctx context.Context, r *rand.Rand, at target) net.Conn {
	c, err := dial(ctx, at.addr)
	if err != nil {
		return nil
	}
	_ = c.SetDeadline(time.Now().Add(time.Second + time.Duration(r.IntN(1000))*time.Millisecond))
	if at.tls && r.IntN(8) > 0 { // now and then, what comes is no TLS
		protocols := []string{"h2"}
		if !at.grpc {
			protocols = nil
		}
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true, NextProtos: protocols}) //nolint:gosec // it is a test's own server
	}
	return c
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

// attackHTTP1 sends one hostile request, or half of one.
func attackHTTP1(ctx context.Context, r *rand.Rand, at target) {
	c := connect(ctx, r, at)
	if c == nil {
		return
	}
	defer func() { _ = c.Close() }()
	path := []string{"/v1/check", "/v1/check/batch", "/v1/forward-auth", "/v1/ext-authz//../%2e%2e/%00", "/v1/blocklist?limit=1000&cursor=%ff", "/metrics", "/" + strings.Repeat("a/", r.IntN(30_000))}[r.IntN(7)]
	post := "POST " + path + " HTTP/1.1\r\nHost: x\r\n"
	big := strings.Repeat("x", 2<<20)
	var sent string
	switch r.IntN(12) {
	case 0: // too large
		sent = post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(big)) + big
	case 1: // too large, without saying so
		sent = post + "Transfer-Encoding: chunked\r\n\r\n200000\r\n" + big + "\r\n0\r\n\r\n"
	case 2: // one huge header
		sent = post + "X-Tallygate-Uid: " + big + "\r\n\r\n"
	case 3: // very many headers
		sent = post + strings.Repeat("X-Tallygate-Attr-A: b\r\n", 50_000) + "\r\n"
	case 4: // lengths that lie
		sent = post + []string{"Content-Length: -1", "Content-Length: 99999999999999999999", "Content-Length: 5\r\nContent-Length: 6",
			"Content-Length: 3\r\nTransfer-Encoding: chunked", "Transfer-Encoding: gzip, chunked"}[r.IntN(5)] + "\r\n\r\n{}"
	case 5: // chunks that are none
		sent = post + "Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n" + string(noise(r, 1000))
	case 6: // deep JSON
		body := `{"checks":` + strings.Repeat([]string{"[", `{"a":`, `[{"attrs":`}[r.IntN(3)], 100_000)
		sent = post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	case 7: // long lists, and noise as JSON
		body := `{"checks": [` + strings.Repeat(`{"api": "a", "attrs": {"x": 1e400}},`, 20_000) + `{}]}`
		if r.IntN(2) == 0 {
			body = `{"api": "` + string(noise(r, 100_000)) + `"}`
		}
		sent = post + fmt.Sprintf("Content-Length: %d\r\n\r\n", len(body)) + body
	case 8: // noise
		sent = string(noise(r, 1+r.IntN(100_000)))
	case 9: // many requests, whose answers are not read
		sent = strings.Repeat("GET "+path[:min(len(path), 200)]+" HTTP/1.1\r\nHost: x\r\n\r\n", 500)
		_, _ = io.WriteString(c, sent)
		<-time.After(time.Duration(r.IntN(1000)) * time.Millisecond)
		return
	case 10: // slowly
		for _, b := range []byte(post) {
			if _, err := c.Write([]byte{b}); err != nil || ctx.Err() != nil {
				return
			}
			<-time.After(20 * time.Millisecond)
		}
		return
	case 11: // half of a request
		sent = (post + "Content-Length: 100\r\n\r\n{")[:20+r.IntN(20)]
	}
	_, _ = io.WriteString(c, sent)
	if r.IntN(2) == 0 {
		_, _ = io.Copy(io.Discard, io.LimitReader(bufio.NewReader(c), 1<<20))
	}
}

// attackHTTP2 speaks HTTP/2, or nearly.
func attackHTTP2(ctx context.Context, r *rand.Rand, at target) {
	c := connect(ctx, r, at)
	if c == nil {
		return
	}
	defer func() { _ = c.Close() }()
	if r.IntN(8) == 0 {
		_, _ = c.Write(noise(r, 1+r.IntN(10_000)))
		return
	}
	if r.IntN(2) == 0 {
		go func() { _, _ = io.Copy(io.Discard, c) }() // ends with the connection
	}
	out := bufio.NewWriter(c)
	_, _ = out.WriteString(http2.ClientPreface)
	f := http2.NewFramer(out, nil)
	f.AllowIllegalWrites = true
	_ = f.WriteSettings()
	block := headerBlock(at.grpc, "x-a", "b")
	attack := r.IntN(10)
	for id := uint32(1); id < 2000 && ctx.Err() == nil; id += 2 {
		begin := func(end bool) {
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: block, EndHeaders: true, EndStream: end})
		}
		var err error
		switch attack {
		case 0: // rapid reset
			begin(false)
			err = f.WriteRSTStream(id, http2.ErrCodeCancel)
		case 1: // headers that never end
			_ = f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block})
			for range 1000 {
				err = f.WriteContinuation(1, false, noise(r, 1000))
			}
		case 2: // calls that say that much will come, and never send it
			begin(false)
			err = f.WriteData(id, false, []byte{0, 0, 1, 255, 255, 1, 2, 3})
		case 3: // a message with a huge length
			begin(false)
			err = f.WriteData(id, true, []byte{0, 255, 255, 255, 255, 1})
		case 4: // no protobuf
			message := noise(r, r.IntN(1000))
			begin(false)
			err = f.WriteData(id, true, append([]byte{byte(r.IntN(3)), 0, 0, byte(len(message) >> 8), byte(len(message))}, message...))
		case 5: // pings and settings
			_ = f.WritePing(false, [8]byte{1})
			err = f.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: r.Uint32()}, http2.Setting{ID: http2.SettingHeaderTableSize, Val: r.Uint32()})
		case 6: // windows that overflow
			begin(false)
			err = f.WriteWindowUpdate(id*(r.Uint32()%2), 1<<31-1)
		case 7: // a large header again and again, in few bytes
			block = headerBlock(at.grpc, "x-bomb", strings.Repeat("x", 4000))
			block = append(block, bytes.Repeat([]byte{0xbe}, 15_000)...)
			begin(true)
			err = out.Flush()
		case 8: // frames that are none
			err = f.WriteRawFrame(http2.FrameType(r.Uint32()), http2.Flags(r.Uint32()), id*(r.Uint32()%2), noise(r, r.IntN(2000)))
		case 9: // data without a call, and more than the window
			begin(false)
			for range 20 {
				err = f.WriteData(id, false, make([]byte, 16<<10))
			}
		}
		if err != nil {
			return
		}
	}
	_ = out.Flush()
	if r.IntN(2) == 0 {
		<-time.After(time.Duration(r.IntN(500)) * time.Millisecond) // keep it open
	}
}

// headerBlock begins a request, with one more header.
func headerBlock(grpc bool, name, value string) []byte {
	var b bytes.Buffer
	e := hpack.NewEncoder(&b)
	path := "/v1/forward-auth"
	if grpc {
		path = "/envoy.service.ratelimit.v3.RateLimitService/ShouldRateLimit"
	}
	for _, h := range [][2]string{{":method", "POST"}, {":scheme", "http"}, {":path", path}, {":authority", "x"},
		{"content-type", "application/grpc"}, {"te", "trailers"}, {name, value}} {
		_ = e.WriteField(hpack.HeaderField{Name: h[0], Value: h[1]})
	}
	return b.Bytes()
}
