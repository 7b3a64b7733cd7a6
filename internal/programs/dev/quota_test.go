package dev_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/testing/testrun"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const quotas = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: test}
spec:
  rules:
    - {name: search-combined, public: searches, match: {api: search.query}, limit: 100, gap: 3s, window: session, quota: true, then: {block: until-reset}}
    - {name: all-year, public: years, match: {api: search.query}, limit: 1k, per: year, window: calendar, quota: true, then: {block: until-reset}}
`

// What a user has left is in each answer of a service and of the decision server, soon after the last
// event, also where no further one comes; and no longer than until the window ends.
func TestWhatIsLeftIsTold(t *testing.T) {
	t.Parallel()
	r := start(t, nil, "--input", "none", "--rules", file(t, "rules.yaml", quotas))
	em, err := emit.New(emit.Config{Brokers: []string{r.sees(`Kafka +(\S+), topic tallygate\.events$`)[1]}})
	if err != nil {
		t.Fatal(err)
	}
	base := r.sees(`decision server +(http://\S+)/v1/check$`)[1]
	app := guardedBy(t, r.sees(`Redis +(\S+)$`)[1])
	told := func(url, header, uid string) []string {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(header, uid)
		req.Header.Set("X-Tallygate-Api", "search.query")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.Header.Get("RateLimit") == "" {
			return nil
		}
		var all []string
		for one := range strings.SplitSeq(resp.Header.Get("RateLimit"), ", ") {
			all = append(all, one[:strings.LastIndexByte(one, ';')]) // without the seconds
		}
		return all
	}
	everywhere := func(uid string, want ...string) bool {
		return slices.Equal(told(app, "User", uid), want) && slices.Equal(told(base+"/v1/forward-auth", "X-Tallygate-Uid", uid), want)
	}
	if got := told(app, "User", "1"); got != nil {
		t.Errorf("before any event: %s", got)
	}
	// A session of three seconds may be over before a machine with much else to do tells of it: the
	// next user tries again.
	var user int
	var uid string
	for seen := false; !seen; {
		user++
		uid = strconv.Itoa(user)
		for range 37 {
			em.Emit(event.Event{UID: uid, API: "search.query"})
		}
		testrun.Eventually(t, "it is told what is left, or what is left when the session is over", func() bool {
			seen = everywhere(uid, `"searches";r=63`, `"years";r=963`)
			return seen || everywhere(uid, `"years";r=963`)
		})
		if user == 20 {
			t.Fatal("what is left of a session was never told while it lasted")
		}
	}
	testrun.Eventually(t, "the session has ended, and of it nothing is known", func() bool { return everywhere(uid, `"years";r=963`) })
	var page struct {
		Quotas []struct {
			Rule               string
			Limit, Left, Count int
		}
	}
	if err := json.Unmarshal([]byte(get(t, base+"/v1/quota?uid="+uid)), &page); err != nil || len(page.Quotas) != 1 ||
		page.Quotas[0].Rule != "years" || page.Quotas[0].Left != 963 || page.Quotas[0].Count != 37 || page.Quotas[0].Limit != 1000 {
		t.Errorf("the settings page: %+v, %v", page, err)
	}
	if strings.Contains(r.screen.String(), "  left ") {
		t.Error("the screen shows what is left as if it were a verdict")
	}
	if err := em.Close(t.Context()); err != nil {
		t.Error(err)
	}
	r.ends()
}

// guardedBy is a service with a table of its own, which follows the blocklist.
func guardedBy(t *testing.T, redisAddr string) string {
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: redisAddr})
	t.Cleanup(func() { _ = client.Close() })
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client})
	if err != nil {
		t.Fatal(err)
	}
	testrun.Start(t, table.Run)
	testrun.Start(t, func(ctx context.Context) error { return feed.Run(ctx, table) })
	limit := httplimit.Middleware(table, httplimit.Options{UID: httplimit.Header("User"), API: func(*http.Request) string { return "search.query" }})
	app := httptest.NewServer(limit(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})))
	t.Cleanup(app.Close)
	return app.URL
}
