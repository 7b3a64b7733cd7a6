package rules

import (
	"slices"

	"go.yaml.in/yaml/v4"
)

// allPlaces are the places of rule files, by what their schema is called.
var allPlaces = []struct {
	schema string
	placeDoc
	fields []fieldDoc
}{
	{"", filePlace.placeDoc, filePlace.docs()},
	{"metadata", metadataPlace.placeDoc, metadataPlace.docs()},
	{"rule", rulePlace.placeDoc, rulePlace.docs()},
	{"limit", limitPlace.placeDoc, limitPlace.docs()},
	{"spec", specPlace.placeDoc, specPlace.docs()},
	{"defaults", defaultsPlace.placeDoc, defaultsPlace.docs()},
	{"recent_ids", recentIDsPlace.placeDoc, recentIDsPlace.docs()},
	{"match", matchPlace.placeDoc, matchPlace.docs()},
	{"count", countPlace.placeDoc, countPlace.docs()},
	{"then", thenPlace.placeDoc, thenPlace.docs()},
	{"tier", tierPlace.placeDoc, tierPlace.docs()},
	{"candidate", candidatePlace.placeDoc, candidatePlace.docs()},
	{"forget", forgetPlace.placeDoc, forgetPlace.docs()},
	{"grants", grantsPlace.placeDoc, grantsPlace.docs()},
	{"told", toldPlace.placeDoc, toldPlace.docs()},
	{"reset_on", resetPlace.placeDoc, resetPlace.docs()},
	{"permits", strictPlace.placeDoc, strictPlace.docs()},
	{"warm_up", warmUpPlace.placeDoc, warmUpPlace.docs()},
	{"exemption", exemptionPlace, exemptionDocs},
}

var filePlace = place[*compiler]{
	placeDoc: placeDoc{
		what:    "a rule file",
		example: "it begins with `apiVersion: tallygate.dev/v1` and `kind: RuleSet`; rules are a list under spec: rules:",
		doc:     "What to count, over which window, against which limit, and what follows.",
	},
	fields: []field[*compiler]{
		{fieldDoc{"apiVersion", `{"const": "tallygate.dev/v1"}`, "`tallygate.dev/v1`", true}, func(c *compiler, n *yaml.Node) { c.Word(n, "apiVersion", apiVersion) }},
		{fieldDoc{"kind", `{"const": "RuleSet"}`, "`RuleSet`", true}, func(c *compiler, n *yaml.Node) { c.Word(n, "kind", kind) }},
		{fieldDoc{"metadata", "metadata", "the set's `name`", true}, func(c *compiler, n *yaml.Node) { metadataPlace.inside(c, c.File, n) }},
		{fieldDoc{"spec", "spec", "what the set says", true}, nil},
	},
}

var metadataPlace = place[*compiler]{
	placeDoc: placeDoc{what: "metadata", example: "as in metadata: {name: shop}"},
	fields: []field[*compiler]{
		{fieldDoc{"name", "name", "the set's name", true}, func(c *compiler, n *yaml.Node) { c.set.Name, _ = c.name(n, "the set's name") }},
	},
}

// What the set says of all rules is read before them: see compiler.spec.
var specPlace = place[*compiler]{
	placeDoc: placeDoc{what: "spec", called: "spec"},
	fields: []field[*compiler]{
		{fieldDoc{"max_lateness", "duration", "an event older than this before its broker time is too old; default `1h`", false}, func(c *compiler, n *yaml.Node) { c.spanIf(n, "max_lateness", &c.set.MaxLateness) }},
		{fieldDoc{"too_old", `{"enum": ["drop", "now"]}`, "`drop` (default): such an event counts in a metric only; `now`: it gets its broker time", false},
			func(c *compiler, n *yaml.Node) {
				word, _ := c.Word(n, "too_old", "drop", "now")
				c.set.TooOldNow = word == "now"
			}},
		{fieldDoc{"recent_ids", "recent_ids", "`{count: 64, for: 10m}`: how many event ids a key remembers (0 to 1,024), and for how long", false}, func(c *compiler, n *yaml.Node) { recentIDsPlace.inside(c, c.File, n) }},
		{fieldDoc{"networks", "networks", "[lists of networks](#networks) by their names, such as `{office: [10.0.0.0/8], cloud: cloud.txt}`", false}, func(c *compiler, n *yaml.Node) { networkReader{c}.networks(n) }},
		{fieldDoc{"apis", "declared_apis", "the [APIs that there are](#what-events-say), names and patterns; default: any", false}, nil},
		{fieldDoc{"attrs", "declared_attrs", "the [attributes that there are](#what-events-say), with their types; default: any", false}, nil},
		{fieldDoc{"defaults", "defaults", "`key`, `window`, `mode`, `timezone`, `week_starts`, `then` for rules that do not set them", false}, nil},
		{fieldDoc{"rules", `{"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/rule"}}`, "the list of rules", true}, nil},
		{fieldDoc{"exempt", "exempt", "keys that are [exempt](#exempt) from every rule that counts by their dimensions", false}, nil},
	},
}

