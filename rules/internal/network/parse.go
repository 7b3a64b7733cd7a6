package network

import (
	"encoding/binary"
	mathbits "math/bits"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

const howToWrite = "a network is written as 10.0.0.0/8 or 2001:db8::/32, one address as 192.0.2.1"

// Parse reads a network such as 10.0.0.0/8, or one address, which is a network of one. What is IPv4 and
// written as IPv6 is IPv4. problem says why the text is no network, hint what to write instead.
func Parse(text string) (p netip.Prefix, problem, hint string) {
	address, length, isNetwork := strings.Cut(text, "/")
	addr, err := netip.ParseAddr(address)
	quoted := strconv.Quote(scalar.Shortened(text))
	switch {
	case err != nil:
		return p, quoted + " is neither a network nor an address", meant(text)
	case addr.Zone() != "":
		return p, quoted + " has a zone, which addresses of events have not", "write " + strings.Replace(text, "%"+addr.Zone(), "", 1)
	case !isNetwork:
		addr = addr.Unmap()
		return netip.PrefixFrom(addr, addr.BitLen()), "", ""
	}
	bits, err := strconv.Atoi(length)
	if err != nil || strconv.Itoa(bits) != length || bits > addr.BitLen() {
		return p, quoted + " is no network: behind the / stands a number of bits, 0 to " + strconv.Itoa(addr.BitLen()), meant(text)
	}
	p = netip.PrefixFrom(addr, bits)
	if whole := p.Masked(); whole != p {
		return p, quoted + " is an address within its network: only the first " + length + " bits may be set",
			"write " + whole.String() + ", or " + addr.String() + " for the one address"
	}
	return unmapped(p), "", ""
}

// IsListName tells the name of a list from a network, and from what was to be one.
func IsListName(text string) bool { return text != "" && !strings.ContainsAny(text, ".:/*%") }

// unmapped is a network of IPv4 addresses as such, where it is written as one of IPv6.
func unmapped(p netip.Prefix) netip.Prefix {
	const before = 96 // bits of an IPv6 address that say that it is an IPv4 one
	if addr := p.Addr(); addr.Is4In6() && p.Bits() >= before {
		return netip.PrefixFrom(addr.Unmap(), p.Bits()-before)
	}
	return p
}

var octets = regexp.MustCompile(`^(\d{1,3}(?:\.\d{1,3}){0,2})((?:\.(?:\*|x))*\.?)(/\d+)?$`)

// meant guesses which network a text was to name.
func meant(text string) string {
	text = strings.TrimSpace(text)
	address, mask, masked := strings.Cut(text, "/")
	if m, err := netip.ParseAddr(mask); masked && err == nil && m.Is4() {
		if bits, ok := maskBits(m); ok {
			return write(address + "/" + strconv.Itoa(bits))
		}
	}
	if m := octets.FindStringSubmatch(text); m != nil {
		n := strings.Count(m[1], ".") + 1
		if m[3] == "" {
			m[3] = "/" + strconv.Itoa(8*n)
		}
		return write(m[1] + strings.Repeat(".0", 4-n) + m[3])
	}
	if from, to, isRange := strings.Cut(text, "-"); isRange && strings.ContainsAny(from+to, ".:") {
		return "a range is written as the networks that it consists of, such as 192.0.2.0/25"
	}
	if host, err := netip.ParseAddrPort(text); err == nil {
		return write(host.Addr().String())
	}
	return write(text)
}

// write says to write a network, if a text is one.
func write(text string) string {
	if p, err := netip.ParsePrefix(text); err == nil {
		return "write " + p.Masked().String()
	}
	if addr, err := netip.ParseAddr(text); err == nil && addr.Zone() == "" {
		return "write " + addr.String()
	}
	return howToWrite
}

// maskBits is how many bits a mask such as 255.255.0.0 has.
func maskBits(mask netip.Addr) (bits int, ok bool) {
	four := mask.As4()
	m := binary.BigEndian.Uint32(four[:])
	bits = mathbits.OnesCount32(m)
	return bits, m == ^uint32(0)<<(32-bits)
}
