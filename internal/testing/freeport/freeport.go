// Package freeport finds ports for servers of tests and benchmarks.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
)

// given are the ports that this process was given, or has tried.
var given sync.Map

// Ports returns different free ports. They stay free while their program restarts: their range
// is below that of outgoing connections, between those of the servers' scripts (15000 to 21999) and
// of a Redis Cluster's bus, and none is returned twice.
func Ports(n int) (ports []int, err error) {
	for range 1000 * n {
		if len(ports) == n {
			break
		}
		port := 22000 + rand.IntN(3000)
		if Take(port) {
			ports = append(ports, port)
		}
	}
	if len(ports) < n {
		return nil, errors.New("there are no free ports from 22000 to 24999")
	}
	return ports, nil
}

// Addr returns 127.0.0.1 with such a port.
func Addr() (string, error) {
	ports, err := Ports(1)
	if err != nil {
		return "", err
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0])), nil
}

// Take reports whether a port is free, and was not given or tried before.
func Take(port int) bool {
	_, taken := given.LoadOrStore(port, true)
	return !taken && Free(port)
}

// Free reports whether nothing listens on a port.
func Free(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