var recentIDsPlace = place[*compiler]{
	placeDoc: placeDoc{what: "recent_ids", example: "as in recent_ids: {count: 64, for: 10m}"},
	fields: []field[*compiler]{
		{fieldDoc{"count", "ids", "how many event ids a key remembers", false}, (*compiler).recentCount},
		{fieldDoc{"for", "duration", "for how long", false}, func(c *compiler, n *yaml.Node) { c.spanIf(n, "for", &c.set.RecentFor) }},
	},
}

var defaultsPlace = place[*compiler]{
	placeDoc: placeDoc{what: "defaults"},
	fields: []field[*compiler]{
		{keyDoc, func(c *compiler, n *yaml.Node) {
			if dims := c.dims(n); dims != nil {
				c.defaults.key = dims
			}
		}},
		{windowDoc, (*compiler).defaultWindow},
		{modeDoc, func(c *compiler, n *yaml.Node) { c.defaults.mode = c.mode(n) }},
		{timezoneDoc, func(c *compiler, n *yaml.Node) { c.zone(n) }},
		{weekStartsDoc, func(c *compiler, n *yaml.Node) { c.weekStarts(n) }},
		{thenDoc, nil},
	},
}

var rulePlace = place[*ruleReader]{
	placeDoc: placeDoc{
		what: "a rule", called: "the rule",
		schema: `{"oneOf": [{"required": ["limit"]}, {"required": ["limits"]}]}`,
	},
	fields: slices.Concat([]field[*ruleReader]{
		{fieldDoc{"name", "name", "unique in the file. For operators and services", true}, (*ruleReader).name},
		{fieldDoc{"public", "name", "the rule's name in answers to denied callers: [public names](#public-names); default: none", false},
			func(c *ruleReader, n *yaml.Node) { c.r.Public, _ = c.compiler.name(n, "a rule's public name") }},
		{keyDoc, (*ruleReader).key},
		{fieldDoc{"match", "match", "which events", true}, func(c *ruleReader, n *yaml.Node) { c.match(n, &matchPlace) }},
		{fieldDoc{"when", "when", "a predicate that must hold, too", false}, func(c *ruleReader, n *yaml.Node) { c.r.match.when = c.when(n) }},
		{fieldDoc{"count", "count", "what to add up; default: 1 per event × weight × cost", false}, func(c *ruleReader, n *yaml.Node) { c.count(n, &countPlace) }},
		{fieldDoc{"refunds", `{"type": "boolean"}`, "`true`: the rule remembers events, so that later ones can [take them back](#refunds)", false}, (*ruleReader).refunds},
		{fieldDoc{"reset_on", "reset_on", "events that [empty the windows](#reset_on) of their key, such as `{api: login, outcome: success}`", false}, nil},
		{limitDoc, nil},
		{fieldDoc{"limits", `{"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/limit"}}`,
			"instead of one limit a list of them, each with a `name`, and with tiers, candidate and window of its own if it says so", false}, nil},
		{tiersDoc, nil},
		{overridesDoc, nil},
		{candidateDoc, nil},
		{quotaDoc, nil},
		{grantsDoc, nil},
		{thenDoc, nil}, // then, fuse and limits depend on what the others say: see compiler.rule
		{fieldDoc{"warn", "warn", "[notices](#warn) on the way to the limit, such as `[50%, 80%]`", false}, (*ruleReader).warn},
		{modeDoc, func(c *ruleReader, n *yaml.Node) { c.r.Mode = c.mode(n) }},
		{fieldDoc{"strict", `{"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/permits"}]}`,
			"`true`, or `{hold, lost, ahead}`: a request needs a permit [before its action](#strict)", false}, nil},
		{fieldDoc{"scope", `{"enum": ["all", "instance"]}`, "`all` (default), or `instance`: [each process](#scope-instance) counts by itself what it lets in", false}, nil},
		{fieldDoc{"action", `{"enum": ["block", "challenge", "throttle"]}`,
			"of `strict` and `scope: instance`: what a request meets that is not let in; default `block`", false}, (*ruleReader).ownAction},
		{fieldDoc{"keys", `{"anyOf": [{"type": "integer", "minimum": 1, "maximum": 1000000}, {"type": "string", "pattern": "^[0-9][0-9_]*(k|M|Ki)?$"}]}`,
			"of `scope: instance`: how many keys a process keeps, the least recently used leave; default 10,000", false}, (*ruleReader).maxKeys},
		{fieldDoc{"exempt", "exempt", "keys that are counted but [not judged](#exempt)", false}, func(c *ruleReader, n *yaml.Node) { c.r.exempt = exemptReader{c.compiler, c.r}.exemptions(n) }},
		{fieldDoc{"fuse", "percentage", "a share of the keys, such as `5%`, beyond which the rule [stops blocking](#fuse)", false}, nil},
		{fieldDoc{"notify", `{"anyOf": [{"type": "boolean"}, {"$ref": "#/$defs/name"}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/name"}}]}`,
			"`true`, or names of routes: [people are told](#notify) of its verdicts", false}, readNotify},
	}, unread[*ruleReader](windowDocs)),
}

