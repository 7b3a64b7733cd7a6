package httplimit

import (
	"net/http"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// Unrouted is the API of requests that no route takes, where the router's routes are known. Their paths are
// whatever a scanner tries: each of them would be an API of its own.
const Unrouted = "unrouted"

// TemplateAPI names an API by its method and its route's whole template, in the syntax of ServeMux,
// chi, gin, echo or fiber: GET /orders/{id}/items and /orders/:id/items are get.orders.id.items.
// Hosts and unnamed wildcards are left out. HEAD is GET.
func TemplateAPI(method, template string) string {
	if before, path, ok := strings.Cut(template, " "); ok { // ServeMux has the method in it
		method, template = before, strings.TrimSpace(path)
	}
	if slash := strings.IndexByte(template, '/'); slash > 0 {
		template = template[slash:]
	}
	var space [event.MaxAPI]byte
	name := appendMethod(space[:0], method)
	for segment := range strings.SplitSeq(template, "/") {
		segment = strings.TrimRight(strings.TrimLeft(segment, "{:*"), "}?")
		segment, _, _ = strings.Cut(strings.TrimSuffix(segment, "..."), ":") // {id:[0-9]+}
		if segment != "" && segment != "$" {
			name = appendSegment(appendByte(name, '.'), segment)
		}
	}
	return string(name)
}

// PatternAPI names a request's API by the pattern that a ServeMux, or chi, found for it. Use it for
// middleware inside the router, or for Middleware directly around a ServeMux: that asks the mux
// first, and then a request without a pattern is Unrouted. Elsewhere it is RouteAPI.
func PatternAPI(r *http.Request) string {
	if r.Pattern == "" {
		return RouteAPI(r)
	}
	return TemplateAPI(r.Method, r.Pattern)
}

// MuxAPI is PatternAPI for middleware that has other handlers between itself and the ServeMux. It
// asks the mux for the pattern in advance. A request without one is Unrouted.
func MuxAPI(mux *http.ServeMux) func(*http.Request) string {
	return func(r *http.Request) string {
		if _, pattern := mux.Handler(r); pattern != "" {
			return TemplateAPI(r.Method, pattern)
		}
		return Unrouted
	}
}

// routedAPI is an API's name before a ServeMux, which has just been asked for the request's pattern: where
// there is none, and the name is nothing but that of the path, it is Unrouted.
func routedAPI(of func(*http.Request) string, r *http.Request) string {
	api := of(r)
	if r.Pattern == "" && api == RouteAPI(r) {
		return Unrouted
	}
	return api
}

// PathIn is for Options.Skip: it reports whether a request is for one of these paths, such as /healthz.
func PathIn(paths ...string) func(*http.Request) bool {
	return func(r *http.Request) bool { return slices.Contains(paths, r.URL.Path) }
}

// Named renames the APIs that of returns: get.orders.id to order.read, say. APIs that are not in
// names keep theirs.
func Named(names map[string]string, of func(*http.Request) string) func(*http.Request) string {
	return func(r *http.Request) string {
		api := of(r)
		if name, ok := names[api]; ok {
			return name
		}
		return api
	}
}
