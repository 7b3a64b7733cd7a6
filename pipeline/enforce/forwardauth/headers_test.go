package forwardauth_test

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/event"
)

func TestAddress(t *testing.T) {
	for text, want := range map[string]string{
		"203.0.113.9":                          "203.0.113.9",
		" 203.0.113.9 ":                        "203.0.113.9",
		"203.0.113.9:4711":                     "203.0.113.9",
		"::ffff:203.0.113.9":                   "203.0.113.9",
		"2001:DB8::1":                          "2001:db8::1",
		"[2001:db8::1]":                        "2001:db8::1",
		"[2001:db8::1]:443":                    "2001:db8::1",
		"fe80::1%eth0":                         "fe80::1",
		"198.51.100.1, 203.0.113.9":            "203.0.113.9", // the last is what the proxy saw; those before are the client's word
		"203.0.113.9, somebody":                "",
		"":                                     "",
		"unix:":                                "",
		"localhost":                            "",
		strings.Repeat("1.2.3.4,", 1000) + "x": "",
	} {
		if got := forwardauth.Address(text); got != want {
			t.Errorf("%.40q: %q, want %q", text, got, want)
		}
	}
}

// A proxy that adds a header behind a client's own adds it at the end.
func TestTheLastOfEqualHeadersHolds(t *testing.T) {
	h := forwardauth.Headers{}.WithDefaults()
	header := http.Header{
		"X-Tallygate-Uid": {"spoofed", "42"}, "X-Tallygate-Ip": {"1.1.1.1", "203.0.113.9"}, "X-Tallygate-Api": {"spoofed", "search.query"},
		"X-Tallygate-Attr-Device": {"spoofed", "d1"}, "X-Tallygate-Attr-": {"no name"},
	}
	api, dims := h.Read(header)
	want := []event.Dim{{Name: "attrs.device", Value: "d1"}, {Name: "ip", Value: "203.0.113.9"}, {Name: "uid", Value: "42"}}
	if api != "search.query" || !slices.Equal(dims, want) {
		t.Errorf("%s, %v", api, dims)
	}
}

// Whatever a client sends through its proxy, what is made of it is what checks take: dimensions once each, sorted,
// none empty, an address as keys have it.
func FuzzHeaders(f *testing.F) {
	f.Add("X-Tallygate-Uid", "42", "X-Forwarded-Uri", "/a/b?c")
	f.Add("X-Tallygate-Ip", "[::ffff:1.2.3.4%x]:9", "X-Original-Url", "http://[::1%25]/%zz")
	f.Add("X-Tallygate-Attr-A", "\xff\x00", "X-Original-Uri", "//%2e%2e/")
	h := forwardauth.Headers{}.WithDefaults()
	f.Fuzz(func(t *testing.T, name, value, name2, value2 string) {
		header := http.Header{}
		header.Add(name, value)
		header.Add(name2, value2)
		api, dims := h.Read(header)
		if api == "" {
			t.Error("no API")
		}
		if header.Get("X-Tallygate-Api") == "" && (len(api) > event.MaxAPI || strings.ContainsFunc(api[3:], func(r rune) bool { return r > '~' })) {
			t.Errorf("the API is %q", api)
		}
		for i, d := range dims {
			if d.Value == "" || i > 0 && dims[i-1].Name > d.Name {
				t.Errorf("%v", dims)
			}
			if d.Name == "ip" {
				if a, err := netip.ParseAddr(d.Value); err != nil || a.String() != d.Value || a.Zone() != "" {
					t.Errorf("the address is %q", d.Value)
				}
			}
		}
	})
}
