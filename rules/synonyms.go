package rules

import (
	"slices"
	"strings"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// synonym is a field that another limiter has, and what it is here.
type synonym struct {
	fields []string // what it may be, by what stands where it was written
	write  string   // how to write it
}

// fieldWords are fields that people write, folded, and what they are here.
var fieldWords = table([]struct {
	words string
	synonym
}{
	{"tz zone tzinfo location", synonym{[]string{"timezone"}, "as in timezone: Asia/Shanghai"}},
	{"groupby by dimension dimensions keys group partitionby subject identifier uniquekey scope", synonym{[]string{"key"}, "as in key: uid"}},
	{"filter condition where if expression expr predicate", synonym{[]string{"when", "match"}, "as in match: {api: login} and when: cost > 1"}},
	{"algorithm strategy windowtype type behavior", synonym{[]string{"window", "action"}, "as in window: sliding"}},
	{"rolling slidingwindow", synonym{[]string{"window"}, "write window: sliding"}},
	{"fixed fixedwindow", synonym{[]string{"window"}, "write window: tumbling"}},
	{"tokenbucket leakybucket leaky gcra", synonym{[]string{"window"}, "write window: bucket"}},
	{"interval period duration windowsize timewindow every unit within timeframe", synonym{[]string{"per", "block"}, "as in per: 1m"}},
	{"threshold max maximum rate requests maxrequests requestsperunit permits tokens", synonym{[]string{"limit"}, "as in limit: 100 and per: 1m"}},
	{"capacity maxburst burstsize bucketsize", synonym{[]string{"burst", "limit"}, "as in window: bucket, limit: 100, per: 1m, burst: 20"}},
	{"leakspeed refill refillrate drain", synonym{[]string{"per"}, "a bucket drains at limit per per: one in 600ms is limit: 100 and per: 1m"}},
	{"overdraft overdraw", synonym{[]string{"debt"}, "as in debt: 1"}},
	{"timeout ban bantime banduration blockfor blockduration blocktime penalty cooldown jail lockout ttl expire", synonym{[]string{"block"}, "write then: {block: 5m}"}},
	{"captcha challenge", synonym{[]string{"action"}, "write then: {block: 5m, action: challenge}"}},
	{"deny reject drop", synonym{[]string{"block"}, "write then: {block: 5m}"}},
	{"actions onexceed decision remediation consequence", synonym{[]string{"action", "then"}, "as in then: {block: 5m, action: block}"}},
	{"dryrun shadow shadowmode simulation simulate monitor observe enforce enforced test", synonym{[]string{"mode"}, "write mode: shadow, or mode: enforce"}},
	{"enabled disabled active", synonym{[]string{"mode"}, "a rule that is not wanted is left out; with mode: shadow it denies nothing"}},
	{"whitelist allowlist ignore exclude except bypass skip", synonym{[]string{"exempt"}, "as in exempt: [{uid: 42, reason: load test}]"}},
	{"endpoint endpoints path paths route routes resource resources url urls service method apis", synonym{[]string{"api", "apis", "match"}, "as in match: {api: search.query}"}},
	{"status result response", synonym{[]string{"outcome"}, "as in match: {api: login, outcome: failure}"}},
	{"attributes labels tags attr meta", synonym{[]string{"attrs"}, "as in match: {api: login, attrs: {plan: pro}}"}},
	{"steps backoff progressive", synonym{[]string{"escalate"}, "as in then: {escalate: [1m, 10m, 1d], forget: 7d}"}},
	{"notify alert alerts warning warnings notice", synonym{[]string{"warn"}, "as in warn: [50%, 80%]"}},
	{"title", synonym{[]string{"name"}, ""}},
	{"description desc comment note notes", synonym{nil, "write a comment: # and the text"}},
	{"priority order weightoforder", synonym{nil, "rules have no order: the strongest action decides"}},
	{"idle inactivity sessiontimeout", synonym{[]string{"gap"}, "as in window: session and gap: 30m"}},
	{"uniq cardinality distinctcount", synonym{[]string{"distinct"}, "as in count: {distinct: attrs.device}"}},
	{"total sumof amount", synonym{[]string{"sum"}, "as in count: {sum: attrs.bytes}"}},
	{"weight weights cost", synonym{[]string{"sum"}, "weights stand with the APIs, as in match: {api: {order.create: 5}}; sums are count: {sum: cost}"}},
	{"plans levels overrides", synonym{[]string{"tiers"}, `as in tiers: [{when: 'attrs.plan == "pro"', limit: 100}]`}},
	{"canary trial", synonym{[]string{"candidate"}, "as in candidate: {limit: 50}"}},
	{"killswitch circuitbreaker maxshare", synonym{[]string{"fuse"}, "as in fuse: 5%"}},
	{"user userid client account", synonym{[]string{"uid", "key"}, "as in key: uid, or {uid: 42} in an exemption"}},
})

func table(rows []struct {
	words string
	synonym
}) map[string]synonym {
	out := map[string]synonym{}
	for _, row := range rows {
		for word := range strings.FieldsSeq(row.words) {
			out[word] = row.synonym
		}
	}
	return out
}

// here is the field that a synonym is among those that may stand in one place; "" when none of them may.
func (s synonym) here(known []string) string {
	for _, field := range s.fields {
		if slices.Contains(known, field) {
			return field
		}
	}
	return ""
}

// valueWords are values that people write, by field, and what they are here.
var valueWords = map[string]map[string]string{
	"window": scalar.Words(
		"rolling sliding", "moving sliding", "slidingwindow sliding", "slidinglog sliding", "slidingwindowlog sliding", "hopping sliding",
		"fixed tumbling", "fixedwindow tumbling", "static tumbling", "aligned tumbling",
		"tokenbucket bucket", "leakybucket bucket", "leaky bucket", "token bucket", "gcra bucket", "rate bucket", "bandwidth bucket",
		"civil calendar", "natural calendar", "day calendar", "daily calendar", "month calendar", "inactivity session", "idle session"),
	"mode": scalar.Words(
		"dryrun shadow", "monitor shadow", "monitoring shadow", "observe shadow", "audit shadow", "log shadow", "test shadow", "simulation shadow", "report shadow",
		"reportonly shadow", "warn shadow", "off shadow", "disabled shadow", "true enforce", "on enforce", "active enforce", "live enforce", "enabled enforce", "enforced enforce",
		"enforcing enforce", "block enforce"),
	"action": scalar.Words(
		"ban block", "deny block", "reject block", "drop block", "forbid block", "refuse block", "429 block", "403 block", "captcha challenge", "mfa challenge",
		"delay throttle", "slow throttle", "slowdown throttle", "queue throttle", "tarpit throttle", "ratelimit throttle", "alert log", "report log", "monitor log", "notify log",
		"allow log", "none log"),
	"at":      scalar.Words("over exceeded", "above exceeded", "> exceeded", ">= reached", "equal reached", "full reached"),
	"too_old": scalar.Words("discard drop", "ignore drop", "reject drop", "brokertime now", "count now"),
}

// dimensionWords are names of dimensions that people write.
var dimensionWords = scalar.Words("user uid", "customer uid", "account uid", "client uid", "subject uid", "address ip", "addr ip", "clientip ip", "remoteaddr ip",
	"sourceip ip", "ipaddress ip", "ipv6 ip/64", "network ip/64", "subnet ip/64", "campaign attrs.campaign", "session attrs.session", "tenant attrs.tenant")
