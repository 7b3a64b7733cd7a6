package verdict_test

import (
	"fmt"

	"github.com/tallygate/tallygate/verdict"
)

func ExampleParse() {
	v, err := verdict.Parse([]byte(`{"rule": "uploads", "key": {"uid": "42"}, "state": "block", "mode": "enforce",
		"action": "block", "apis": ["upload.*"], "count": 101, "limit": 100,
		"since": "2026-11-21T10:00:01.5Z", "until": "2026-11-21T10:05:01.5Z", "seq": 118204}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(v.KeyText(), v.State, v.Rule, "until", v.Until)
	fmt.Println(v.Covers("upload.photo"), v.Covers("search.query"))
	// Output:
	// uid=42 block uploads until 2026-11-21T10:05:01.5Z
	// true false
}

func ExampleParseRecordKey() {
	k, err := verdict.ParseRecordKey([]byte("attrs.campaign=c%201&uid=42|ad-frequency|warn"))
	fmt.Println(k.Key, k.Rule, k.Warn, err)
	// Output:
	// [{attrs.campaign c 1} {uid 42}] ad-frequency true <nil>
}

func ExampleMatchAPI() {
	fmt.Println(verdict.MatchAPI("order.*", "order.item.add"))
	fmt.Println(verdict.MatchAPI("*.create", "order.create"))
	fmt.Println(verdict.MatchAPI("*.create", "shop.order.create"))
	// Output:
	// true
	// true
	// false
}
