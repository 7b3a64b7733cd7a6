package tallygate_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate"
	"github.com/tallygate/tallygate/api"
	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist/presence"
)

// statusOf returns the answer of a Guard's handler, which is as the schema of all programs has it.
func statusOf(t *testing.T, g *tallygate.Guard, query string, want int) (s api.Status) {
	t.Helper()
	server := httptest.NewServer(g.StatusHandler())
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: apitest.Open(t, apidocs.Enforcer).Transport(t, transport)}
	resp, err := client.Get(server.URL + "/v1/status" + query)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if resp.StatusCode != want || err != nil || strings.Contains(string(body), "hush") {
		t.Fatalf("%d %s %v", resp.StatusCode, body, err)
	}
	if want == http.StatusOK {
		if err := json.Unmarshal(body, &s); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// A Guard without Redis tells so, and no password.
func TestStatusOfAGuardWithoutRedis(t *testing.T) {
	t.Parallel()
	g, _ := open(t, tallygate.Config{Redis: "redis://me:hush@127.0.0.1:1"})
	testrun.Eventually(t, "it tells that Redis is away", func() bool {
		s := statusOf(t, g, "", http.StatusOK)
		return s.Instance != "" && !s.Ready && s.Why != "" && s.Enforcer.Staleness == -1 && s.Enforcer.Redis != nil && s.Enforcer.Redis.Reason == "unreachable" && len(s.Errors) == 1
	})
	statusOf(t, g, "?uid=42", http.StatusBadRequest)
}

// Operators see a service: its name, how far behind its table is, and a kill switch of its own. Close takes
// it away at once, and a service may stay unseen.
func TestAGuardIsSeen(t *testing.T) {
	t.Parallel()
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
	s := statusOf(t, g, "?metrics=tallygate_rule_,tallygate_blocklist_entries", http.StatusOK)
	if s.Instance != "shop" || !s.Ready || s.Enforcer.Entries != 1 || s.Enforcer.OffCause != "program" || s.Enforcer.OffSince.IsZero() || len(s.Metrics["tallygate_blocklist_entries"]) != 1 || len(s.Metrics) != 4 {
		t.Errorf("its status is %+v", s)
	}
	shut(t, g)
	if all := seen(); len(all) != 0 {
		t.Errorf("it was closed, and there are %+v", all)
	}
}
