package enforce

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// ClientIP returns the client's address: the connection's other end, or, when that is one of these proxies, the address
// that they name in X-Forwarded-For. Each proxy adds to the right where its request came from, and what stands further left is only
// what a client claims. So it is the right-most address that is none of the proxies; a spoofed one lies left of it. When
// they name no address there, or something that is none, it is absent: the proxy's own would be a key that all share.
//
// Name every proxy that adds to the field, and none that passes on what it was sent. A connection
// that has no address, as on a Unix socket, comes from a proxy, if there are any.
func ClientIP(proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP(proxies, "X-Forwarded-For", splitList)
}

// ForwardedIP is ClientIP with the parameter for of RFC 7239's field Forwarded. Use the one that your proxies set: the other
// is passed on as the client sent it.
func ForwardedIP(proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP(proxies, "Forwarded", splitForwarded)
}

// HeaderIP is ClientIP with a field in which the proxy names the client alone, such as X-Real-Ip.
func HeaderIP(name string, proxies ...netip.Prefix) func(*http.Request) string {
	return forwardedIP(proxies, http.CanonicalHeaderKey(name), func(values []string) []string { return values[len(values)-1:] })
}

func forwardedIP(proxies []netip.Prefix, header string, split func([]string) []string) func(*http.Request) string {
	trusted := func(ip netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(ip) })
	}
	return func(r *http.Request) string {
		text, ip, ok := parseHop(r.RemoteAddr)
		if len(proxies) == 0 || ok && !trusted(ip) {
			return text
		}
		values := r.Header[header]
		if len(values) == 0 {
			return ""
		}
		text = ""
		for _, hop := range slices.Backward(split(values)) {
			if text, ip, ok = parseHop(strings.TrimSpace(hop)); !ok || !trusted(ip) {
				return text
			}
		}
		return text // all are proxies: the first of them asks for itself
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
