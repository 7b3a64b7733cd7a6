package event

import (
	"net/netip"
	"testing"
)

// An address with a port was dropped from events, and nobody was told; a log had a user per connection.
func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"192.0.2.7":                 "192.0.2.7",
		"192.0.2.7:4711":            "192.0.2.7",
		"192.0.2.7:0":               "192.0.2.7",
		"2001:DB8::1":               "2001:db8::1",
		"[2001:db8::1]":             "2001:db8::1",
		"[2001:db8::1]:443":         "2001:db8::1",
		"::ffff:192.0.2.7":          "192.0.2.7",
		"[::ffff:192.0.2.7]:1":      "192.0.2.7",
		"::1":                       "::1",
		"2001:db8::1:443":           "2001:db8::1:443", // it is an address, whatever was meant
		"":                          "",
		"-":                         "",
		"unknown":                   "",
		"shop.example:443":          "",
		"192.0.2.7:":                "",
		"192.0.2.7:port":            "",
		"192.0.2.7:123456":          "",
		"192.0.2.7:+1":              "",
		":443":                      "",
		"[192.0.2.7]":               "192.0.2.7",
		"[192.0.2.7]:80":            "192.0.2.7",
		"192.0.2.7:65536":           "",
		"192.0.2.7]:80":             "",
		"x[2001:db8::1]:80":         "",
		"[2001:db8::1]443":          "",
		"[2001:db8::1]:":            "",
		"[2001:db8::1":              "",
		"2001:db8::1]":              "",
		"[[2001:db8::1]]":           "",
		"203.0.113.9, 10.0.0.1":     "",
		"203.0.113.9,10.0.0.1:80":   "",
		"fe80::1%eth0":              "fe80::1",
		"[fe80::1%eth0]:80":         "fe80::1",
		" 192.0.2.7":                "",
		"192.0.2.07":                "",
		"192.0.2.0/24":              "",
		"unix:":                     "",
		"0x7f000001":                "",
		"192.0.2.7:4711 ":           "",
		"192.0.2.7:4711, 10.0.0.1:": "",
	} {
		got, ok := ParseAddress(text)
		if ok != (want != "") || ok && got.String() != want || !ok && got.IsValid() {
			t.Errorf("%q: %v, %v, want %q", text, got, ok, want)
		}
	}
}

// What is read is one address without a zone, which reads as itself, and with any port and brackets as
// the same one.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"192.0.2.7", "192.0.2.7:1", "[2001:db8::1]:443", "::ffff:1.2.3.4", "fe80::1%a", "1:2", "a, b", "[]", "[:1", ":", "]"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		addr, ok := ParseAddress(text)
		if !ok {
			if _, err := netip.ParseAddr(text); err == nil {
				t.Fatalf("%q is an address", text)
			}
			return
		}
		if !addr.IsValid() || addr.Zone() != "" || addr.Is4In6() {
			t.Fatalf("%q: %v", text, addr)
		}
		for _, form := range []string{addr.String(), netip.AddrPortFrom(addr, 443).String()} {
			if again, ok := ParseAddress(form); !ok || again != addr {
				t.Fatalf("%q: %v, and %q: %v, %v", text, addr, form, again, ok)
			}
		}
	})
}