var matchPlace = place[*ruleReader]{
	placeDoc: placeDoc{
		what: "match", called: "match", example: "as in match: {api: search.query}", missing: `to count every API, write api: "*"`,
		doc:    "Which events: all of it must hold.",
		schema: `{"patternProperties": {"^attrs\\..+$": {"$ref": "#/$defs/values"}}}`,
	},
	fields: []field[*ruleReader]{
		{fieldDoc{"api", "weights", "a name, a pattern, a list of them, or a map of them to weights", true}, (*ruleReader).matchAPI},
		{fieldDoc{"outcome", "outcomes", "a value, a list of values, or a map of them to weights; `*` is every one. Default: every one but `limited`",
			false}, matchOutcome},
		{fieldDoc{"attrs", `{"type": "object", "additionalProperties": {"$ref": "#/$defs/values"}}`, "values of attributes", false}, (*ruleReader).matchAttrs},
	},
}

var countPlace = place[*ruleReader]{
	placeDoc: placeDoc{what: "count", called: "count", doc: "What to add up.", schema: `{"minProperties": 1, "maxProperties": 1}`},
	fields: []field[*ruleReader]{
		{fieldDoc{"sum", `{"type": "string", "pattern": "^(cost|attrs\\..+)$"}`, "`attrs.NAME` or `cost`", false}, (*ruleReader).sum},
		{fieldDoc{"distinct", `{"type": "string", "pattern": "^(api|ip|uid|attrs\\..+)$"}`, "`attrs.NAME`, `api`, `ip` or `uid`: how many different values", false}, (*ruleReader).distinct},
	},
}

