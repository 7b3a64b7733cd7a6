package freeport

import (
	"net"
	"testing"
)

// Ports are free, different, and given once.
func TestPorts(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 20 {
		ports, err := Ports(5)
		if err != nil {
			t.Fatal(err)
		}
		for _, port := range ports {
			if seen[port] {
				t.Fatalf("%d is given twice", port)
			}
			seen[port] = true
		}
	}
}

// A port on which somebody listens is not taken, nor is one that was given.
func TestTake(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := l.Addr().(*net.TCPAddr).Port
	if Take(port) || Free(port) {
		t.Error("a port is taken on which somebody listens")
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if Take(port) {
		t.Error("a port is taken that was tried before")
	}
	if addr, err := Addr(); err != nil || addr == "" {
		t.Errorf("%q, %v", addr, err)
	}
}
