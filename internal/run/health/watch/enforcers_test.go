package watch

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Whoever can write into Redis announces enforcers. The poll asks them for their state and for nothing else: the
// announced path, query and credentials are left out, and a redirect leads nowhere.
func TestAnnouncedAddressesSayOnlyTheHost(t *testing.T) {
	var elsewhere, asked atomic.Int32
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { elsewhere.Add(1) }))
	defer other.Close()
	enforcer := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1); r.URL.Path != "/v1/status" || !strings.HasPrefix(r.URL.RawQuery, "metrics=") || r.Header.Get("Authorization") != "" {
			t.Errorf("asked for %s with %q", r.URL, r.Header.Get("Authorization"))
		}
		http.Redirect(w, r, other.URL+"/admin", http.StatusFound)
	}))
	defer enforcer.Close()
	over := &http.Transport{}
	defer over.CloseIdleConnections()
	host := strings.TrimPrefix(enforcer.URL, "http://")
	var beats []presence.Beat
	for _, url := range []string{"http://user:secret@" + host, enforcer.URL + "/admin/delete?all=1&x=", enforcer.URL + "/#", enforcer.URL,
		"file:///etc/passwd", "http://", "http://:80", "ftp://" + host, "//" + host, "http://[::1"} {
		beats = append(beats, presence.Beat{URL: url, Name: url})
	}
	enforced(t.Context(), apiclient.NewEnforcers(over), beats)
	if asked.Load() != 4 || elsewhere.Load() != 0 {
		t.Errorf("asked %d times, and elsewhere %d times", asked.Load(), elsewhere.Load())
	}
}
