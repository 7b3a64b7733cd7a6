package event

import (
	"net/netip"
	"strconv"
	"strings"
)

// ParseAddress reads an address as events, checks, headers and logs have it: alone, in brackets, or with a
// port (192.0.2.7:4711, [2001:db8::1]:443). An IPv4 address is one also where it is written as an IPv6 one.
// A zone is left out: it means something on one host only. ok is false for everything else, such as a list
// or a host's name.
func ParseAddress(text string) (addr netip.Addr, ok bool) {
	if a, ok := parseIPv4(text); ok {
		return a, true
	}
	addr, err := netip.ParseAddr(addressPart(text))
	if err != nil {
		return netip.Addr{}, false
	}
	return addr.Unmap().WithZone(""), true
}

// addressPart is the text without brackets and port; "" when what is around the address is neither.
func addressPart(text string) string {
	host, rest := text, ""
	if inner, bracketed := strings.CutPrefix(text, "["); bracketed {
		if host, rest, bracketed = strings.Cut(inner, "]"); !bracketed {
			return ""
		}
	} else if i := strings.IndexByte(text, ':'); i >= 0 && strings.IndexByte(text[i+1:], ':') < 0 {
		host, rest = text[:i], text[i:]
	}
	if rest == "" {
		return host
	}
	port, ok := strings.CutPrefix(rest, ":")
	if _, err := strconv.ParseUint(port, 10, 16); !ok || err != nil || len(port) > len("65535") {
		return ""
	}
	return host
}
