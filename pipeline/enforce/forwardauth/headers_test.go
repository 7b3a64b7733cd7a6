package forwardauth_test

import (
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
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

// Of several values the last counted: behind a proxy that puts its own in front, the client chose who it was.
func TestSeveralValuesOfOneHeader(t *testing.T) {
	header := http.Header{
		"X-Tallygate-Uid": {"41", "42"}, "X-Tallygate-Ip": {"192.0.2.1", "203.0.113.9"}, "X-Tallygate-Api": {"order.create", "search.query"},
		"X-Tallygate-Attr-Device": {"d0", "d1"}, "X-Tallygate-Attr-": {"no name"},
	}
	for repeated, want := range map[forwardauth.Repeated]string{"first": "order.create attrs.device=d0 ip=192.0.2.1 uid=41", "last": "search.query attrs.device=d1 ip=203.0.113.9 uid=42"} {
		api, dims, err := forwardauth.Headers{Repeated: repeated}.WithDefaults().Read(header)
		got := api
		for _, d := range dims {
			got += " " + d.Name + "=" + d.Value
		}
		if err != nil || got != want {
			t.Errorf("%s: %s, %v; want %s", repeated, got, err, want)
		}
	}
	for name := range header {
		if name == "X-Tallygate-Attr-" {
			continue
		}
		for _, repeated := range []forwardauth.Repeated{"", forwardauth.RefuseRepeated} {
			one := http.Header{name: header[name]}
			_, _, err := forwardauth.Headers{Repeated: repeated}.WithDefaults().Read(one)
			if r, ok := errors.AsType[*forwardauth.Refusal](err); !ok || r.Reason != forwardauth.RepeatedHeader || !strings.Contains(r.Detail, name) {
				t.Errorf("two of %s: %v", name, err)
			}
		}
	}
	if (forwardauth.Headers{Repeated: "any"}).Validate() == nil {
		t.Error("any of several is no choice")
	}
}

// A client's own X-Forwarded-Uri beat the X-Original-Uri of its proxy.
func TestHeadersThatDisagreeAreRefused(t *testing.T) {
	named := forwardauth.Headers{Method: "X-Original-Method", Path: "X-Original-Uri"}
	for _, c := range []struct {
		headers     string
		api, ofName string // "" is refused
	}{
		{"X-Original-Uri: /search", "get.search", "get.search"},
		{"X-Original-Uri: /search|X-Forwarded-Uri: /harmless", "", "get.search"},
		{"X-Original-Uri: /search|X-Original-Url: https://h/harmless", "", "get.search"},
		{"X-Original-Uri: /search|X-Forwarded-Method: PUT", "", "get.search"},
		{"X-Original-Method: POST|X-Original-Uri: /search|X-Forwarded-Method: PUT|X-Forwarded-Uri: /search", "", "post.search"},
		{"X-Original-Method: POST|X-Original-Uri: /search|X-Forwarded-Method: PUT", "", "post.search"},
		{"X-Forwarded-Method: POST|X-Forwarded-Uri: /search", "post.search", "get"},
		{"X-Forwarded-Method: HEAD|X-Forwarded-Uri: /search?a|X-Original-Url: http://h/%73earch|X-Original-Method: GET", "get.search", "get"},
		{"X-Tallygate-Api: a|X-Original-Uri: /search|X-Forwarded-Uri: /harmless", "a", "a"}, // the proxy says what it is
		{"X-Other: 1", "get", "get"},
	} {
		header := http.Header{}
		for h := range strings.SplitSeq(c.headers, "|") {
			name, value, _ := strings.Cut(h, ": ")
			header.Set(name, value)
		}
		api, _, err := forwardauth.Headers{}.WithDefaults().Read(header)
		if r, refused := errors.AsType[*forwardauth.Refusal](err); api != c.api || refused != (c.api == "") || refused && r.Reason != forwardauth.HeadersDisagree {
			t.Errorf("%s: %q, %v; want %q", c.headers, api, err, c.api)
		}
		if api, _, err := named.WithDefaults().Read(header); api != c.ofName || err != nil {
			t.Errorf("%s, with names: %q, %v; want %q", c.headers, api, err, c.ofName)
		}
	}
}

// An address of a proxy is no key: all share it.
func TestAddressesOfProxies(t *testing.T) {
	h := forwardauth.Headers{Proxies: httplimit.NewProxies(netip.MustParsePrefix("10.0.0.0/8"))}.WithDefaults()
	for list, want := range map[string]string{
		"203.0.113.9": "203.0.113.9", "198.51.100.1, 203.0.113.9, 10.0.0.2, 10.0.0.1:80": "203.0.113.9", "10.0.0.2, 10.0.0.1": "", "": "", "x, 10.0.0.1": "",
	} {
		if got := h.Address(list); got != want {
			t.Errorf("%q: %q, want %q", list, got, want)
		}
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
		api, dims, err := h.Read(header)
		if err != nil {
			if _, ok := errors.AsType[*forwardauth.Refusal](err); !ok || api != "" || dims != nil {
				t.Errorf("%v, with %q and %v", err, api, dims)
			}
			return
		}
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

// A proxy that passes a client's headers on left the API and the attributes to the client.
func TestNoneIsNotRead(t *testing.T) {
	none := forwardauth.None
	header := http.Header{"X-Tallygate-Uid": {"1"}, "X-Tallygate-Ip": {"192.0.2.1"}, "X-Tallygate-Api": {"harmless"}, "X-Tallygate-Attr-A": {"b"},
		"None": {"2"}, "None-C": {"d"}, "X-Original-Uri": {"/search"}}
	for about, c := range map[string]struct {
		headers forwardauth.Headers
		api     string
		dims    []event.Dim
	}{
		"all":                {forwardauth.Headers{}, "harmless", []event.Dim{{Name: "attrs.a", Value: "b"}, {Name: "ip", Value: "192.0.2.1"}, {Name: "uid", Value: "1"}}},
		"what a proxy sends": {forwardauth.Headers{API: none, AttrPrefix: none}, "get.search", []event.Dim{{Name: "ip", Value: "192.0.2.1"}, {Name: "uid", Value: "1"}}},
		"nothing":            {forwardauth.Headers{UID: none, IP: none, API: none, AttrPrefix: none}, "get.search", nil},
	} {
		h := c.headers.WithDefaults()
		api, dims, err := h.Read(header)
		if err != nil || api != c.api || !slices.Equal(dims, c.dims) {
			t.Errorf("%s: %s %v, %v", about, api, dims, err)
		}
		if api, dims, err = h.ReadFor(header, http.MethodGet, "/search"); err != nil || api != c.api || !slices.Equal(dims, c.dims) {
			t.Errorf("%s, of a request that is known: %s %v, %v", about, api, dims, err)
		}
	}
}
