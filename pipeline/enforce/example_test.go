package enforce_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// overLimit is what the feed delivers: user 42 may not search for the next five minutes.
func overLimit() []verdict.Verdict {
	now := event.FromTime(time.Now())
	return []verdict.Verdict{{
		Rule: "search-combined", Key: []event.Dim{{Name: "uid", Value: "42"}},
		Action: verdict.ActBlock, APIs: []string{"search.*"}, Limit: 100 * event.One,
		Since: now, Until: now + 5*event.Minute,
	}}
}

func ExampleTable() {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = table.Run(ctx) }() // keeps its clock; a blocklist.Feed keeps it in step

	table.Replace(0, overLimit())

	fmt.Println(table.Check("search.query", "42").Allowed)
	fmt.Println(table.Check("order.create", "42").Allowed)
	d := table.CheckDims("search.query", []event.Dim{{Name: "uid", Value: "42"}, {Name: "ip", Value: "203.0.113.9"}})
	fmt.Println(d.Allowed, d.Rule(), d.Action())
	// Output:
	// false
	// true
	// false search-combined block
}

func ExampleMiddleware() {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		panic(err)
	}
	table.Replace(0, overLimit())

	limit := enforce.Middleware(table, enforce.Options{
		UID: func(r *http.Request) string { user, _, _ := r.BasicAuth(); return user },
		API: func(r *http.Request) string { return "search.query" },
	})
	handler := limit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprintln(w, "found") }))

	for _, user := range []string{"41", "42"} {
		r := httptest.NewRequest("GET", "/search?q=x", nil)
		r.SetBasicAuth(user, "secret")
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, r)
		fmt.Printf("%s %d %q\n", user, w.Code, w.Header().Get("RateLimit-Policy"))
	}
	// Output:
	// 41 200 ""
	// 42 429 "\"search-combined\";q=100"
}
