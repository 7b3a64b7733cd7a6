package console

import (
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/console/session"
	"github.com/tallygate/tallygate/internal/run/apiclient"
)

// TestCookiesAreForTLSBehindAProxy: the console saw that its own connection had no TLS, and let browsers send what
// was done, such as the name of a key, without any.
func TestCookiesAreForTLSBehindAProxy(t *testing.T) {
	for external, want := range map[string]bool{"": false, "https://console.example.com": true} {
		m, err := session.New(session.Config{Aggregator: apiclient.New("http://127.0.0.1:1", nil), Addr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)}, Listen: "127.0.0.1:8090", External: external})
		if err != nil {
			t.Fatal(err)
		}
		s := &server{sessions: m}
		c := s.cookie(themeCookie, "dark", time.Minute)
		if c.Secure != want || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode {
			t.Errorf("with --external-url %q: %v", external, c)
		}
	}
}
