package httplimit_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/enforce/httplimit"
	"github.com/tallygate/tallygate/verdict"
)

// overLimit is a verdict as the feed delivers it: user 42 may not search for the next five minutes.
func overLimit() []verdict.Verdict {
	now := event.FromTime(time.Now())
	return []verdict.Verdict{{
		Rule: "search-combined", Public: "search", Key: []event.Dim{{Name: "uid", Value: "42"}},
		Action: verdict.ActBlock, APIs: []string{"search.*"}, Limit: 100 * event.One,
		Since: now, Until: now + 5*event.Minute,
	}}
}

func ExampleMiddleware() {
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		panic(err)
	}
	table.Replace(0, overLimit())

	limit := httplimit.Middleware(table, httplimit.Options{
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

func ExampleClientIP() {
	ip := httplimit.ClientIP(netip.MustParsePrefix("10.0.0.0/8"))
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
	limit := httplimit.Middleware(table, httplimit.Options{
		UID: httplimit.Header("X-User"), API: httplimit.Named(map[string]string{"get.search": "search.query"}, httplimit.RouteAPI),
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
