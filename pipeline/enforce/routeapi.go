package enforce

import (
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/pipeline/event"
)

// TemplateAPI names an API by its method and all of its route's template, as ServeMux, chi, gin, echo and fiber write it:
// GET /orders/{id}/items and /orders/:id/items are get.orders.id.items. A wildcard without a name, and a host, are left out. HEAD is GET.
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

// PatternAPI names a request's API by the pattern that a ServeMux, or chi, has found for it: for middleware within the router, and for
// Middleware whose next handler is the ServeMux itself, which it asks first. Where no pattern is known it is RouteAPI.
func PatternAPI(r *http.Request) string {
	if r.Pattern == "" {
		return RouteAPI(r)
	}
	return TemplateAPI(r.Method, r.Pattern)
}

// MuxAPI is PatternAPI for middleware that has other handlers between itself and the ServeMux, which finds the pattern only later.
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
