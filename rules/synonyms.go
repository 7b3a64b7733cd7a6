package rules

import (
	"strings"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// fieldWords are fields that people write, folded, and what they are here.
var fieldWords = table([]struct {
	words string
	document.Synonym
}{
	{"tz zone tzinfo location", document.Synonym{Fields: []string{"timezone"}, Write: "as in timezone: Asia/Shanghai"}},
	{"groupby by dimension dimensions group partitionby subject identifier uniquekey", document.Synonym{Fields: []string{"key"}, Write: "as in key: uid"}},
	{"filter condition where if expression expr predicate", document.Synonym{Fields: []string{"when", "match"}, Write: "as in match: {api: login} and when: cost > 1"}},
	{"algorithm strategy windowtype type behavior", document.Synonym{Fields: []string{"window", "action"}, Write: "as in window: sliding"}},
	{"rolling slidingwindow", document.Synonym{Fields: []string{"window"}, Write: "write window: sliding"}},
	{"fixed fixedwindow", document.Synonym{Fields: []string{"window"}, Write: "write window: tumbling"}},
	{"fromfirst firstevent firstrequest", document.Synonym{Fields: []string{"window"}, Write: "write window: from-first"}},
	{"hop hopsize hopinterval slide slidesize slideinterval slideby advance advanceby advanceinterval step windowslide", document.Synonym{Fields: []string{"every"}, Write: "as in window: hopping, per: 1h, every: 5m"}},
	{"hopping hoppingwindow", document.Synonym{Fields: []string{"window"}, Write: "write window: hopping, with per and every"}},
	{"grace graceperiod allowedlateness watermark watermarkdelay retention", document.Synonym{Fields: []string{"max_lateness"}, Write: "as in spec: {max_lateness: 1h}: it holds for all rules"}},
	{"tokenbucket leakybucket leaky gcra", document.Synonym{Fields: []string{"window"}, Write: "write window: bucket"}},
	{"interval period duration windowsize timewindow size unit within timeframe", document.Synonym{Fields: []string{"per", "block"}, Write: "as in per: 1m"}},
	{"concurrency maxconcurrency concurrent concurrentrequests maxconcurrent maxconcurrentcalls inflight maxinflight semaphore bulkhead parallel parallelism",
		document.Synonym{Fields: []string{"limit"}, Write: "as in window: in-flight and limit: 3, with strict: {hold: 15m} or scope: instance"}},
	{"local perinstance perprocess pernode inprocess", document.Synonym{Fields: []string{"scope"}, Write: "write scope: instance"}},
	{"warmup warmupperiod warmuptime warmupperiodsec rampup slowstart coldfactor",
		document.Synonym{Fields: []string{"warm_up"}, Write: "as in window: bucket, warm_up: {time: 30s, from: 25%} and scope: instance"}},
	{"maxkeys cachesize capacitykeys keylimit", document.Synonym{Fields: []string{"keys"}, Write: "as in scope: instance and keys: 10000"}},
	{"exact hard reserve synchronous sync beforehand", document.Synonym{Fields: []string{"strict"}, Write: "write strict: true: a request needs a permit before its action"}},
	{"lease leasetime permitttl", document.Synonym{Fields: []string{"hold"}, Write: "as in strict: {hold: 30s}"}},
	{"prefetch batch", document.Synonym{Fields: []string{"ahead"}, Write: "as in strict: {ahead: 1s}"}},
	{"threshold max maximum rate requests maxrequests requestsperunit permits tokens", document.Synonym{Fields: []string{"limit", "most"}, Write: "as in limit: 100 and per: 1m"}},
	{"capacity maxburst burstsize bucketsize", document.Synonym{Fields: []string{"burst", "limit"}, Write: "as in window: bucket, limit: 100, per: 1m, burst: 20"}},
	{"leakspeed refill refillrate drain", document.Synonym{Fields: []string{"per"}, Write: "a bucket drains at limit per per: one in 600ms is limit: 100 and per: 1m"}},
	{"overdraft overdraw", document.Synonym{Fields: []string{"debt"}, Write: "as in debt: 1"}},
	{"timeout ban bantime banduration blockfor blockduration blocktime penalty cooldown jail lockout ttl expire", document.Synonym{Fields: []string{"block"}, Write: "write then: {block: 5m}"}},
	{"captcha challenge", document.Synonym{Fields: []string{"action"}, Write: "write then: {block: 5m, action: challenge}"}},
	{"deny reject drop", document.Synonym{Fields: []string{"block"}, Write: "write then: {block: 5m}"}},
	{"actions onexceed decision remediation consequence", document.Synonym{Fields: []string{"action", "then"}, Write: "as in then: {block: 5m, action: block}"}},
	{"dryrun shadow shadowmode simulation simulate monitor observe enforce enforced test", document.Synonym{Fields: []string{"mode"}, Write: "write mode: shadow, or mode: enforce"}},
	{"enabled disabled active", document.Synonym{Fields: []string{"mode"}, Write: "a rule that is not wanted is left out; with mode: shadow it denies nothing"}},
	{"whitelist allowlist ignore exclude except bypass skip", document.Synonym{Fields: []string{"exempt"}, Write: "as in exempt: [{uid: 42, reason: load test}]"}},
	{"endpoint endpoints path paths route routes resource resources url urls service method apis", document.Synonym{Fields: []string{"api", "apis", "match"}, Write: "as in match: {api: search.query}"}},
	{"status result response", document.Synonym{Fields: []string{"outcome"}, Write: "as in match: {api: login, outcome: failure}"}},
	{"attributes labels tags attr meta", document.Synonym{Fields: []string{"attrs"}, Write: "as in match: {api: login, attrs: {plan: pro}}"}},
	{"steps backoff progressive", document.Synonym{Fields: []string{"escalate"}, Write: "as in then: {escalate: [1m, 10m, 1d], forget: 7d}"}},
	{"warning warnings notice", document.Synonym{Fields: []string{"warn"}, Write: "as in warn: [50%, 80%]"}},
	{"alert alerts notification notifications tell webhook slack", document.Synonym{Fields: []string{"notify", "warn"}, Write: "write notify: true, or the name of a route of tallygate notify"}},
	{"remaining remainder left headers ratelimitheaders showremaining showlimits publishquota", document.Synonym{Fields: []string{"quota"}, Write: "write quota: true, with public: a name for callers"}},
	{"title", document.Synonym{Fields: []string{"name"}, Write: ""}},
	{"description desc comment note notes", document.Synonym{Write: "write a comment: # and the text"}},
	{"anchorday anchordate billingday billinganchor billingcycleanchor renewal renews renewalday startday dayofmonth monthstarts resetday cycle cycleday",
		document.Synonym{Fields: []string{"anchor"}, Write: "as in window: calendar, per: month, anchor: 2026-01-31"}},
	{"daystarts resetat startsat starthour", document.Synonym{Fields: []string{"offset"}, Write: "as in window: calendar, per: day, offset: 5h"}},
	{"share ratio proportion rateof failurerate errorrate", document.Synonym{Write: "shares are not counted: count what is bad, as in match: {api: mail.delivery, outcome: bounced} and limit: 10"}},
	{"atleast minimum minsamples minrequests minimumrequests volumethreshold requestvolumethreshold minimumnumberofcalls", document.Synonym{Write: "shares are not counted, so there is no least number: write the limit itself"}},
	{"priority order weightoforder", document.Synonym{Write: "rules have no order: the strongest action decides"}},
	{"idle inactivity sessiontimeout", document.Synonym{Fields: []string{"gap"}, Write: "as in window: session and gap: 30m"}},
	{"uniq cardinality distinctcount", document.Synonym{Fields: []string{"distinct"}, Write: "as in count: {distinct: attrs.device}"}},
	{"total sumof amount", document.Synonym{Fields: []string{"sum"}, Write: "as in count: {sum: attrs.bytes}"}},
	{"weight weights cost", document.Synonym{Fields: []string{"sum"}, Write: "weights stand with the APIs, as in match: {api: {order.create: 5}}; sums are count: {sum: cost}"}},
	{"resets resetwhen resetafter clearon forgiveon unless consecutive inarow", document.Synonym{Fields: []string{"reset_on"}, Write: "as in reset_on: {api: login, outcome: success}"}},
	{"default fallback otherwise orelse", document.Synonym{Fields: []string{"else"}, Write: "as in limit: {from: attrs.quota, else: 100, most: 10k}"}},
	{"field source attribute", document.Synonym{Fields: []string{"from"}, Write: "as in limit: {from: attrs.quota, else: 100, most: 10k}"}},
	{"customlimits keylimits perkey override exceptions", document.Synonym{Fields: []string{"overrides"}, Write: "as in overrides: limits.csv"}},
	{"plans levels", document.Synonym{Fields: []string{"tiers"}, Write: `as in tiers: [{when: 'attrs.plan == "pro"', limit: 100}]`}},
	{"canary trial", document.Synonym{Fields: []string{"candidate"}, Write: "as in candidate: {limit: 50}"}},
	{"killswitch circuitbreaker maxshare", document.Synonym{Fields: []string{"fuse"}, Write: "as in fuse: 5%"}},
	{"cidr cidrs ipset ipsets iplist iplists subnets addresses networklists", document.Synonym{Fields: []string{"networks"}, Write: "as in spec: {networks: {office: [10.0.0.0/8]}}, which rules name by when: inNetwork(ip, \"office\")"}},
	{"user userid client account", document.Synonym{Fields: []string{"uid", "key"}, Write: "as in key: uid, or {uid: 42} in an exemption"}},
})

func table(rows []struct {
	words string
	document.Synonym
}) map[string]document.Synonym {
	out := map[string]document.Synonym{}
	for _, row := range rows {
		for word := range strings.FieldsSeq(row.words) {
			out[word] = row.Synonym
		}
	}
	return out
}

// valueWords are values that people write, by field, and what they are here.
var valueWords = map[string]map[string]string{
	"window": scalar.Words(
		"rolling sliding", "moving sliding", "slidingwindow sliding", "slidinglog sliding", "slidingwindowlog sliding",
		"hop hopping", "hops hopping", "hoppingwindow hopping", "hopwindow hopping", "slidingeventtimewindows hopping", "slidingprocessingtimewindows hopping", "tumble tumbling", "tumblingwindow tumbling", "tumblingeventtimewindows tumbling",
		"fixed tumbling", "fixedwindow tumbling", "static tumbling", "aligned tumbling",
		"tokenbucket bucket", "leakybucket bucket", "leaky bucket", "token bucket", "gcra bucket", "rate bucket", "bandwidth bucket",
		"inflight in-flight", "concurrency in-flight", "concurrent in-flight", "semaphore in-flight", "bulkhead in-flight", "parallel in-flight",
		"civil calendar", "natural calendar", "day calendar", "daily calendar", "month calendar", "inactivity session", "idle session",
		"first from-first", "firstevent from-first", "firstrequest from-first",
		"incr from-first", "incrby from-first", "increx from-first", "expire from-first", "ttl from-first"),
	"mode": scalar.Words(
		"dryrun shadow", "monitor shadow", "monitoring shadow", "observe shadow", "audit shadow", "log shadow", "test shadow", "simulation shadow", "report shadow",
		"reportonly shadow", "warn shadow", "off shadow", "disabled shadow", "true enforce", "on enforce", "active enforce", "live enforce", "enabled enforce", "enforced enforce",
		"enforcing enforce", "block enforce"),
	"type": scalar.Words(
		"string text", "str text", "varchar text", "keyword text", "integer number", "int number", "int64 number", "long number", "float number", "double number", "decimal number", "numeric number",
		"bool boolean", "flag boolean", "anything any", "mixed any", "unknown any"),
	"action": scalar.Words(
		"ban block", "deny block", "reject block", "drop block", "forbid block", "refuse block", "429 block", "403 block", "captcha challenge", "mfa challenge",
		"delay throttle", "slow throttle", "slowdown throttle", "queue throttle", "tarpit throttle", "ratelimit throttle", "alert log", "report log", "monitor log", "notify log",
		"allow log", "none log"),
	"scope":   scalar.Words("local instance", "process instance", "node instance", "pod instance", "host instance", "server instance", "global all", "cluster all", "shared all"),
	"lost":    scalar.Words("keep count", "counted count", "release return", "returned return", "giveback return", "refund return"),
	"at":      scalar.Words("over exceeded", "above exceeded", "> exceeded", ">= reached", "equal reached", "full reached"),
	"too_old": scalar.Words("discard drop", "ignore drop", "reject drop", "brokertime now", "count now"),
}

// dimensionWords are names of dimensions that people write.
var dimensionWords = scalar.Words("user uid", "customer uid", "account uid", "client uid", "subject uid", "address ip", "addr ip", "clientip ip", "remoteaddr ip",
	"sourceip ip", "ipaddress ip", "ipv6 ip/64", "ipv4 ip", "network ip/64", "subnet ip/64", "cidr ip/24", "campaign attrs.campaign", "session attrs.session", "tenant attrs.tenant",
	"endpoint api", "route api", "path api", "method api", "resource api", "operation api", "global all", "everything all", "everyone all", "total all", "constant all", "shared all")
