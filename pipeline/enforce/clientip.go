package enforce

import (
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
)

// Proxies are the networks of your own proxies. An address in them is never a client's: as a key it would be one that all share, and a
// verdict on it would deny everyone. Make it with NewProxies; it is safe for use by many goroutines.
type Proxies struct {
	nets []netip.Prefix
	told sync.Once
}

// NewProxies returns the proxies in these networks.
func NewProxies(nets ...netip.Prefix) *Proxies { return &Proxies{nets: nets} }

// Client returns the client's address from those that a request came from, with or without ports, the last one being the nearest: the
// right-most that is none of the proxies. It is "" when that is no address, or when all are proxies, which is said once in the log.
func (p *Proxies) Client(hops []string) string {
	for _, hop := range slices.Backward(hops) {
		if text, ip, ok := parseHop(strings.TrimSpace(hop)); !ok || !p.has(ip) {
			return text
		}
	}
	if len(hops) > 0 {
		p.tell(hops[0])
	}
	return ""
}

func (p *Proxies) has(ip netip.Addr) bool {
	return slices.ContainsFunc(p.nets, func(net netip.Prefix) bool { return net.Contains(ip) })
}

// tell says once that a proxy names no client. It is a mistake in its configuration, or it asks for itself, such as for its health checks.
func (p *Proxies) tell(address string) {
	p.told.Do(func() {
		slog.Warn("a trusted proxy names no client, so this request has no address; further ones are not logged: check which header it sets", "address", address)
	})
}

// ClientIP returns the client's address: the connection's other end, or, when that is one of these proxies, the address
// that they name in X-Forwarded-For. Each proxy adds to the right where its request came from, and what stands further left is only
// what a client claims. So it is the right-most address that is none of the proxies; a spoofed one lies left of it. When
// they name no address there, or something that is none, or only each other, it is absent: a proxy's own would be a key that all share.
//
// Name every proxy that adds to the field, and none that passes on what it was sent. A connection
// that has no address, as on a Unix socket, comes from a proxy, if there are any.
func ClientIP(proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP("X-Forwarded-For", proxies, func(p *Proxies, values []string) string { return p.Client(splitList(values)) })
}

// ForwardedIP is ClientIP with the parameter for of RFC 7239's field Forwarded. Use the one that your proxies set: the other
// is passed on as the client sent it.
func ForwardedIP(proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP("Forwarded", proxies, func(p *Proxies, values []string) string { return p.Client(splitForwarded(values)) })
}

// HeaderIP is ClientIP with a field in which the proxy names the client alone, such as X-Real-Ip. With several values it is Ambiguous.
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
			proxies.tell(r.RemoteAddr)
			return ""
		}
		return client(proxies, values)
	}
}

// parseHop reads an address with or without a port, an IPv6 one also in brackets. Text is "" when it is none.
func parseHop(s string) (text string, ip netip.Addr, ok bool) {
	if host, _, err := net.SplitHostPort(s); err == nil {
		s = host
	} else if len(s) > 1 && s[0] == '[' && s[len(s)-1] == ']' {
		s = s[1 : len(s)-1]
	}
	ip, err := netip.ParseAddr(s)
	if err != nil {
		return "", ip, false
	}
	return s, ip.Unmap().WithZone(""), true
}

// splitList splits the fields of a list, of which there may be several.
func splitList(values []string) []string {
	if len(values) == 1 {
		return strings.Split(values[0], ",")
	}
	return strings.Split(strings.Join(values, ","), ",")
}

// splitForwarded returns the for of each element; "" when one has none. When a quote is left open, which only a client can have
// done, to swallow what the proxies add, quotes count for nothing, and nor do elements without a for.
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

// splitQuoted splits outside of quotes; closed is whether the last of them is.
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
