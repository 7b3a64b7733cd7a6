package e2e

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"strings"
)

// fixedRules are in every plan: each kind of key has a sliding limit (its explanation tells the
// moment that it speaks of), and the plain sums are compared with a count that shares no code.
const fixedRules = `
    - name: yearly-utc
      match: {api: "*"}
      limit: 1G
      per: year
      window: calendar
      then: {block: until-reset}
    - name: bytes-utc
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 1Gi
      per: year
      window: calendar
      then: {block: until-reset}
    - name: hourly
      public: some
      quota: true
      match: {api: "*"}
      limit: %d
      per: 1h
      window: sliding
      then: {block: until-reset}
    - name: campaigns
      key: [uid, attrs.campaign]
      match: {api: order.create}
      limit: %d
      per: year
      window: calendar
      then: {block: until-reset, apis: [ad.select]}
    - name: campaign-hour
      public: some
      quota: true
      key: [uid, attrs.campaign]
      match: {api: order.create}
      limit: %d
      per: 1h
      then: {block: %ds}
    - name: shop-campaigns
      key: [attrs.shop, attrs.campaign]
      match: {api: order.create}
      limit: %d
      per: year
      window: calendar
      then: {block: until-reset, apis: [order.create]}
    - name: networks
      public: some
      quota: true
      key: ip
      match: {api: "*"}
      limit: %d
      per: year
      window: calendar
      then: {block: until-reset}
    - name: everyone
      key: all
      match: {api: "*"}
      limit: 1G
      per: year
      window: calendar
      then: {block: until-reset}
    - name: network-bytes
      key: ip
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 4MiB
      per: 1h
      mode: shadow
      then: {escalate: [10s, 30s, 1m], forget: {step: 20s}}
    - name: in-a-row
      public: some
      quota: true
      match: {api: search.*}
      reset_on: {api: order.create, outcome: success%s}
      limit: %d
      per: 1h
      then: {block: %s}
    - name: told-hour
      public: some
      quota: true
      match: {api: search.query}
      limit: {from: attrs.quota, else: %d, most: 60}
      per: 1h
      overrides: overrides.csv
      then: {block: until-reset}
`

// overrides are limits of some keys, in a file beside the rules.
const overrides = "uid,limit,until\nu0,unlimited,\nu1,9,\nu2,30,\nu3,3,2026-01-01T00:00:00Z\nu4,5,2199-01-01T00:00:00Z\nu5,0,\n"

// besideRules reads it.
func besideRules(name string) ([]byte, error) {
	if name != "overrides.csv" {
		return nil, fs.ErrNotExist
	}
	return []byte(overrides), nil
}

// briefRules take the place of the fixed ones where nothing is remembered for longer than seconds:
// there keys leave, with a tombstone, and come back all the time.
const briefRules = `
    - name: seconds
      match: {api: "*"}
      limit: %d
      per: %ds
      window: sliding
      then: {block: until-reset}
    - name: campaign-seconds
      key: [uid, attrs.campaign]
      match: {api: order.create}
      limit: %d
      per: %ds
      then: {block: 2s}
    - name: shop-seconds
      key: [attrs.shop, attrs.campaign]
      match: {api: order.create}
      limit: %d
      per: %ds
      then: {block: until-reset}
    - name: network-bytes
      key: ip
      match: {api: upload.*}
      count: {sum: attrs.bytes}
      limit: 1MiB
      per: %ds
      then: {block: until-reset}
`

// briefSpec follows the brief rules.
const briefSpec = `  max_lateness: 1s
  recent_ids: {count: 8, for: 1s}
`

// networkLists are what drawn rules may name: some of the addresses that traffic has.
const networkLists = `  networks: {near: [10.1.0.0/22, 10.1.7.0/24, "2001:db8:4000::/34"]}
`

