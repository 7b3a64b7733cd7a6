package rules

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkCompile compiles 500 rules that use most of the language.
func BenchmarkCompile(b *testing.B) {
	var file strings.Builder
	file.WriteString(header + "  rules:\n")
	for i := range 100 {
		fmt.Fprintf(&file, `
    - {name: logins-%[1]d, match: {api: login-%[1]d, outcome: failure}, reset_on: {api: login-%[1]d, outcome: success}, limit: 5, per: 7d, then: {block: 1h, apis: [login-%[1]d]}}
    - {name: bought-%[1]d, key: attrs.customer, match: {api: v%[1]d.*}, limit: {from: attrs.quota, else: 100, most: 1M}, per: day, window: calendar, timezone: Europe/Berlin, then: {block: until-reset}}
    - {name: search-%[1]d, match: {api: [search.query, "suggest-%[1]d.*"]}, when: 'attrs.rows > %[1]d and not (ip startsWith "10.") and int(time.Weekday()) in [0, 6]', limit: 100, per: 1m, then: {block: 5m}}
    - name: exports-%[1]d
      key: [uid, ip/64]
      match: {api: {report.export: 5, "report-%[1]d.*": 1}}
      limits: [{name: burst, limit: 5, per: 1s, window: tumbling}, {name: hourly, limit: 100k, per: 1h, candidate: {limit: 50}, tiers: [{when: 'attrs.plan == "pro"', limit: 200k}]}]
      then: {escalate: [1m, 10m], forget: 1d}
    - {name: devices-%[1]d, match: {api: login-%[1]d}, count: {distinct: attrs.device}, limit: 5, per: 24h, exempt: [{uid: %[1]d, reason: a test}], then: {block: until-reset}}
`, i)
	}
	src := []byte(file.String())
	b.ReportAllocs()
	for b.Loop() {
		set, err := Compile("many.yaml", src)
		if err != nil || len(set.Rules) != 500 {
			b.Fatal(err)
		}
	}
}
