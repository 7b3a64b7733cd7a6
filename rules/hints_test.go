package rules

import (
	"errors"
	"strings"
	"testing"
)

// What people bring from other limiters, and what they type, is told in the words of this language, on its own line.
func TestHintsKnowWhatWasMeant(t *testing.T) {
	const rule = "  rules:\n    - name: r\n      match: {api: x}\n      limit: 5\n      per: 1m\n      then: {block: 5m}\n"
	for _, test := range []struct {
		old, new string // what is written in the rule instead
		line     int
		want     string
	}{
		{"per: 1m", "per: 1h 30m", 9, "did you mean 1h30m?"},
		{"per: 1m", "per: 1mn", 9, "did you mean 1m?"},
		{"per: 1m", "per: 90min", 9, "did you mean 90m?"},
		{"per: 1m", "per: 0.5h", 9, "did you mean 30m?"},
		{"per: 1m", "per: 1.5h", 9, "did you mean 1h30m?"},
		{"per: 1m", "per: 1M", 9, "a minute is 1m; a month"},
		{"per: 1m", "per: PT1H", 9, "did you mean 1h?"},
		{"per: 1m", "per: hourly", 9, "did you mean 1h?"},
		{"per: 1m", "tz: UTC", 9, `did you mean "timezone"?`},
		{"per: 1m", "per: 1m\n      window: rolling", 10, `did you mean "sliding"?`},
		{"per: 1m", "per: 1m\n      window: fixed", 10, `did you mean "tumbling"?`},
		{"per: 1m", "per: 1m\n      window: hop", 10, `did you mean "hopping"?`},
		{"per: 1m", "per: 1m\n      window: SlidingEventTimeWindows", 10, `did you mean "hopping"?`},
		{"per: 1m", "per: 1m\n      window: hopping\n      slide: 10s", 11, `did you mean "every"?`},
		{"per: 1m", "size: 1m\n      window: hopping\n      every: 10s", 9, `did you mean "per"?`},
		{"per: 1m", "per: 1m\n      window: hopping\n      advanceBy: 10s", 11, `did you mean "every"?`},
		{"per: 1m", "per: 1m\n      window: hopping\n      every: 7s", 11, "every: 6s or 7s500ms, or per: 56s or 1m3s"},
		{"per: 1m", "per: 1m\n      allowedLateness: 10s", 10, "spec: {max_lateness: 1h}"},
		{"per: 1m", "per: 1m\n      window: token_bucket", 10, `did you mean "bucket"?`},
		{"then: {block: 5m}", "then: {timeout: 5m}", 10, `did you mean "block"?`},
		{"then: {block: 5m}", "then: {ban: 5m}", 10, `did you mean "block"?`},
		{"then: {block: 5m}", "ban: 5m", 10, "then: {block: 5m}"},
		{"then: {block: 5m}", "then: {block: 5m, action: ban}", 10, `did you mean "block"?`},
		{"then: {block: 5m}", "then: {block: 5m, action: captcha}", 10, `did you mean "challenge"?`},
		{"per: 1m", "per: 1m\n      mode: dry-run", 10, `did you mean "shadow"?`},
		{"per: 1m", "per: 1m\n      shadow: true", 10, "mode: shadow"},
		{"per: 1m", "per: 1m\n      groupby: ip", 10, `did you mean "key"?`},
		{"per: 1m", "per: day\n      window: calendar\n      timezone: \"+08:00\"", 11, "Asia/Shanghai"},
		{"per: 1m", "per: day\n      window: calendar\n      timezone: PST", 11, "America/Los_Angeles"},
		{"limit: 5", "limit:\u00a05", 8, "no-break space"},
		{"limit: 5", "\u00a0limit: 5", 8, "no-break space"},
		{"limit: 5", "limit:5", 8, "no blank behind the colon"},
		{"name: r", "name:r", 6, "no blank behind the colon"},
		{"{api: x}", "{api:x}", 7, "no blank behind the colon"},
		{"then: {block: 5m}", "then:{block: 5m}", 10, "no blank behind the colon"},
		{"{api: x}", "{api: x\u200by}", 7, "zero-width"},
		{"name: r", "na\u200bme: r", 6, "zero-width"},
		{"{api: x}", `{api: "^x$"}`, 7, "write x"},
		{"{api: x}", `{api: ".*"}`, 7, `"*"`},
		{"{api: x}", `{api: "search.[a-z]+"}`, 7, "regular expression"},
		{"{api: x}", `{api: a|b}`, 7, "[a, b]"},
		{"{api: x}", `{api: "(a|)"}`, 7, "stands for what is left of a segment"},
		{"{api: x}", `{api: "a|b[0-9]+"}`, 7, "stands for what is left of a segment"},
		{"{api: x}", `{api: GET /search}`, 7, "get.search"},
		{"{api: x}", `{api: x, attrs.zip: 01234}`, 7, `"01234"`},
		{"{api: x}", `{api: x, attrs: {zip: [08]}}`, 7, `"08"`},
		{"{api: x}", `{api: x, outcome: .inf}`, 7, `".inf"`},
	} {
		_, err := Compile("x.yaml", []byte(header+strings.Replace(rule, test.old, test.new, 1)))
		list, _ := errors.AsType[Errors](err)
		found := false
		for _, e := range list {
			found = found || e.Line == test.line && strings.Contains(e.Message+" "+e.Hint, test.want)
		}
		if !found {
			t.Errorf("%q: want %q on line %d:\n%v", test.new, test.want, test.line, err)
		}
	}
}

