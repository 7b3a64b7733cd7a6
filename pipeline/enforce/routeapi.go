package enforce

import (
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// RouteAPI names a request's API by its method and the first two segments of its path, as events made from
// access logs do: GET /Images/ks-logo.gif?x=1 is get.images.ks-logo-gif.
func RouteAPI(r *http.Request) string { return PathAPI(r.Method, r.URL.EscapedPath()) }

// PathAPI is RouteAPI for a method and a path as it was written, percent-encoded, with or without a query.
// Everything is in lower case; what is not a letter or digit of ASCII becomes '-', empty segments are dropped,
// and the whole is cut to 128 bytes.
func PathAPI(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	name := make([]byte, 0, 64)
	name = append(name, strings.ToLower(method)...)
	left := 2
	for segment := range strings.SplitSeq(path, "/") {
		if segment == "" {
			continue
		}
		if left--; left < 0 {
			break
		}
		name = appendSegment(append(name, '.'), segment)
	}
	return string(name[:min(len(name), event.MaxAPI)])
}

func appendSegment(name []byte, segment string) []byte {
	for _, c := range segment {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9':
			name = append(name, byte(c))
		case c >= 'A' && c <= 'Z':
			name = append(name, byte(c)|0x20)
		default:
			name = append(name, '-')
		}
	}
	return name
}

// TemplateAPI names an API by its method and all of its route's template, as ServeMux, chi, gin, echo and fiber write it:
// GET /orders/{id}/items and /orders/:id/items are get.orders.id.items. A wildcard without a name, and a host, are left out.
func TemplateAPI(method, template string) string {
	if before, path, ok := strings.Cut(template, " "); ok { // ServeMux has the method in it
		method, template = before, strings.TrimSpace(path)
	}
	if slash := strings.IndexByte(template, '/'); slash > 0 {
		template = template[slash:]
	}
	name := appendSegment(make([]byte, 0, 64), method)
	for segment := range strings.SplitSeq(template, "/") {
		segment = strings.TrimRight(strings.TrimLeft(segment, "{:*"), "}?")
		segment, _, _ = strings.Cut(strings.TrimSuffix(segment, "..."), ":") // {id:[0-9]+}
		if segment != "" && segment != "$" {
			name = appendSegment(append(name, '.'), segment)
		}
	}
	return string(name[:min(len(name), event.MaxAPI)])
}

// PatternAPI names a request's API by the pattern that a ServeMux, or chi, has found for it: for middleware within the router. Where
// there is none it is RouteAPI.
func PatternAPI(r *http.Request) string {
	if r.Pattern == "" {
		return RouteAPI(r)
	}
	return TemplateAPI(r.Method, r.Pattern)
}

// MuxAPI is PatternAPI for middleware around a ServeMux, which finds the pattern only later.
func MuxAPI(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		if _, pattern := mux.Handler(r); pattern != "" {
			return TemplateAPI(r.Method, pattern)
		}
		return RouteAPI(r)
	}
}

// Named gives names to APIs, by those that of returns: get.orders.id is order.read. One that has no name keeps its own.
func Named(names map[string]string, of func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		api := of(r)
		if name, ok := names[api]; ok {
			return name
		}
		return api
	}
}
