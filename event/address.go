package event

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// AddressDim is the part of an address in a dimension: all of it (ip), or the network of so many bits that it is in
// (ip/24, ip/64, ip/24/56). An IPv4 address and an IPv6 one have bits of their own.
type AddressDim struct {
	four, six uint8 // bits
}

const (
	allFour, allSix = 32, 128
	usualSix        = 64 // of a dimension that names IPv4's bits only
	minFour         = 8
	minSix          = 32
)

// ParseAddressDim reads a dimension's name: ip, ip/N, ip/M or ip/N/M, with N from 8 to 32 bits of an
// IPv4 address and M from 32 to 128 of an IPv6 one. ok is false for other names, and for a spelling
// that means the same as a shorter one: a dimension has one name. It allocates nothing.
func ParseAddressDim(name string) (d AddressDim, ok bool) {
	d, ok = readAddressDim(name)
	return d, ok && d.isName(name)
}

// readAddressDim reads a name, also one that has a shorter spelling.
func readAddressDim(name string) (d AddressDim, ok bool) {
	rest, ok := strings.CutPrefix(name, "ip")
	switch {
	case !ok:
		return d, false
	case rest == "":
		return AddressDim{allFour, allSix}, true
	case rest[0] != '/':
		return d, false
	}
	first, second, both := strings.Cut(rest[1:], "/")
	n, ok := bitsOf(first)
	if !ok {
		return d, false
	}
	if both {
		m, ok := bitsOf(second)
		return AddressDim{n, m}, ok && n >= minFour && n <= allFour && m >= minSix && m <= allSix
	}
	if n > allFour {
		return AddressDim{allFour, n}, n <= allSix
	}
	return AddressDim{n, usualSix}, n >= minFour
}

// bitsOf reads a number without a sign or leading zeros.
func bitsOf(s string) (n uint8, ok bool) {
	if s == "" || len(s) > 3 || s[0] == '0' {
		return 0, false
	}
	number := 0
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, false
		}
		number = 10*number + int(s[i]-'0')
	}
	return uint8(number), number <= allSix
}

// isName reports whether this is what d is called.
func (d AddressDim) isName(name string) bool {
	var space [len("ip/32/128")]byte
	return string(d.appendName(space[:0])) == name
}

// appendName appends the shortest name.
func (d AddressDim) appendName(dst []byte) []byte {
	dst = append(dst, "ip"...)
	if d.four < allFour || d.six == minSix { // ip/32 alone would be read as IPv4's
		dst = strconv.AppendUint(append(dst, '/'), uint64(d.four), 10)
		if d.six == usualSix {
			return dst
		}
	}
	if d.six < allSix || d.four < allFour {
		dst = strconv.AppendUint(append(dst, '/'), uint64(d.six), 10)
	}
	return dst
}

// String returns the dimension's name.
func (d AddressDim) String() string { return string(d.appendName(nil)) }

// AppendTo appends what keys have of an address: the address itself, or its network, such as
// 10.1.2.0/24. An IPv4 address counts as one also where it is written as an IPv6 one.
func (d AddressDim) AppendTo(dst []byte, addr netip.Addr) []byte {
	addr = addr.Unmap().WithZone("")
	if d.Whole(addr) {
		return addr.AppendTo(dst)
	}
	return netip.PrefixFrom(addr, d.bits(addr)).Masked().AppendTo(dst)
}

// Network returns the network that keys have of an address; a whole address is a network of one.
func (d AddressDim) Network(addr netip.Addr) netip.Prefix {
	addr = addr.Unmap().WithZone("")
	return netip.PrefixFrom(addr, d.bits(addr)).Masked()
}

// Whole reports whether keys have the address itself, and no network.
func (d AddressDim) Whole(addr netip.Addr) bool { return d.bits(addr) == addr.BitLen() }

func (d AddressDim) bits(addr netip.Addr) int {
	if addr.Is4() {
		return int(d.four)
	}
	return int(d.six)
}

// Append appends what keys have for a value that someone wrote: an address, or a network of as many
// bits as the dimension has. ok is false when no key has it. It allocates nothing.
func (d AddressDim) Append(dst []byte, value string) (text []byte, ok bool) {
	written, bits, isNetwork := strings.Cut(value, "/")
	addr, ok := ParseAddress(written)
	if !ok {
		return dst, false
	}
	if isNetwork {
		n, ok := bitsOf(bits)
		if plain, err := netip.ParseAddr(written); err != nil || plain != addr || !ok || int(n) != d.bits(addr) || d.Whole(addr) {
			return dst, false
		}
	}
	return d.AppendTo(dst, addr), true
}

// wrong says why keys don't have a value.
func (d AddressDim) wrong(value string) error {
	if d.four == allFour && d.six == allSix {
		return errors.New("it is not an address")
	}
	text, _, isNetwork := strings.Cut(value, "/")
	addr, err := netip.ParseAddr(text)
	if known := err == nil && isNetwork && addr.Zone() == ""; known {
		switch addr = addr.Unmap(); {
		case addr.Is4() && d.four == allFour:
			return errors.New("an IPv4 address stays whole")
		case addr.Is6() && d.six == allSix:
			return errors.New("an IPv6 address stays whole")
		}
	}
	four, six := "an IPv4 address", "an IPv6 address"
	if d.four < allFour {
		four = "an IPv4 network such as " + string(d.AppendTo(nil, netip.AddrFrom4([4]byte{192, 0, 2, 1})))
	}
	if d.six < allSix {
		six = "a network such as " + string(d.AppendTo(nil, exampleSix))
	}
	return fmt.Errorf("it is neither %s nor %s", four, six)
}

var exampleSix = netip.MustParseAddr("2001:db8::1")

// AddressDimHint suggests a name in place of one that begins as those of addresses do; "" when it is not like that.
func AddressDimHint(name string) string {
	if !strings.HasPrefix(name, "ip/") {
		return ""
	}
	if name == "ip/32" || name == "ip/128" {
		return "write ip for whole addresses, or the bits of IPv4 and of IPv6, as in ip/24/48"
	}
	if d, ok := readAddressDim(name); ok {
		return fmt.Sprintf("write %s, which means the same", d)
	}
	return "as in ip/24 (IPv4: 8 to 31 bits; IPv6 by its /64), ip/56 (IPv6: 33 to 127 bits; IPv4 whole), or both, ip/24/56"
}
