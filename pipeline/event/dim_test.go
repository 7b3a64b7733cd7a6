package event

import (
	"strings"
	"testing"
)

// What people write about an address finds the key that its events count under.
func TestDimensionsAreAsEventsHaveThem(t *testing.T) {
	for _, tt := range []struct{ name, value, want, problem string }{
		{"uid", "042", "042", ""},
		{"uid", strings.Repeat("x", 257), CanonicalUID(strings.Repeat("x", 257)), ""},
		{"ip", "::ffff:192.0.2.1", "192.0.2.1", ""},
		{"ip", "2001:0DB8::0001", "2001:db8::1", ""},
		{"ip", "fe80::1%eth0", "", "ip: it is not an address"},
		{"ip", "192.0.2.01", "", "ip: it is not an address"},
		{"ip/64", "2001:db8::7:1", "2001:db8::/64", ""},
		{"ip/64", "2001:db8::/64", "2001:db8::/64", ""},
		{"ip/64", "192.0.2.1", "192.0.2.1", ""},
		{"ip/64", "192.0.2.1/64", "", "an IPv4 address stays whole"},
		{"ip/64", "2001:db8::/48", "", "neither an IPv4 address nor a network"},
		{"attrs.device", "d 1", "d 1", ""},
		{"attrs.device", "", "", "attrs.device: it is empty"},
		{"attrs.", "x", "", `"attrs." is not a dimension`},
		{"user", "42", "", `"user" is not a dimension: dimensions are uid, ip, ip/64 and attrs.NAME`},
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
