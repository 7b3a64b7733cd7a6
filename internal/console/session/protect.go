package session

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/tallygate/tallygate/internal/base/httpjson"
	"github.com/tallygate/tallygate/internal/run/access"
)

// policy restricts what browsers load for a page to what the console itself serves, and allows no code or style
// within a page.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; " +
	"font-src 'self'; manifest-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// Protect is around all of the console's handlers. It sets the headers that bound what a browser does
// with a page, and refuses what pages of other sites have it send.
func (m *Manager) Protect(next http.Handler) http.Handler {
	cross := http.NewCrossOriginProtection()
	if m.external != nil { // a proxy may ask for another host
		_ = cross.AddTrustedOrigin(m.external.Scheme + "://" + m.external.Host) // New has checked it
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		// To other sites no-referrer; and with that, forms of the console itself would have no Origin.
		h.Set("Referrer-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store") // handlers of files that never change set another one
		if m.jar.secure {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		if err := m.ours(r); err != nil {
			httpjson.Problem(w, http.StatusForbidden, err.Error())
			return
		}
		if err := m.fromHere(cross, r); err != nil {
			httpjson.Problem(w, http.StatusForbidden, err.Error())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// ours refuses a name that was made to point to this machine: a page of that name could read and do
// what the reader may.
func (m *Manager) ours(r *http.Request) error {
	if !m.local {
		return nil
	}
	names := []string{m.cfg.Listen}
	if m.external != nil {
		names = append(names, m.external.Host)
	}
	if access.LocalName(m.cfg.Addr, r.Host, names...) {
		return nil
	}
	return fmt.Errorf("the host %.100q is not one that the console is served under: use localhost, a loopback address, or what --listen or --external-url says", r.Host)
}

// fromHere refuses requests that change something unless a page of the console has sent them, or no
// page. Both what the browser says of the site and the page's origin have to be right.
func (m *Manager) fromHere(cross *http.CrossOriginProtection, r *http.Request) error {
	if r.Method == http.MethodGet || r.Method == http.MethodHead || r.Method == http.MethodOptions {
		return nil
	}
	if err := cross.Check(r); err != nil {
		return fmt.Errorf("requests from other sites are refused: %w", err)
	}
	origins := r.Header.Values("Origin")
	for _, origin := range origins {
		u, err := url.Parse(origin)
		same := err == nil && u.Host != "" && (strings.EqualFold(u.Host, r.Host) || m.external != nil && strings.EqualFold(u.Host, m.external.Host) && u.Scheme == m.external.Scheme)
		if !same || len(origins) > 1 {
			return fmt.Errorf("requests from other sites are refused, and this one comes from %.100q", origin)
		}
	}
	return nil
}
