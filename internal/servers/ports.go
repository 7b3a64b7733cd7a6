package servers

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
)

// given are the ports that this process was given.
var given sync.Map

// FreePorts returns different free ports. They stay free while their program restarts: their range
// is below that of outgoing connections, between those of the servers' scripts (15000 to 21999) and
// of a Redis Cluster's bus, and none is returned twice.
func FreePorts(t testing.TB, n int) (ports []int) {
	t.Helper()
	for range 1000 * n {
		if len(ports) == n {
			return ports
		}
		port := 22000 + rand.IntN(3000)
		if _, taken := given.LoadOrStore(port, true); !taken && free(port) {
			ports = append(ports, port)
		}
	}
	t.Fatal("there are no free ports")
	return nil
}

// FreeAddr returns 127.0.0.1 with such a port.
func FreeAddr(t testing.TB) string {
	t.Helper()
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(FreePorts(t, 1)[0]))
}
