package event

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
)

// MaxKey is how long a key's text may be: an event whose key is longer counts under none.
const MaxKey = 32 << 10

// IsDim reports whether keys may have a dimension of this name.
func IsDim(name string) bool {
	attr, ok := strings.CutPrefix(name, "attrs.")
	return name == "uid" || name == "ip" || name == "ip/64" || ok && attr != ""
}

// NewDim returns a dimension as the keys of events have it: an address in its one form, an IPv4 one
// also where it is written as an IPv6 one, of ip/64 the network that an address is in, and long
// values as CanonicalUID and CanonicalText have them. An error says what no key has.
func NewDim(name, value string) (Dim, error) {
	if !IsDim(name) {
		return Dim{}, fmt.Errorf("%.80q is not a dimension: dimensions are uid, ip, ip/64 and attrs.NAME", name)
	}
	value, err := dimValue(name, value)
	if err != nil {
		return Dim{}, fmt.Errorf("%.80s: %w", name, err)
	}
	return Dim{Name: name, Value: value}, nil
}

func dimValue(name, value string) (string, error) {
	switch {
	case value == "":
		return "", errors.New("it is empty")
	case name == "ip":
		addr, err := netip.ParseAddr(value)
		if err != nil || addr.Zone() != "" {
			return "", errors.New("it is not an address")
		}
		return addr.Unmap().String(), nil
	case name == "ip/64":
		return network(value)
	case name == "uid":
		return CanonicalUID(value), nil
	}
	return CanonicalText(value), nil
}

// network is the /64 that an IPv6 address is in; an IPv4 address stays whole.
func network(value string) (string, error) {
	const bits = 64
	text, isNetwork := strings.CutSuffix(value, "/64")
	addr, err := netip.ParseAddr(text)
	switch {
	case err != nil || addr.Zone() != "":
		return "", errors.New("it is neither an IPv4 address nor a network such as 2001:db8::/64")
	case addr.Unmap().Is4() && isNetwork:
		return "", errors.New("an IPv4 address stays whole")
	case addr.Unmap().Is4():
		return addr.Unmap().String(), nil
	}
	prefix, err := addr.Prefix(bits)
	return prefix.String(), err // it fails only for more bits than an address has
}
