package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
)

const searches = `
    - name: search-combined
      public: searches
      match: {api: [search.query, search.suggest]}
      limit: 5
      per: year
      window: calendar
      then: {block: until-reset}
    - name: downloads
      match: {api: download}
      limit: 1
      per: 1m
      then: {block: 3s}
`

// One application emits what users do, another asks before it lets them: after the limit it
// answers 429, and so does the decision server.
func TestEmittedToDenied(t *testing.T) {
	r := newRig(t, searches)
	r.aggregator("a").Start().Ready()
	server := r.enforcer()
	app := r.guardedApp()
	e := r.emitter(func(c *emit.Config) { c.AsIs = false })
	defer closeEmitter(t, e)

	var took []time.Duration
	for i := range 40 {
		uid := fmt.Sprintf("user %d", i)
		for range 4 {
			e.Emit(event.Event{UID: uid, API: "search.query"})
		}
		if resp := visit(t, app, uid); resp.StatusCode != http.StatusOK {
			t.Fatalf("%s is denied after 4 of 5", uid)
		}
		began := time.Now()
		e.Emit(event.Event{UID: uid, API: "search.suggest"})
		var resp *http.Response
		eventually(t, uid+" is denied", func() bool {
			resp = visit(t, app, uid)
			return resp.StatusCode != http.StatusOK
		})
		took = append(took, time.Since(began))
		denied(t, resp, "searches")
	}
	slices.Sort(took)
	t.Logf("emitted -> denied: median %v, worst %v of %d", took[len(took)/2], took[len(took)-1], len(took))
	decisions(t, server, "user 7", "another user")
	runsOut(t, e, server)
}

// guardedApp serves any path to the user named in a header, unless the blocklist has them.
func (r *rig) guardedApp() string {
	t := r.t
	t.Helper()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(&redis.Options{Addr: r.redisAddr})
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: client, Prefix: r.prefix})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(t.Context()))
	var g errgroup.Group
	g.Go(func() error { return table.Run(ctx) })
	g.Go(func() error { return feed.Run(ctx, table) })
	guard := httplimit.Middleware(table, httplimit.Options{
		UID: func(r *http.Request) string { return r.Header.Get("User") },
		API: func(*http.Request) string { return "search.query" },
	})
	app := httptest.NewServer(guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "found") })))
	t.Cleanup(func() {
		app.Close()
		stop()
		if err := g.Wait(); err != nil && ctx.Err() == nil {
			t.Errorf("the application's feed: %v", err)
		}
		_ = client.Close()
	})
	eventually(t, "the application has the blocklist", table.Ready)
	return app.URL
}

func visit(t *testing.T, url, uid string) *http.Response {
	t.Helper()
	return ask(t, url+"/search", map[string]string{"User": uid})
}

func ask(t *testing.T, url string, headers map[string]string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, v := range headers {
		req.Header.Set(name, v)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	var body struct {
		Rule string `json:"rule"`
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if told := fmt.Sprint(resp.Header, string(text)); err != nil || strings.Contains(told, "search-combined") {
		t.Errorf("%v; the rule's own name is for operators: %s", err, told)
	}
	_ = json.Unmarshal(text, &body) // an answer that lets through has none
	resp.Header.Set("Test-Rule", body.Rule)
	return resp
}

// denied checks what an answer of 429 says; the rule is called by its public name.
func denied(t *testing.T, resp *http.Response, rule string) {
	t.Helper()
	after, err := strconv.Atoi(resp.Header.Get("Retry-After"))
	if resp.StatusCode != http.StatusTooManyRequests || err != nil || after < 1 || resp.Header.Get("Test-Rule") != rule ||
		!strings.HasPrefix(resp.Header.Get("Content-Type"), "application/problem+json") {
		t.Errorf("denied by %d, %v", resp.StatusCode, resp.Header)
	}
}

// decisions asks the decision server, in all of its ways, for one who is denied and one who is not.
func decisions(t *testing.T, server *Process, bad, good string) {
	t.Helper()
	answers := check(t, server, "search.suggest", []string{bad, good})
	if a := answers[0]; a.Allowed || a.Rule != "search-combined" || a.Public != "searches" || a.RetryAfter < 1 {
		t.Errorf("check of %s: %+v", bad, a)
	}
	if a := answers[1]; !a.Allowed {
		t.Errorf("check of %s: %+v", good, a)
	}
	if a := check(t, server, "download", []string{bad})[0]; !a.Allowed {
		t.Errorf("check of another API: %+v", a)
	}
	auth := func(uid string) *http.Response {
		return ask(t, server.url("/v1/forward-auth"), map[string]string{"X-Tallygate-Uid": uid, "X-Tallygate-Api": "search.query"})
	}
	denied(t, auth(bad), "searches")
	if resp := auth(good); resp.StatusCode != http.StatusNoContent {
		t.Errorf("forward-auth of %s: %d", good, resp.StatusCode)
	}
}

// runsOut shows a penalty that ends by itself.
func runsOut(t *testing.T, e *emit.Emitter, server *Process) {
	t.Helper()
	allowed := func() bool { return check(t, server, "download", []string{"greedy"})[0].Allowed }
	for range 2 {
		e.Emit(event.Event{UID: "greedy", API: "download"})
	}
	began := time.Now()
	eventually(t, "the penalty is issued", func() bool {
		a := check(t, server, "download", []string{"greedy"})[0]
		if a.RetryAfter > 3 {
			t.Fatalf("a penalty of 3s is to last %d s more", a.RetryAfter)
		}
		return !a.Allowed
	})
	eventually(t, "the penalty ends", allowed)
	if d := time.Since(began); d < 2*time.Second {
		t.Errorf("a penalty of 3s lasted %v", d)
	}
}