var thenPlace = place[*ruleReader]{
	placeDoc: placeDoc{
		what: "then", called: "then", example: "as in then: {block: 5m} or then: {block: until-reset}",
		doc:    "What follows when a key is over the limit.",
		schema: `{"not": {"required": ["block", "escalate"]}, "dependentRequired": {"escalate": ["forget"], "forget": ["escalate"]}}`,
	},
	fields: []field[*ruleReader]{
		{fieldDoc{"block", `{"anyOf": [{"enum": ["until-reset", "forever"]}, {"$ref": "#/$defs/duration"}]}`,
			"`until-reset`: a quota, until the count is below the limit. A duration: a penalty; `forever`: one that only a command ends",
			false}, (*ruleReader).block},
		{fieldDoc{"escalate", `{"type": "array", "minItems": 1, "items": {"anyOf": [{"const": "forever"}, {"$ref": "#/$defs/duration"}]}}`,
			"a penalty that grows: each new verdict takes the next step, and the last step, which may be `forever`, repeats", false}, (*ruleReader).escalate},
		{fieldDoc{"forget", `{"anyOf": [{"$ref": "#/$defs/duration"}, {"$ref": "#/$defs/forget"}]}`,
			"of `escalate`: so long after the last verdict's end the next one takes the first step; or `{step: 1d}`: one step back for each", false},
			readForget},
		{fieldDoc{"extend", `{"type": "boolean"}`, "a penalty: every event that counts moves its end", false},
			func(c *ruleReader, n *yaml.Node) { c.r.Then.Extend = c.penaltyOnly(n, "extend") }},
		{fieldDoc{"reset", `{"type": "boolean"}`, "a penalty: the window is emptied when the verdict is issued", false},
			func(c *ruleReader, n *yaml.Node) { c.r.Then.Reset = c.penaltyOnly(n, "reset") }},
		{fieldDoc{"at", `{"enum": ["reached", "exceeded"]}`, "when the verdict is issued; default: a quota when the limit is reached, a penalty when it is exceeded", false}, (*ruleReader).at},
		{fieldDoc{"action", "action", "what an enforcer does; default `block`", false}, (*ruleReader).action},
		{fieldDoc{"apis", "patterns", "what the verdict covers; default: what the rule matches", false}, (*ruleReader).covers},
	},
}

var forgetPlace = place[*ruleReader]{
	placeDoc: placeDoc{what: "forget", example: "as in forget: 7d or forget: {step: 1d}", doc: "How steps of `escalate` are forgotten one by one."},
	fields: []field[*ruleReader]{
		{fieldDoc{"step", "duration", "each time that so long has passed since the last verdict's end, one step is forgotten", true},
			func(c *ruleReader, n *yaml.Node) {
				c.r.Then.ByStep = true
				c.r.Then.Forget, _ = c.duration(n, "step")
			}},
	},
}

// limitFields are the fields of a limit: of a rule with one, or of an entry of `limits`. Those of its window
// are read by the window's kind.
var limitFields = []field[*limitReader]{
	{limitDoc, func(c *limitReader, n *yaml.Node) { toldReader{c}.limit(n, &toldPlace) }},
	{tiersDoc, func(c *limitReader, n *yaml.Node) { c.tiers(n, &tierPlace) }},
	{overridesDoc, func(c *limitReader, n *yaml.Node) { overrideFile{c}.read(n) }},
	{candidateDoc, func(c *limitReader, n *yaml.Node) { c.candidate(n, &candidatePlace) }},
	{quotaDoc, (*limitReader).quota},
	{grantsDoc, func(c *limitReader, n *yaml.Node) { grantsPlace.inside(c, c.File, n) }},
}

var limitPlace = place[*compiler]{
	placeDoc: placeDoc{what: "a limit", called: "its limit", example: "as in {name: burst, limit: 5, per: 1s}", schema: `{"allOf": [{"required": ["limit"]}]}`},
	fields: slices.Concat([]field[*compiler]{{fieldDoc{"name", "name", "the limit's name, behind the rule's", true}, nil}},
		unread[*compiler](docsOf(limitFields)), unread[*compiler](windowDocs)),
}

var tierPlace = place[*limitReader]{
	placeDoc: placeDoc{
		what: "a tier", called: "a tier", example: `as in {when: 'attrs.plan == "pro"', limit: 100}`,
		schema: `{"required": ["when"], "oneOf": [{"required": ["limit"]}, {"required": ["unlimited"]}]}`,
	},
	fields: []field[*limitReader]{
		{fieldDoc{"when", "when", "for which events it is", false}, nil},
		{fieldDoc{"limit", "allowed", "the limit of their keys", false}, nil},
		{fieldDoc{"unlimited", `{"const": true}`, "`true`: they have none", false}, nil},
	},
}