// drawRules writes a list of rules: the fixed ones, with limits of chance, and some of those that
// issue and end verdicts within seconds.
func drawRules(rnd *rand.Rand, perUID int, brief bool) string {
	between := func(least, most int) int { return least + rnd.IntN(most-least+1) }
	seconds := func(least, most int) string { return fmt.Sprintf("%ds", between(least, most)) }
	then := func() string {
		if rnd.IntN(2) == 0 {
			return "until-reset"
		}
		return seconds(1, 9)
	}
	zone := func() string {
		return []string{"UTC", "Asia/Shanghai", "America/New_York", "Australia/Lord_Howe"}[rnd.IntN(4)]
	}
	rule := func(name, match, count, limit, per, window, block string) string {
		text := fmt.Sprintf("    - name: %s\n      match: {%s}\n", name, match)
		if count != "" {
			text += "      count: {sum: " + count + "}\n"
		}
		return text + fmt.Sprintf("      limit: %s\n      per: %s\n      window: %s\n      then: {block: %s}\n", limit, per, window, block)
	}
	keyed := func(rule, key string) string { return rule + "      key: " + key + "\n" }
	num := func(least, most int) string { return fmt.Sprint(between(least, most)) }
	resets := func() string {
		return "      reset_on: {api: " + []string{"order.create", "profile.view", "upload.*"}[rnd.IntN(3)] + "}\n"
	}
	all := []func() string{
		func() string {
			return rule("tick", `api: "*"`, "", num(3, 6), seconds(1, 4), "tumbling", then())
		},
		func() string {
			return rule("flow", `api: [search.query, search.suggest]`, "", num(2, 6), seconds(2, 10), "sliding", then())
		},
		func() string {
			return rule("exact-minute", `api: search.query`, "", num(4, 64), "1m", "sliding", then())
		},
		func() string {
			return rule("panes", `api: "*"`, "", num(65, 90), "1m", "sliding", then())
		},
		func() string {
			return rule("bandwidth", `api: upload.*`, "attrs.bytes", num(500, 2500)+"k", seconds(3, 20), "sliding", then())
		},
		func() string {
			return rule("nothing", `api: upload.*`, "", "0", seconds(2, 10), []string{"tumbling", "sliding"}[rnd.IntN(2)], then())
		},
		func() string {
			return rule("outcomes", fmt.Sprintf(`api: {order.create: %d, order.update: 1}, outcome: {success: %d, "*": %d}`, between(1, 3), between(1, 3), between(1, 5)),
				"", num(10, 60), seconds(5, 60), []string{"tumbling", "sliding"}[rnd.IntN(2)], then())
		},
		func() string {
			return rule("never-again", `api: upload.*`, "", num(9, 60), "1m", "sliding", "forever") + "      reset_on: {api: profile.view, clear: true}\n"
		},
		func() string {
			return rule("costs", `api: "*"`, "cost", num(10, 30), seconds(2, 10), "tumbling", then())
		},
		func() string {
			return rule("hops", `api: [search.query, upload.*]`, "", num(3, 9), "12s", "hopping\n      every: "+[]string{"1s", "3s", "4s"}[rnd.IntN(3)], then())
		},
		func() string {
			return rule("first", `api: "*"`, "", num(3, 9), seconds(2, 12), "from-first", then())
		},
		func() string {
			return rule("first-hour", `api: "*"`, "", num(perUID/2, perUID*2), "1h", "from-first", then()) + "      public: some\n      quota: true\n"
		},
		func() string {
			return rule("first-bytes", `api: upload.*`, "attrs.bytes", num(500, 2500)+"k", "1m", "from-first", then()) + resets()
		},
		func() string {
			return rule("hops-hour", `api: "*"`, "", num(perUID/2, perUID*2), "1h", "hopping\n      every: 5m", then())
		},
		func() string {
			return rule("in-a-row-seconds", `api: search.*`, "", num(2, 6), seconds(5, 60), "sliding", then()) + resets()
		},
		func() string {
			return rule("in-a-row-panes", `api: search.*`, "cost", num(3, 20), "1m", "sliding", then()) + resets()
		},
		func() string {
			return rule("in-a-row-minute", `api: "*"`, "", num(5, 20), "1m", "tumbling", then()) + resets()
		},
		func() string {
			return rule("in-a-row-bucket", `api: "*"`, "", "1", "1s", "bucket\n      burst: 5", then()) + resets()
		},
		func() string {
			return rule("told-minute", `api: search.query`, "", "{from: attrs.quota, else: 5, most: 70}", "1m", "sliding", then())
		},
		func() string {
			return rule("daily", `api: order.create, outcome: success`, "", num(2, 5), "day", "calendar\n      timezone: "+zone(), "until-reset") +
				"      when: attrs.discounted == true\n"
		},
		func() string {
			anchor := []string{"", "\n      anchor: 2026-01-31", "\n      anchor: " + num(2020, 2030) + "-02-" + num(10, 28)}[rnd.IntN(3)]
			window := "calendar" + anchor + "\n      offset: " + num(1, 23) + "h\n      timezone: " + zone()
			return rule("renewed", `api: "*"`, "", num(perUID/2, perUID*2), "month", window, then())
		},
		func() string {
			return rule("hour", `api: "*"`, "", num(perUID/2, perUID*2), "hour", "calendar\n      timezone: "+zone(), then())
		},
		func() string {
			return rule("away", `api: "*"`, "", num(3, 9), seconds(1, 9), "tumbling", then()) +
				"      when: not inNetwork(ip, \"near\", \"10.1.5.0/24\")\n"
		},
		func() string {
			return rule("addresses", `api: "*"`, "", num(1, 3), "2h", "tumbling", then()) +
				"      key: ip\n      exempt: [{ip: near, reason: drawn}, {ip: 10.1.6.0/24, reason: drawn}]\n"
		},
		func() string {
			return rule("combined", `api: [search.query, search.suggest]`, "", num(5, 15), "365d", "tumbling", "2h")
		},
		func() string {
			return keyed(rule("each-api", `api: "*"`, "", num(perUID/4+2, perUID), "1h", "sliding", then()), "[uid, api]")
		},
		func() string {
			return keyed(rule("prefixes", `api: "*"`, "", num(perUID*2, perUID*9), "1h", "sliding", then()), []string{"ip/24", "ip/31/48", "ip/56"}[rnd.IntN(3)])
		},
		func() string {
			return keyed(rule("each-shop-api", `api: order.*`, "", num(20, 200), "1h", "sliding", then()), "[api, attrs.shop]")
		},
		func() string {
			return keyed(rule("everything", `api: upload.*`, "attrs.bytes", num(1, 900)+"M", "1h", "sliding", then()), "all")
		},
		func() string {
			return fmt.Sprintf(`    - name: writes
      match: {api: {order.create: 5, order.update: 1}}
      limits:
        - {name: burst, limit: %d, per: 1s, window: tumbling}
        - {name: minute, limit: %d, per: 1m}
        - {name: daily, limit: %d, per: 1d, window: tumbling}
      then: {block: until-reset}
`, between(6, 12), between(10, 40), between(30, 60))
		},
	}
	penalty := rnd.IntN(2)
	if brief {
		all = all[:2:2]
	}
	rnd.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var b strings.Builder
	if brief {
		fmt.Fprintf(&b, briefRules, between(2, 5), between(1, 3), between(1, 2), between(1, 3), between(1, 2), between(1, 3), between(1, 3))
	} else {
		fmt.Fprintf(&b, fixedRules, between(20, 90), between(3, 6), between(3, 8), between(2, 20), between(3, 60), perUID*2+between(10, 50),
			[]string{"", ", clear: true"}[penalty], between(3, 9), []string{"until-reset", "7s"}[penalty], between(3, 20))
	}
	for _, draw := range all[:min(between(5, 9), len(all))] {
		b.WriteString(draw())
	}
	if brief {
		b.WriteString(briefSpec)
	}
	return b.String()
}
