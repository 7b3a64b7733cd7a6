package httplimit

import (
	"fmt"
	"log/slog"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/tallygate/tallygate/event"
)

// Proxies are the networks of your own proxies. An address in them is never a client's: all clients
// would share that key, and a verdict on it would deny everyone. Make it with NewProxies. Its
// methods may be called by many goroutines.
type Proxies struct {
	nets   []netip.Prefix
	warned sync.Once
}

// NewProxies returns the proxies in these networks.
func NewProxies(nets ...netip.Prefix) *Proxies { return &Proxies{nets: nets} }

// ParseProxies returns the proxies in networks and at addresses that are separated by commas, as in
// "10.0.0.0/8, 192.0.2.7".
func ParseProxies(text string) (*Proxies, error) {
	p := NewProxies()
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		net, err := netip.ParsePrefix(part)
		if err != nil {
			ip, ipErr := netip.ParseAddr(part)
			if ipErr != nil {
				return nil, fmt.Errorf("%q is neither a network, such as 10.0.0.0/8, nor an address", part)
			}
			net = netip.PrefixFrom(ip, ip.BitLen())
		}
		p.nets = append(p.nets, net)
	}
	return p, nil
}

// Client returns the client's address: of the addresses that a request passed, with or without
// ports and nearest last, the right-most that is not a proxy. It is "" when that is not an address,
// or when all are proxies; the latter is logged once.
func (p *Proxies) Client(hops []string) string {
	for _, hop := range slices.Backward(hops) {
		if text, ip, ok := parseHop(strings.TrimSpace(hop)); !ok || !p.has(ip) {
			return text
		}
	}
	if len(hops) > 0 {
		p.warn(hops[0])
	}
	return ""
}

func (p *Proxies) has(ip netip.Addr) bool {
	return slices.ContainsFunc(p.nets, func(net netip.Prefix) bool { return net.Contains(ip) })
}

// warn logs once that a proxy names no client. Either its configuration is wrong, or the request is
// its own, such as a health check.
func (p *Proxies) warn(address string) {
	p.warned.Do(func() {
		slog.Warn("a trusted proxy names no client, so this request has no address; further ones are not logged: check which header it sets", "address", address)
	})
}

// ClientIP returns the client's address: the connection's peer, or, when that is one of these
// proxies, the address that they name in X-Forwarded-For. Each proxy appends the address that its
// request came from; everything further left is only a client's claim. So the result is the
// right-most address that is not a proxy: a spoofed one stands left of it. It is absent when there
// is no such address, as all clients would share a proxy's own as their key.
//
// List every proxy that appends to the field, and none that passes it on unchanged. A connection
// without an address, such as a Unix socket's, counts as a proxy's, if there are any.
func ClientIP(proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP("X-Forwarded-For", proxies, func(p *Proxies, values []string) string { return p.Client(splitList(values)) })
}

// ForwardedIP is ClientIP with the parameter for of RFC 7239's field Forwarded. Use the field that
// your proxies set: they forward the other unchanged, so clients can forge it.
func ForwardedIP(proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP("Forwarded", proxies, func(p *Proxies, values []string) string { return p.Client(splitForwarded(values)) })
}

// HeaderIP is ClientIP with a field in which the proxy names only the client, such as X-Real-Ip.
// Several values are Ambiguous.
func HeaderIP(name string, proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP(http.CanonicalHeaderKey(name), proxies, func(p *Proxies, values []string) string {
		if len(values) > 1 {
			return Ambiguous
		}
		return p.Client(values)
	})
}

func forwardedIP(header string, nets []netip.Prefix, client func(*Proxies, []string) string) func(*http.Request) string {
	proxies := NewProxies(nets...)
	return func(r *http.Request) string {
		text, ip, ok := parseHop(r.RemoteAddr)
		if len(nets) == 0 || ok && !proxies.has(ip) {
			return text
		}
		values := r.Header[header]
		if len(values) == 0 {
			proxies.warn(r.RemoteAddr)
			return ""
		}
		return client(proxies, values)
	}
}

// parseHop reads an address as event.ParseAddress does. text is the part of s that is the address, and ""
// when s is none.
func parseHop(s string) (text string, ip netip.Addr, ok bool) {
	text = s
	if rest, bracketed := strings.CutPrefix(s, "["); bracketed {
		text, _, _ = strings.Cut(rest, "]")
	} else if strings.Count(s, ":") == 1 {
		text, _, _ = strings.Cut(s, ":")
	}
	if ip, ok = event.ParseAddress(s); !ok {
		return "", ip, false
	}
	return text, ip, true
}

// splitList splits a list that may span several fields.
func splitList(values []string) []string {
	if len(values) == 1 {
		return strings.Split(values[0], ",")
	}
	return strings.Split(strings.Join(values, ","), ",")
}

// splitForwarded returns the for of each element, or "" if it has none. Only a client leaves a
// quote open, to hide what the proxies append. Then quotes are ignored, and so are elements without
// a for.
func splitForwarded(values []string) []string {
	all := strings.Join(values, ",")
	elements, closed := splitQuoted(all, ',')
	if !closed {
		elements = strings.Split(all, ",")
	}
	var hops []string
	for _, element := range elements {
		hop, found := "", false
		parameters, _ := splitQuoted(element, ';')
		for _, parameter := range parameters {
			name, value, _ := strings.Cut(parameter, "=")
			if strings.EqualFold(strings.TrimSpace(name), "for") {
				hop, found = strings.Trim(strings.TrimSpace(value), `"`), true
			}
		}
		if found || closed {
			hops = append(hops, hop)
		}
	}
	return hops
}

// splitQuoted splits outside of quotes; closed reports whether the last quote is closed.
func splitQuoted(s string, separator byte) (parts []string, closed bool) {
	start, quoted := 0, false
	for i := 0; i < len(s); i++ {
		switch {
		case s[i] == '\\' && quoted:
			i++
		case s[i] == '"':
			quoted = !quoted
		case s[i] == separator && !quoted:
			parts = append(parts, s[start:i])
			start = i + 1
		}
	}
	return append(parts, s[start:]), !quoted
}
