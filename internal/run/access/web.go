package access

import (
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// notFromAPage refuses requests that a page in a browser may have sent. Such requests come from a
// machine that reaches the API, whoever wrote the page. So serving on loopback only is no defence.
// They carry a foreign Origin or, if the page's own name was made to point here (DNS rebinding), a
// foreign Host.
func (g *Guard) notFromAPage(r *http.Request) error {
	// Without credentials the name that a request was sent to is all that tells a rebound name from
	// a known one.
	if !g.credentials && g.local && !g.ours(r.Host) {
		return fmt.Errorf("the host %.100q is not one that this API is served under: use localhost, a loopback address, or what --listen says (for an aggregator, also --advertise)", r.Host)
	}
	// If everyone may ask, under any host name, even a page of the same name may not: its owner is
	// unknown.
	anyPage := !g.credentials && !g.local
	for _, origin := range r.Header.Values("Origin") {
		if anyPage || !sameOrigin(origin, r.Host) {
			return fmt.Errorf("requests from web pages are refused, and this one comes from %.100q", origin)
		}
	}
	for _, site := range r.Header.Values("Sec-Fetch-Site") {
		if site != "none" && (anyPage || site != "same-origin") {
			return fmt.Errorf("requests from web pages are refused, and this one is %.100q", site)
		}
	}
	return nil
}

func (g *Guard) ours(host string) bool {
	return LocalName(g.cfg.Addr, host, g.cfg.Listen, g.cfg.Name)
}

// LocalName reports whether the Host header of a request to addr names this machine's loopback, or
// one of the names, each HOST or HOST:PORT, that the operator configured. The port may differ, as
// with a tunnel. Any other name may be one that was made to point here (DNS rebinding).
func LocalName(addr net.Addr, host string, names ...string) bool {
	if _, unix := addr.(*net.UnixAddr); unix {
		return true // no browser gets there
	}
	name := hostOf(host)
	if name == "" {
		return false
	}
	if name == "localhost" || slices.ContainsFunc(names, func(n string) bool { return hostOf(n) == name }) {
		return true
	}
	ip, err := netip.ParseAddr(name)
	return err == nil && ip.Zone() == "" && ip.Unmap().IsLoopback()
}

// hostOf is the host of HOST:PORT, or of HOST alone, in lower case and without a trailing dot.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

// sameOrigin reports whether a page of origin was served under the host that the request names.
func sameOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, host)
}

// jsonBody refuses a body that does not say that it is JSON: a page may have a browser send others
// anywhere without asking first. An instance of an older version sends what it passes on without a
// type, but with a header that no page may set unasked.
func jsonBody(r *http.Request) error {
	if r.ContentLength == 0 || r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	given := r.Header.Get("Content-Type")
	if given == "" && r.Header.Get("X-Tallygate-Forwarded") != "" {
		return nil
	}
	if media, _, err := mime.ParseMediaType(given); err == nil && media == "application/json" {
		return nil
	}
	return errors.New("a body must be JSON, and say so: Content-Type: application/json")
}
