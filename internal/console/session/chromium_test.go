package session

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/testing/oidctest"
	"github.com/tallygate/tallygate/internal/testing/servers"
)

// dump is the document that a browser shows in the end.
func dump(t *testing.T, address string) string {
	t.Helper()
	servers.Nightly(t, "browsers")
	path := servers.Program(t, "chromium")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--no-proxy-server",
		"--user-data-dir="+t.TempDir(), "--virtual-time-budget=20000", "--dump-dom", address).Output()
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

// A browser sends a SameSite cookie to the console only if a page of the console leads there. The way
// back from the issuer, and a link in a pager's message, have to arrive nevertheless. Here issuer and
// pager are another site, localhost.
func TestWaysFromOtherSitesInChromium(t *testing.T) {
	t.Parallel()
	p := oidctest.New(t)
	p.URL = strings.Replace(p.URL, "127.0.0.1", "localhost", 1)
	p.User(fay("team-viewer"))
	c, _ := withIssuer(t, p)
	pager := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		to := map[string]string{"/": c.URL + "/login/start?next=/leave", "/message": c.URL + "/keys"}[r.URL.Path]
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintf(w, `<meta http-equiv="refresh" content="0; url=%s">`, to)
	}))
	defer pager.Close()
	site := strings.Replace(pager.URL, "127.0.0.1", "localhost", 1)
	seen := "nobody"
	c.pages.Handle("GET /leave", c.Require(access.Viewer, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = From(r.Context()).Name
		http.Redirect(w, r, site+"/message", http.StatusSeeOther)
	})))
	text := dump(t, site+"/")
	if seen != "fay@example.com" {
		t.Errorf("after the login the reader is %s", seen)
	}
	if !strings.Contains(text, "fay@example.com viewer ey") {
		t.Errorf("the pager's link ends at %s", text)
	}
}
