package ask_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/tallygate/tallygate/pipeline/aggregate/ask"
	"github.com/tallygate/tallygate/pipeline/aggregate/ask/asktest"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// start starts instances with a rule set.
func start(t *testing.T, spec string, members int, serve func(*asktest.Member) http.Handler) *asktest.Group {
	t.Helper()
	set, err := rules.Compile("test.yaml", []byte("apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: test}\nspec:\n"+spec))
	if err != nil {
		t.Fatal(err)
	}
	return asktest.Start(t, set, members, serve)
}

func hit(uid, api string) *event.Event {
	return &event.Event{UID: uid, API: api, Cost: event.One, Time: event.FromTime(time.Now())}
}

// More keys than are looked at are estimated from a sample of them.
func TestDistributionOfASample(t *testing.T) {
	g := start(t, "  rules:\n    - {name: calls, match: {api: a}, limit: 5, per: 1h, then: {block: 1m}}\n", 1,
		func(m *asktest.Member) http.Handler { return http.HandlerFunc(m.ServeDistribution) })
	const users = 6000
	for u := range users {
		g.Emit(hit(fmt.Sprint("u", u), "a"))
	}
	n, sampled, err := ask.Sample(t.Context(), g.Current(), "calls", g.Members[0].Owned(), 3)
	if err != nil || !sampled || n < users*8/10 || n > users*12/10 {
		t.Errorf("a third of %d keys says that there are %d, %v", users, n, err)
	}
}
