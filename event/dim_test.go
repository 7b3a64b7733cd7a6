package event

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// What people write about an address finds the key that its events count under.
func TestDimensionsAreAsEventsHaveThem(t *testing.T) {
	for _, tt := range []struct{ name, value, want, problem string }{
		{"uid", "042", "042", ""},
		{"uid", strings.Repeat("x", 257), CanonicalUID(strings.Repeat("x", 257)), ""},
		{"ip", "::ffff:192.0.2.1", "192.0.2.1", ""},
		{"ip", "2001:0DB8::0001", "2001:db8::1", ""},
		{"ip", "fe80::1%eth0", "fe80::1", ""},
		{"ip", "192.0.2.01", "", "ip: it is not an address"},
		{"ip/64", "2001:db8::7:1", "2001:db8::/64", ""},
		{"ip/64", "2001:db8::/64", "2001:db8::/64", ""},
		{"ip/64", "192.0.2.1", "192.0.2.1", ""},
		{"ip/64", "192.0.2.1/64", "", "an IPv4 address stays whole"},
		{"ip/64", "2001:db8::/48", "", "neither an IPv4 address nor a network"},
		{"ip/24", "10.1.2.77", "10.1.2.0/24", ""},
		{"ip/24", "10.1.2.77/24", "10.1.2.0/24", ""},
		{"ip/24", "::ffff:10.1.2.77", "10.1.2.0/24", ""},
		{"ip/24", "2001:db8::7", "2001:db8::/64", ""},
		{"ip/24", "2001:db8::/64", "2001:db8::/64", ""},
		{"ip/24", "10.1.0.0/16", "", "ip/24: it is neither an IPv4 network such as 192.0.2.0/24 nor a network such as 2001:db8::/64"},
		{"ip/24", "::ffff:10.1.2.0/120", "", "it is neither"},
		{"ip/24", "10.1.2.0/024", "", "it is neither"},
		{"ip/24", "10.1.2.0/", "", "it is neither"},
		{"ip/56", "2001:db8:0:1ff::1", "2001:db8:0:100::/56", ""},
		{"ip/56", "10.1.2.3", "10.1.2.3", ""},
		{"ip/16/128", "2001:db8::7", "2001:db8::7", ""},
		{"ip/16/128", "2001:db8::7/128", "", "an IPv6 address stays whole"},
		{"ip/32/32", "2001:db8:7::", "2001:db8::/32", ""},
		{"ip/32/32", "10.1.2.3/32", "", "an IPv4 address stays whole"},
		{"ip/24/64", "10.1.2.3", "", `"ip/24/64" is not a dimension: write ip/24, which means the same`},
		{"ip/32", "10.1.2.3", "", `"ip/32" is not a dimension: write ip for whole addresses`},
		{"api", "login", "login", ""},
		{"api", "a\xff", "a\uFFFD", ""},
		{"api", "a\nb", "", "api: no API has more than 128 bytes, or a control character"},
		{"api", strings.Repeat("x", 129), "", "no API has"},
		{"all", "true", "true", ""},
		{"all", "yes", "", "all: its value is always true"},
		{"attrs.device", "d 1", "d 1", ""},
		{"attrs.device", "", "", "attrs.device: it is empty"},
		{"attrs.", "x", "", `"attrs." is not a dimension`},
		{"user", "42", "", `"user" is not a dimension: dimensions are uid, ip, ip/24 and the like, api, all and attrs.NAME`},
	} {
		d, err := NewDim(tt.name, tt.value)
		switch {
		case tt.problem == "" && (err != nil || d != Dim{tt.name, tt.want}):
			t.Errorf("%s=%s: %v, %v", tt.name, tt.value, d, err)
		case tt.problem != "" && (err == nil || !strings.Contains(err.Error(), tt.problem)):
			t.Errorf("%s=%.20s: %v, want %s", tt.name, tt.value, err, tt.problem)
		}
	}
}

// Each way to name bits is one dimension, and a spelling that means the same as a shorter one is none.
func TestNamesOfAddressDimensions(t *testing.T) {
	names := map[AddressDim]string{}
	check := func(name string) {
		d, ok := ParseAddressDim(name)
		if !ok {
			if hint := AddressDimHint(name); hint == "" && name != "ip/" {
				t.Errorf("%s: no hint", name)
			}
			return
		}
		if other, twice := names[d]; twice {
			t.Errorf("%s and %s are the same", name, other)
		}
		if names[d] = name; d.String() != name || !IsDim(name) {
			t.Errorf("%s is called %s", name, d)
		}
	}
	check("ip")
	for n := range 140 {
		check(fmt.Sprintf("ip/%d", n))
		for m := range 140 {
			check(fmt.Sprintf("ip/%d/%d", n, m))
		}
	}
	if want := (32 - 8 + 1) * (128 - 32 + 1); len(names) != want {
		t.Errorf("%d dimensions, want %d", len(names), want)
	}
	for name, want := range map[string]string{
		"ip/24/64": "write ip/24,", "ip/32/56": "write ip/56,", "ip/32/128": "write ip,", "ip/32/64": "write ip/64,",
		"ip/32": "write ip for whole", "ip/128": "write ip for whole", "ip/7": "as in ip/24", "ip/08": "as in ip/24",
		"ip/24/": "as in", "ip/": "as in", "ip/24/56/1": "as in", "ip/+8": "as in", "ip/24/129": "as in", "ip/256": "as in",
	} {
		if _, ok := ParseAddressDim(name); ok || IsDim(name) || !strings.HasPrefix(AddressDimHint(name), want) {
			t.Errorf("%s: accepted %t, hint %q, want %q", name, ok, AddressDimHint(name), want)
		}
	}
	for _, name := range []string{"", "i", "ipv4", "uid", "ip24"} {
		if _, ok := ParseAddressDim(name); ok || AddressDimHint(name) != "" {
			t.Errorf("%q is taken for an address", name)
		}
	}
	if n := testrun.Allocs(100, func() { ParseAddressDim("ip/24/56") }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
