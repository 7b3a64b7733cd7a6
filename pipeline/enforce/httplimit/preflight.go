package httplimit

import "net/http"

// Preflight is for Options.Skip: it reports whether a request is a CORS preflight, by which a browser asks
// whether a script may send the request that follows. It has no cookie and no credential, so it is
// nobody's. Anyone can send one: use it only where the handlers behind do nothing else for OPTIONS. A CORS
// middleware in front of this one needs no Preflight.
func Preflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Origin") != "" && r.Header.Get("Access-Control-Request-Method") != ""
}
