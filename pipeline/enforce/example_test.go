package enforce_test

import (
	"context"
	"fmt"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/pipeline/enforce"
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

// Before the first snapshot logins are closed, and searches have a limiter of their own.
func ExampleRuleOnStale() {
	table, err := enforce.NewTable(enforce.Config{
		Instances: 10,
		Rules: map[string]enforce.RuleOnStale{
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