// What an event tells of its key's limit.
var toldPlace = place[toldReader]{
	placeDoc: placeDoc{
		what: "limit", called: "limit", example: "as in limit: {from: attrs.quota, else: 100, most: 10k}",
		doc: "The key's latest event tells the limit by an attribute.", missing: "as in limit: {from: attrs.quota, else: 100, most: 10k}",
	},
	fields: []field[toldReader]{
		{fieldDoc{"from", `{"type": "string", "pattern": "^attrs\\..+$"}`, "the attribute, as `attrs.NAME`: a number", true}, toldReader.from},
		{fieldDoc{"else", "allowed", "the limit where the latest event does not have it, or has no number there", true}, func(c toldReader, n *yaml.Node) {
			c.l.Limit = c.numberAtMost(n, "else", limitNumber)
		}},
		{fieldDoc{"most", "number", "what it tells at most", true}, func(c toldReader, n *yaml.Node) {
			c.l.Told.Most = c.numberAtMost(n, "most", (*compiler).number)
		}},
	},
}

// Which events empty windows. They are told as those that count, without weights.
var resetPlace = place[resetReader]{
	placeDoc: placeDoc{
		what: "reset_on", called: "reset_on", example: "as in reset_on: {api: login, outcome: success}", missing: "as in reset_on: {api: login, outcome: success}",
		doc:    "Such an event empties the windows of its key: what happened up to its time counts no more.",
		schema: `{"patternProperties": {"^attrs\\..+$": {"$ref": "#/$defs/values"}}}`,
	},
	fields: []field[resetReader]{
		{fieldDoc{"api", "patterns", "a name, a pattern, or a list of them", true}, resetReader.api},
		{outcomeDoc, func(c resetReader, n *yaml.Node) { c.outcomesOf(&c.r.reset.match, n) }},
		{fieldDoc{"attrs", `{"type": "object", "additionalProperties": {"$ref": "#/$defs/values"}}`, "values of attributes", false}, resetReader.attrs},
		{fieldDoc{"clear", `{"type": "boolean"}`, "`true`: a penalty ends, too", false}, func(c resetReader, n *yaml.Node) { c.r.reset.clear = c.Bool(n, "clear") }},
	},
}

// What a rule says of permits is read before the rest: see strictReader.
var strictPlace = place[strictReader]{
	placeDoc: placeDoc{what: "strict", called: "strict", example: "as in strict: true, or strict: {hold: 30s}", doc: "A request needs a permit before its action."},
	fields: []field[strictReader]{
		{fieldDoc{"hold", "duration", "how long an action may take, until its event is in Kafka; default `30s`, at most `max_lateness`", false}, strictReader.hold},
		{fieldDoc{"lost", `{"enum": ["count", "return"]}`,
			"what becomes of a permit whose action never told how it ended: it counts (default), or is given back", false}, strictReader.lost},
		{fieldDoc{"ahead", "duration", "permits for busy keys are asked for so long beforehand; default: none are", false}, strictReader.ahead},
	},
}

var warmUpPlace = place[*limitReader]{
	placeDoc: placeDoc{what: "warm_up", called: "warm_up", example: "as in warm_up: {time: 30s, from: 25%}"},
	fields: []field[*limitReader]{
		{fieldDoc{"time", "duration", "how long it takes to the whole rate", true}, func(c *limitReader, n *yaml.Node) { c.spanIf(n, "time", &c.l.WarmUp.Time) }},
		{fieldDoc{"from", "percentage", "the share of rate and burst that it begins with after idling", true}, (*limitReader).warmUpFrom},
	},
}

var candidatePlace = place[*limitReader]{
	placeDoc: placeDoc{
		what: "candidate",
		doc:  "The same counts, judged by another limit as well; its verdicts are shadow ones, named rule/candidate.",
	},
	fields: []field[*limitReader]{{fieldDoc{"limit", "allowed", "the limit that is tried", true}, nil}},
}

