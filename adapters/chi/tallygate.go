// Package tallygate names chi's routes for the middleware of package enforce, which is chi's as it is:
//
//	router := chi.NewRouter()
//	router.Use(httplimit.Middleware(table, httplimit.Options{UID: user, API: tallygate.TemplateAPI(router)}))
package tallygate

import (
	"net/http"

	"github.com/go-chi/chi/v5"

	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

// TemplateAPI names an API by the route that the router will find for it: GET /orders/{id} is get.orders.id. A request that no
// route takes is httplimit.Unrouted. Middleware that is given to With, or to a route's own router, can use httplimit.PatternAPI as well.
func TemplateAPI(routes chi.Routes) func(*http.Request) string {
	return func(r *http.Request) string {
		path := r.URL.RawPath
		if path == "" {
			path = r.URL.Path
		}
		template := routes.Find(chi.NewRouteContext(), r.Method, path)
		if template == "" && r.Method == http.MethodHead { // chi's middleware GetHead answers by the route of GET
			template = routes.Find(chi.NewRouteContext(), http.MethodGet, path)
		}
		if template != "" {
			return httplimit.TemplateAPI(r.Method, template)
		}
		return httplimit.Unrouted
	}
}
