package console

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/console/browsertest"
)

// Each page about keys, on the embedded stack: everybody can use it, and it complains about nothing. With
// TALLYGATE_TEST_SHOTS=FOLDER it leaves pictures there.
func TestKeyPagesInABrowser(t *testing.T) {
	b := browsertest.Start(t)
	r := startKeyRig(t)
	r.blockOne()
	u := r.as("operator")
	found := u.post("/key", "action", "search", "key", "uid="+secretUID)
	u.post(found.path+"/exempt", "action", "do", "reason", "load test, asked for by the shop's team", "for", "30m", "rule", "daily")
	for name, path := range map[string]string{
		"blocked": "/blocked", "search": "/key", "key": found.path, "unblock": found.path + "/unblock", "block": found.path + "/block", "erase": found.path + "/erase",
		"exemptions": "/exemptions", "audit": "/audit", "at": found.path + "?at=5s",
	} {
		for look, how := range looks {
			how.Token = "token-admin"
			about := fmt.Sprint(name, " ", look)
			p := b.Open(r.base+path, how)
			p.Axe(about)
			if n := p.Bytes(); n == 0 || n > mostBytes {
				t.Errorf("%s: %d bytes over the wire", about, n)
			}
			if folder := os.Getenv("TALLYGATE_TEST_SHOTS"); folder != "" {
				if err := os.WriteFile(filepath.Join(folder, strings.ReplaceAll(about, " ", "-")+".png"), p.Screenshot(), 0o600); err != nil {
					t.Error(err)
				}
			}
		}
	}
	r.nothingLeaks()
}
