package rules_test

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
)

const shop = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: search-combined
      match: {api: [search.query, search.suggest]}
      limit: 100
      per: 1m
      then: {block: 5m}
    - name: upload-bandwidth
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 1MiB
      per: 1s
      then: {block: 10s}
`

func ExampleCompile() {
	set, err := rules.Compile("shop.yaml", []byte(shop))
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, l := range set.Limits {
		fmt.Println(l.Name, l.Limit, l.Window.Per.Duration())
	}
	// Output:
	// search-combined 100 1m0s
	// upload-bandwidth 1048576 1s
}

func ExampleCompile_mistakes() {
	_, err := rules.Compile("shop.yaml", []byte(`apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    - name: search
      match: {api: search.*}
      limt: 100
      per: 60
      then: {block: 5m}
`))
	fmt.Println(err)
	// Output:
	// shop.yaml:8:7: unknown field "limt"; did you mean "limit"?
	//           limt: 100
	//           ^
	// shop.yaml:9:12: per: "60" is not a duration: a duration is whole numbers with units (ms s m h d w y), as in 30s or 1h30m
	//           per: 60
	//                ^
	//     hint: did you mean 60s?
}

func ExampleMatcher_Match() {
	set, err := rules.Compile("shop.yaml", []byte(shop))
	if err != nil {
		fmt.Println(err)
		return
	}
	matcher := set.NewMatcher()
	e := &event.Event{
		UID: "42", API: "upload.photo", Cost: event.One,
		Attrs: []event.Attr{{Name: "bytes", Value: event.Value{Kind: event.Number, Text: "2048"}}},
	}
	for _, work := range matcher.Match(e, 0) {
		for _, hit := range work.Hits {
			fmt.Printf("%s counts %s under %s\n", work.Key, hit.Amount, hit.Limit.Name)
		}
	}
	// Output:
	// uid=42 counts 2048 under upload-bandwidth
}
