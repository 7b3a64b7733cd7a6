package enforce_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

// overLimit is what the feed delivers: user 42 may not search for the next five minutes.
func overLimit() []verdict.Verdict {
	now := event.FromTime(time.Now())
	return []verdict.Verdict{{
		Rule: "search-combined", Public: "search", Key: []event.Dim{{Name: "uid", Value: "42"}},
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
	fmt.Println(d.Allowed, d.Rule(), d.Public(), d.Action())
	// Output:
	// false
	// true
	// false search-combined search block
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
	// 42 429 "\"search\";q=100"
}

// Before the first snapshot logins are closed, and searches have a limiter of their own.
func ExampleRuleInDoubt() {
	table, err := enforce.NewTable(enforce.Config{
		Instances: 10,
		Rules: map[string]enforce.RuleInDoubt{
			"logins":          {Do: enforce.Closed, APIs: []string{"login"}},
			"search-combined": {Do: enforce.Local, APIs: []string{"search.*"}, Limit: 20, Per: time.Minute},
		},
	})
	if err != nil {
		panic(err)
	}
	fmt.Println("login:", table.Check("login", "42").Unavailable())
	for range 3 {
		fmt.Println("search:", table.Check("search.query", "42").Allowed)
	}
	// Output:
	// login: true
	// search: true
	// search: true
	// search: false
}

func ExampleTable_SetEnabled() {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		panic(err)
	}
	table.Replace(0, overLimit())
	for _, on := range []bool{true, false, true} {
		table.SetEnabled(on)
		fmt.Println(table.Check("search.query", "42").Allowed)
	}
	// Output:
	// false
	// true
	// false
}

func ExampleClientIP() {
	ip := enforce.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))
	r := httptest.NewRequest("GET", "/", nil)
	r.RemoteAddr = "10.0.0.1:4711"
	r.Header.Set("X-Forwarded-For", "127.0.0.1, 203.0.113.9") // the client sent the first, our proxy added the second
	fmt.Println(ip(r))
	// Output: 203.0.113.9
}

func ExampleAnswers() {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		panic(err)
	}
	table.Replace(0, overLimit())
	limit := enforce.Middleware(table, enforce.Options{
		UID: enforce.Header("X-User"), API: enforce.Named(map[string]string{"get.search": "search.query"}, enforce.RouteAPI),
		Answers: enforce.Answers{Rules: map[string]enforce.PublicRule{"search-combined": {
			Name:     "searches",
			Messages: map[string]string{"": "Too many searches.", "de": "Zu viele Suchen."},
		}}},
	})
	r := httptest.NewRequest("GET", "/search", nil)
	r.Header.Set("X-User", "42")
	r.Header.Set("Accept-Language", "de-CH, en;q=0.5")
	w := httptest.NewRecorder()
	limit(http.NotFoundHandler()).ServeHTTP(w, r)
	var p enforce.Problem
	_ = json.Unmarshal(w.Body.Bytes(), &p)
	fmt.Println(w.Code, p.Rule, p.Detail)
	// Output: 429 searches Zu viele Suchen.
}
