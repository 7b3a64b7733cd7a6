package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/servers"
)

// newer builds an aggregator as a later release might be: it reads states of today's form, and
// writes them in one of the next version. The source is changed for that build only.
func newer(t *testing.T) string {
	t.Helper()
	const file = "../../../pipeline/aggregate/shard/block.go"
	src, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	text := string(src)
	for _, change := range [][2]string{{"const blockVersion = 1\n", "const blockVersion = 2\n"}, {"src[0] != blockVersion", "src[0] > blockVersion"}} {
		if !strings.Contains(text, change[0]) {
			t.Fatalf("%s has no %q: let this test change what makes the version of a block now", file, change[0])
		}
		text = strings.ReplaceAll(text, change[0], change[1])
	}
	dir := t.TempDir()
	changed, overlay, out := filepath.Join(dir, "block.go"), filepath.Join(dir, "overlay.json"), filepath.Join(dir, "aggregator")
	if err := os.WriteFile(changed, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	original, err := filepath.Abs(file)
	if err != nil {
		t.Fatal(err)
	}
	list, err := json.Marshal(map[string]map[string]string{"Replace": {original: changed}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(overlay, list, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", overlay, "-o", out}
	if raceEnabled() {
		args = append(args, "-race")
	}
	if text, err := exec.CommandContext(t.Context(), "go", append(args, "../../../cmd/aggregator")...).CombinedOutput(); err != nil {
		t.Fatalf("go %v: %v\n%s", args, err, text)
	}
	return out
}

// A rolling upgrade to a newer state format, and back. The newer program reads what the older
// one wrote. The older one refuses what the newer one wrote, and leaves it as it is.
func TestUpgradeAndBack(t *testing.T) {
	t.Parallel() // it mostly waits
	servers.Nightly(t, "changes")
	r := newRig(t, searches)
	path := newer(t)
	older, other := r.aggregator("older"), r.aggregator("other")
	upgraded := r.aggregator("newer")
	upgraded.path = path
	refuses := func(p *Process) {
		t.Helper()
		if status := p.ended(); status != 1 || !strings.Contains(p.Logs(), "written by a newer program") {
			t.Errorf("%s exits with %d", p.name, status)
		}
	}
	exact := func() {
		t.Helper()
		r.caughtUp()
		m := newModel(r)
		m.compareCounters(t, m.keys(), upgraded)
		r.compareRedis(m.compareVerdicts(r))
	}

	older.Start().Ready()
	other.Start().Ready()
	r.shared(older, other)
	r.putEach(200, 5)
	r.caughtUp()
	if status := older.Stop(); status != 0 {
		t.Errorf("the older one exits with %d", status)
	}
	upgraded.Start().Ready()
	r.shared(upgraded, other)
	r.putEach(200, 4)
	r.caughtUp()
	upgraded.Kill() // the other one gets its partitions
	refuses(other)
	upgraded.Start().Ready()
	r.putEach(200, 3)
	exact()

	if status := upgraded.Stop(); status != 0 {
		t.Errorf("the newer one exits with %d", status)
	}
	refuses(older.Start())
	upgraded.Start().Ready()
	r.putEach(100, 2)
	exact()
}