func TestFilesOfOthersAreToldInOneLine(t *testing.T) {
	for src, want := range map[string]string{
		"type: leaky\nfilter: \"evt.Meta.log_type == 'x'\"\ngroupby: evt.Meta.source_ip\ncapacity: 5\nleakspeed: 10s\n":                    "CrowdSec",
		"domain: shop\ndescriptors:\n  - key: user\n    rate_limit: {unit: minute, requests_per_unit: 100}\n":                              "Envoy's ratelimit",
		"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata: {}\n":                                                                 "ConfigMap of Kubernetes",
		"requests: [{name: a, unique_key: b, hits: 1, limit: 10, duration: 1000}]\n":                                                       "Gubernator",
		"- resource: search\n  count: 100\n  grade: 1\n":                                                                                   "Sentinel",
		"limit_req_zone $http_x_user zone=search:10m rate=100r/m;\nlimit_req: {\n":                                                         "nginx",
		"CREATE TABLE busy AS SELECT uid, COUNT(*) FROM searches\n  WINDOW HOPPING (SIZE 1 HOUR, ADVANCE BY 5 MINUTES)\n  GROUP BY uid;\n": "ksqlDB",
		"SELECT uid, COUNT(*) FROM TABLE(HOP(TABLE searches, DESCRIPTOR(ts), INTERVAL '5' MINUTES, INTERVAL '1' HOURS))\n":                 "Flink",
		"rule_files: [a.yaml]\ntests: []\n":                                                                                                "tallygate test",
	} {
		_, err := Compile("x.yaml", []byte(src))
		list, _ := errors.AsType[Errors](err)
		if len(list) != 1 || !strings.Contains(list[0].Message, want) || strings.Contains(list[0].Error(), "\n") {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

// The empty list lifted every block when a template lost its rules; the names of Etc are the wrong way round.
func TestNoRulesAndInvertedZones(t *testing.T) {
	if _, err := Compile("x.yaml", []byte(header+"  rules: []\n")); err == nil || !strings.Contains(err.Error(), "empty list") {
		t.Error(err)
	}
	set := compileRules(t, "    - {name: r, match: {api: x}, limit: 1, per: day, window: calendar, timezone: Etc/GMT+8, then: {block: 1h}}\n")
	if len(set.Warnings) != 1 || !strings.Contains(set.Warnings[0].Message, "8 hours behind UTC") || !strings.Contains(set.Warnings[0].Hint, "Etc/GMT-8") {
		t.Errorf("%v", set.Warnings)
	}
	if none := None(); len(none.Limits) != 0 || none.NewMatcher() == nil {
		t.Error("a set without rules")
	}
}
