package forwardauth

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// Headers are the names of the headers in which a proxy says who sent a request and what it asks
// for. The proxy must set or remove each of them: clients could otherwise forge it. Those that a proxy
// leaves to clients must be None.
type Headers struct {
	UID        string // "" is X-Tallygate-Uid
	IP         string // "" is X-Tallygate-Ip; of a list of addresses, the last is the one that the proxy itself saw
	API        string // "" is X-Tallygate-Api
	AttrPrefix string // before an attribute's name, which is in lower case; "" is X-Tallygate-Attr-

	// Method and Path have the original request, of which the API is made when the header API is
	// absent; Path may hold a whole URL. Set the names that your proxy uses: only these are
	// believed. "" is all that proxies use, MethodHeaders and PathHeaders; a request in which two
	// of these differ is refused.
	Method, Path string

	// Repeated selects among several values of a header; "" refuses the request.
	Repeated Repeated

	// Proxies are your own proxies, whose addresses are never a client's; nil is none.
	Proxies *httplimit.Proxies
}

// None is the name, or the prefix, of a header that is not read.
const None = "none"

// The headers in which proxies name the original request: nginx by convention, Traefik, Caddy and
// APISIX by default, and ingress-nginx with a whole URL. A client can send those that its proxy
// doesn't set. Headers.Method and Path name the ones to trust.
var (
	MethodHeaders = []string{"X-Forwarded-Method", "X-Original-Method"}
	PathHeaders   = []string{"X-Forwarded-Uri", "X-Original-Uri", "X-Original-Url"}
)

// WithDefaults returns h with the default names of unset headers.
func (h Headers) WithDefaults() Headers {
	h.UID = cmp.Or(h.UID, "X-Tallygate-Uid")
	h.IP = cmp.Or(h.IP, "X-Tallygate-Ip")
	h.API = cmp.Or(h.API, "X-Tallygate-Api")
	if h.AttrPrefix != None {
		h.AttrPrefix = http.CanonicalHeaderKey(cmp.Or(h.AttrPrefix, "X-Tallygate-Attr-"))
	}
	h.Proxies = cmp.Or(h.Proxies, httplimit.NewProxies())
	return h
}

// Validate returns what is wrong with h.
func (h Headers) Validate() error { return h.Repeated.validate() }

// Read returns what the headers of a proxy's request say. The error is a *Refusal. h must come from
// WithDefaults.
func (h Headers) Read(header http.Header) (api string, dims []event.Dim, err error) {
	if api, err = h.named(header); err == nil && api == "" {
		api, err = h.original(header)
	}
	if err != nil {
		return "", nil, err
	}
	dims, err = h.dims(header)
	return api, dims, err
}

// ReadFor is Read for an original request whose method and target are known otherwise. The target
// is as in httplimit.PathAPI.
func (h Headers) ReadFor(header http.Header, method, path string) (api string, dims []event.Dim, err error) {
	if api, err = h.named(header); err != nil {
		return "", nil, err
	}
	if api == "" {
		api = httplimit.PathAPI(method, path)
	}
	dims, err = h.dims(header)
	return api, dims, err
}

// named returns the API that a header names; "" when there is none.
func (h Headers) named(header http.Header) (string, error) {
	if h.API == None {
		return "", nil
	}
	return h.Repeated.pick(h.API, header.Values(h.API))
}

func (h Headers) dims(header http.Header) (dims []event.Dim, err error) {
	add := func(dim, name string, values []string) {
		value, wrong := h.Repeated.pick(name, values)
		if err == nil {
			err = wrong
		}
		if dim == "ip" {
			value = h.Address(value)
		}
		if value != "" {
			dims = append(dims, event.Dim{Name: dim, Value: value})
		}
	}
	for name, values := range header {
		if attr, ok := strings.CutPrefix(name, h.AttrPrefix); ok && attr != "" && h.AttrPrefix != None {
			add("attrs."+strings.ToLower(attr), name, values)
		}
	}
	if h.IP != None {
		add("ip", h.IP, header.Values(h.IP))
	}
	if h.UID != None {
		add("uid", h.UID, header.Values(h.UID))
	}
	if err != nil {
		return nil, err
	}
	slices.SortFunc(dims, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	return dims, nil
}

// original names the original request by the headers for its method and path. If several are
// believed, the headers of each kind of proxy are read together: a client that adds the method
// header of another kind of proxy names another request, too.
func (h Headers) original(header http.Header) (api string, err error) {
	if h.Method != "" || h.Path != "" {
		method, err := h.agreed(header, h.Method, MethodHeaders, http.MethodGet, func(m string) string { return httplimit.PathAPI(m, "/") })
		if err != nil {
			return "", err
		}
		path, err := h.agreed(header, h.Path, PathHeaders, "/", func(p string) string { return httplimit.PathAPI(http.MethodGet, p) })
		return httplimit.PathAPI(method, path), err
	}
	named := ""
	for i, usual := range MethodHeaders {
		paths := PathHeaders[:1]
		if i > 0 {
			paths = PathHeaders[1:]
		}
		method, err := h.agreed(header, usual, nil, "", nil)
		if err != nil {
			return "", err
		}
		path, err := h.agreed(header, "", paths, "", func(p string) string { return httplimit.PathAPI(http.MethodGet, p) })
		if err != nil {
			return "", err
		}
		if method == "" && path == "" {
			continue
		}
		api := httplimit.PathAPI(method, path)
		if api != named && named != "" {
			return "", disagree(strings.Join(slices.Concat(MethodHeaders, PathHeaders), ", "))
		}
		named = api
	}
	return cmp.Or(named, httplimit.PathAPI(http.MethodGet, "/")), nil
}

// agreed returns the header's value. Without a name it is the value of the usual headers, which
// must mean the same.
func (h Headers) agreed(from http.Header, name string, usual []string, otherwise string, meaning func(string) string) (string, error) {
	if name != "" {
		value, err := h.Repeated.pick(name, from.Values(name))
		return cmp.Or(value, otherwise), err
	}
	agreed := ""
	for _, name := range usual {
		value, err := h.Repeated.pick(name, from.Values(name))
		if err != nil {
			return "", err
		}
		if agreed != "" && value != "" && meaning(value) != meaning(agreed) {
			return "", disagree(strings.Join(usual, ", "))
		}
		agreed = cmp.Or(agreed, value)
	}
	return cmp.Or(agreed, otherwise), nil
}

func disagree(headers string) *Refusal {
	return &Refusal{HeadersDisagree, "Two of these headers name different requests, and only one of them is the proxy's: " + headers + "."}
}

// Address is the client's address in a list as X-Forwarded-For has it: the last that is none of
// Proxies, written as keys have it.
func (h Headers) Address(list string) string {
	if list == "" {
		return ""
	}
	return Address(h.Proxies.Client(strings.Split(list, ",")))
}

// Address is the last address of a list as X-Forwarded-For has it, without its port, written as
// keys have it; "" when that is none: what is no address is absent, as in events.
func Address(text string) string {
	if i := strings.LastIndexByte(text, ','); i >= 0 {
		text = text[i+1:]
	}
	addr, ok := event.ParseAddress(strings.TrimSpace(text))
	if !ok {
		return ""
	}
	return addr.String()
}
