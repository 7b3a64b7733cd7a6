package forwardauth

import (
	"cmp"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
)

// Headers are the names of the headers in which a proxy says who asks and for what. The proxy must set or
// strip each of them: one that a client can set is not who it is.
type Headers struct {
	UID        string // "" is X-Tallygate-Uid
	IP         string // "" is X-Tallygate-Ip; of several addresses, the last is the one that the proxy itself saw
	API        string // "" is X-Tallygate-Api
	AttrPrefix string // before an attribute's name, which is in lower case; "" is X-Tallygate-Attr-

	// Method and Path name the original request, from which the API is made when the header API is absent;
	// Path may hold a whole URL. "" looks for those that proxies use: see MethodHeaders and PathHeaders.
	Method, Path string
}

// The headers in which proxies name the original request: nginx by convention, Traefik, Caddy and APISIX by
// themselves, and ingress-nginx with a whole URL. A client can send those that its proxy doesn't set:
// Headers.Method and Path name the ones to trust.
var (
	MethodHeaders = []string{"X-Forwarded-Method", "X-Original-Method"}
	PathHeaders   = []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"}
)

// WithDefaults returns h with a name for each header.
func (h Headers) WithDefaults() Headers {
	h.UID = cmp.Or(h.UID, "X-Tallygate-Uid")
	h.IP = cmp.Or(h.IP, "X-Tallygate-Ip")
	h.API = cmp.Or(h.API, "X-Tallygate-Api")
	h.AttrPrefix = http.CanonicalHeaderKey(cmp.Or(h.AttrPrefix, "X-Tallygate-Attr-"))
	return h
}

// Read returns what the headers of a proxy's question say. h is one that WithDefaults returned.
func (h Headers) Read(header http.Header) (api string, dims []event.Dim) {
	return h.ReadFor(header, first(header, h.Method, MethodHeaders, http.MethodGet), first(header, h.Path, PathHeaders, "/"))
}

// ReadFor is Read where the original request's method and its target, as enforce.PathAPI takes it, are known otherwise.
func (h Headers) ReadFor(header http.Header, method, path string) (api string, dims []event.Dim) {
	for name, values := range header {
		if attr, ok := strings.CutPrefix(name, h.AttrPrefix); ok && attr != "" {
			dims = appendDim(dims, "attrs."+strings.ToLower(attr), last(values))
		}
	}
	dims = appendDim(dims, "ip", Address(last(header.Values(h.IP))))
	dims = appendDim(dims, "uid", last(header.Values(h.UID)))
	slices.SortFunc(dims, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	if api = last(header.Values(h.API)); api == "" {
		api = enforce.PathAPI(method, path)
	}
	return api, dims
}

// Address is the last address of a list as X-Forwarded-For has it, without its port, written as keys have it;
// "" when that is none: what is no address is absent, as in events.
func Address(text string) string {
	if i := strings.LastIndexByte(text, ','); i >= 0 {
		text = text[i+1:]
	}
	text = strings.TrimSpace(text)
	addr, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(text, "["), "]"))
	if err != nil {
		with, err := netip.ParseAddrPort(text)
		if err != nil {
			return ""
		}
		addr = with.Addr()
	}
	return addr.Unmap().WithZone("").String()
}

func appendDim(dims []event.Dim, name, value string) []event.Dim {
	if value == "" {
		return dims
	}
	return append(dims, event.Dim{Name: name, Value: value})
}

// last is the value that came last: what a proxy adds it adds at the end.
func last(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[len(values)-1]
}

// first is the value of the header, or of the first usual one that is there.
func first(from http.Header, header string, usual []string, otherwise string) string {
	if header != "" {
		usual = []string{header}
	}
	for _, h := range usual {
		if v := last(from.Values(h)); v != "" {
			return v
		}
	}
	return otherwise
}
