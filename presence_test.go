package tallygate_test

import (
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/internal/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// Operators see a service: its name, how far behind its table is, and a kill switch of its own. Close takes
// it away at once, and a service may stay unseen.
func TestAGuardIsSeen(t *testing.T) {
	server := miniredis.RunT(t)
	blocks(t, server.Addr(), "42")
	client := redis.NewClient(&redis.Options{Addr: server.Addr()})
	defer client.Close()
	seen := func() []presence.Beat {
		t.Helper()
		all, err := presence.List(t.Context(), client, "")
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	g, _ := open(t, tallygate.Config{Redis: server.Addr(), Name: "shop"})
	open(t, tallygate.Config{Redis: server.Addr(), NoPresence: true})
	testrun.Eventually(t, "it is seen with its table", func() bool {
		all := seen()
		return len(all) == 1 && all[0].Name == "shop" && all[0].Entries == 1 && all[0].Staleness >= 0
	})
	b := seen()[0]
	if b.Kind != presence.Go || b.URL != "" || b.Version == "" || !b.Enabled || b.Error != "" {
		t.Errorf("it is %+v", b)
	}
	g.Table().SetEnabled(false)
	testrun.Eventually(t, "the kill switch is seen", func() bool { return seen()[0].OffCause == "program" })
	shut(t, g)
	if all := seen(); len(all) != 0 {
		t.Errorf("it was closed, and there are %+v", all)
	}
}
