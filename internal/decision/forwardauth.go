package decision

import (
	"net/http"
	"net/netip"
	"net/url"
	"strings"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// forwardAuth answers a proxy that asks before it lets a request through: who and what are
// in headers, or the API is made from the original method and path.
func (s *Server) forwardAuth(w http.ResponseWriter, r *http.Request) {
	c := s.fromHeaders(r)
	dims, err := c.dims()
	if err != nil {
		problem(w, http.StatusBadRequest, err.Error())
		return
	}
	if d := s.decide(c.API, dims); !d.Allowed {
		enforce.WriteDenied(w, r, d)
		return
	}
	w.WriteHeader(s.cfg.AllowStatus)
}

// The headers in which proxies name the original request: nginx by convention, Traefik and
// Caddy by themselves, and ingress-nginx with a whole URL. A client can send those that its
// proxy doesn't set: Config.MethodHeader and PathHeader name the ones to trust.
var (
	methodHeaders = []string{"X-Original-Method", "X-Forwarded-Method"}
	pathHeaders   = []string{"X-Original-Uri", "X-Forwarded-Uri", "X-Original-Url"}
)

func (s *Server) fromHeaders(r *http.Request) query {
	c := query{
		UID: uid(r.Header.Get(s.cfg.UIDHeader)),
		IP:  r.Header.Get(s.cfg.IPHeader),
		API: r.Header.Get(s.cfg.APIHeader),
	}
	if _, err := netip.ParseAddr(c.IP); err != nil {
		c.IP = "" // as in events and in the middleware: what is no address is absent
	}
	if c.API == "" {
		c.API = enforce.PathAPI(
			first(r, s.cfg.MethodHeader, methodHeaders, http.MethodGet),
			pathOf(first(r, s.cfg.PathHeader, pathHeaders, "/")))
	}
	for name, values := range r.Header {
		if attr, ok := strings.CutPrefix(name, s.cfg.AttrPrefix); ok && attr != "" {
			if c.Attrs == nil {
				c.Attrs = map[string]value{}
			}
			c.Attrs[strings.ToLower(attr)] = value(values[0])
		}
	}
	return c
}

// first is the value of the header, or of the first usual one that is there.
func first(r *http.Request, header string, usual []string, otherwise string) string {
	if header != "" {
		usual = []string{header}
	}
	for _, h := range usual {
		if v := r.Header.Get(h); v != "" {
			return v
		}
	}
	return otherwise
}

// pathOf is the path of a URL, or the path itself.
func pathOf(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	if u, err := url.Parse(target); err == nil {
		return u.EscapedPath()
	}
	return target
}