var grantsPlace = place[*limitReader]{
	placeDoc: placeDoc{what: "grants", example: "as in grants: {most: 10k}", doc: "What commands may grant keys on top of their limits."},
	fields: []field[*limitReader]{
		{fieldDoc{"most", "number", "what the grants in force of a key add up to at most", true},
			func(c *limitReader, n *yaml.Node) { c.l.GrantsMost = c.number(n, "most", c.l.Rule) }},
	},
}

// Fields that stand in several places.
var (
	keyDoc     = fieldDoc{"key", "key", "[what to count by](#key); default `uid`. With `scope: instance` also `[]` for all requests together", false}
	outcomeDoc = fieldDoc{"outcome", "values", "a value, or a list of values; `*` is every one. Default: every one but `limited`", false}
	modeDoc    = fieldDoc{"mode", "mode", "`enforce` (default), or `shadow`: verdicts are published and shown, and deny nothing", false}
	limitDoc   = fieldDoc{"limit", `{"anyOf": [{"$ref": "#/$defs/allowed"}, {"$ref": "#/$defs/told"}]}`,
		"a number of at least 0, such as `100`, `100k` or `1MiB`; or `{from: attrs.quota, else: 100, most: 10k}`: [an attribute](#limits-that-are-data)", false}
	overridesDoc = fieldDoc{"overrides", `{"type": "string", "minLength": 1}`, "a CSV file with [limits of single keys](#limits-that-are-data)", false}
	tiersDoc     = fieldDoc{"tiers", `{"type": "array", "minItems": 1, "maxItems": 32, "items": {"$ref": "#/$defs/tier"}}`,
		"[other limits](#tiers-and-candidates) for some keys: the first whose `when` holds for the event counts", false}
	candidateDoc = fieldDoc{"candidate", "candidate", "a limit to [try out](#tiers-and-candidates) beside the live one", false}
	quotaDoc     = fieldDoc{"quota", `{"type": "boolean"}`, "`true`: services and callers are told [what is left](#quota)", false}
	grantsDoc    = fieldDoc{"grants", "grants",
		"`{most: 10k}`: how much [grants by command](#limits-and-grants-by-command) may add to one key's limit; default: any amount", false}
	thenDoc = fieldDoc{"then", "then", "what follows; required, unless there is `warn`, `strict` or `scope: instance`", false}
)

// Fields of windows. windowKinds says which kinds have them, and docs and schema get it from there.
var (
	windowDoc     = fieldDoc{"window", "window", "the kind of [window](#windows); default `sliding`", false}
	timezoneDoc   = fieldDoc{"timezone", `{"type": "string", "minLength": 1}`, "an IANA zone, such as `Asia/Shanghai`; default UTC", false}
	weekStartsDoc = fieldDoc{"week_starts", "weekday", "the first day of a `week`; default `monday`", false}

	windowDocs = []fieldDoc{
		{"per", "per", "how long the window is: a duration, or for `calendar` a unit", false},
		windowDoc,
		{"every", "duration", "how far apart windows begin; `per` is a multiple of it", false},
		{"offset", "duration", "moves the edges; of `calendar` the time at which a day begins, such as `5h`", false},
		timezoneDoc,
		weekStartsDoc,
		{"anchor", `{"type": "string", "pattern": "^[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])$"}`,
			"a date on which a `week`, `month` or `year` begins, such as `2026-01-31`; default: the civil one", false},
		{"resolution", "duration", "how long panes are; default `per/60`", false},
		{"gap", "duration", "events this far apart belong to different sessions", false},
		{"burst", "number", "how many at once; default `limit`", false},
		{"debt", "debt", "by how many times its burst it may be overdrawn; default 1", false},
		{"warm_up", "warm_up", "with `scope: instance`: `{time: 30s, from: 25%}`: after idling it begins with that share of its rate", false},
	}
)

// An exemption has dimensions, too.
var exemptionPlace = placeDoc{
	what: "an exemption", example: "as in {uid: 42, reason: load test}",
	schema: `{"minProperties": 2, "patternProperties": {"` + dimensionPattern + `": {"type": ["string", "number", "boolean"]}}}`,
}

var exemptionDocs = []fieldDoc{
	{"reason", "value", "why", true},
	{"expires", `{"type": "string"}`, "until when by the key's latest time, such as `2026-12-31T00:00:00Z`; default: always", false},
}
