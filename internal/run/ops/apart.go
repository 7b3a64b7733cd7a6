package ops

import (
	"flag"
	"net"
	"strconv"
	"strings"
)

// apart is the environment variable that keeps a program apart from whatever runs on the machine: an option that is
// not given and whose default is an address listens on any free port, or connects to where nothing listens. Tests
// set it (testrun.NoEnv). One that left an option out joined the group of a tallygate dev that ran beside it.
const apart = "TALLYGATE_TEST_APART"

const (
	anyPort  = "127.0.0.1:0"
	nobodyAt = "127.0.0.1:1"
)

// moveApart replaces a default that is an address, or a list of them. A default of another kind stays.
func moveApart(f *flag.Flag) error {
	scheme, addr, ok := strings.Cut(f.DefValue, "://")
	if scheme += "://"; !ok {
		scheme, addr = "", f.DefValue
	}
	addr, _, _ = strings.Cut(addr, ",")
	_, port, err := net.SplitHostPort(addr)
	if n, notPort := strconv.ParseUint(port, 10, 16); err != nil || notPort != nil || n == 0 {
		return nil //nolint:nilerr // it is no address
	}
	if strings.HasSuffix(f.Name, "listen") {
		return f.Value.Set(anyPort)
	}
	return f.Value.Set(scheme + nobodyAt)
}
