package main

import (
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"
)

// A wire delays, and lets as much through as before: what is sent at once arrives at once.
func TestAWireDelaysAndDoesNotSerialise(t *testing.T) {
	echo, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer echo.Close()
	go func() {
		for {
			c, err := echo.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c) }()
		}
	}()
	var trip atomic.Int64
	trip.Store(int64(50 * time.Millisecond))
	w, err := lay("127.0.0.1:0", echo.Addr().String(), &trip)
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const messages, size = 200, 1000
	began := time.Now()
	go func() {
		for range messages {
			_, _ = c.Write(make([]byte, size))
		}
	}()
	if _, err := io.ReadFull(c, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took < 50*time.Millisecond {
		t.Errorf("the first answer came after %v", took)
	}
	if _, err := io.ReadFull(c, make([]byte, (messages-1)*size)); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > messages*50*time.Millisecond/4 {
		t.Errorf("%d messages took %v: one waited for the other", messages, took)
	}
}
