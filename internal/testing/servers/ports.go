package servers

import (
	"testing"

	"github.com/tallygate/tallygate/internal/testing/freeport"
)

// FreePorts returns different free ports, as freeport.Ports does.
func FreePorts(t testing.TB, n int) []int {
	t.Helper()
	ports, err := freeport.Ports(n)
	if err != nil {
		t.Fatal(err)
	}
	return ports
}

// FreeAddr returns 127.0.0.1 with such a port.
func FreeAddr(t testing.TB) string {
	t.Helper()
	addr, err := freeport.Addr()
	if err != nil {
		t.Fatal(err)
	}
	return addr
}
