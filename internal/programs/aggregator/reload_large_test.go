package aggregator

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// As many networks as rules may name fit into the record by which a group shares them.
func TestTheLargestListsArePublished(t *testing.T) {
	servers, err := devstack.Start(t.Context(), devstack.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(servers.Close)
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	networks := func(seed uint64) string {
		r := rand.New(rand.NewPCG(seed, 1))
		var b strings.Builder
		for range 100_000 {
			n := r.Uint32()
			fmt.Fprintf(&b, "%d.%d.%d.0/24\n", 1+n>>24%223, n>>16&255, n>>8&255)
		}
		return b.String()
	}
	write("cloud.txt", networks(1))
	path := write("rules.yaml", strings.Replace(limited(5), "spec:\n", "spec:\n  networks: {cloud: cloud.txt}\n", 1))
	api := running(t, servers.Kafka, path)
	write("cloud.txt", networks(2))
	testrun.Eventually(t, "the networks are the second version", func() bool { return strings.HasPrefix(post(t, api), `200 {"version":2,`) })
}
