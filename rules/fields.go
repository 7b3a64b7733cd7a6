package rules

import (
	"slices"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
)

// field is one field of rule files: a line in the table below. What may be written, the messages about
// what may not, the JSON Schema and the tables in docs/rules.md all come from there.
type field[R any] struct {
	fieldDoc

	// read reads the field's value; nil where the reader of the whole mapping does.
	read func(reader R, n *yaml.Node)
}

// fieldDoc is what is known of a field without reading one.
type fieldDoc struct {
	name     string
	schema   string // what its value is: a definition of the schema, or one of its own as JSON
	doc      string // one sentence, in Markdown
	required bool
}

// place is a mapping in a rule file. Its fields are read in their order.
type place[R any] struct {
	placeDoc
	fields []field[R]
}

// placeDoc is what is known of a place without reading one.
type placeDoc struct {
	what    string // what messages call it
	called  string // where messages say that a field belongs; "" where another place says it
	example string // how to write one
	missing string // a hint for one without a field that is required
	doc     string // one sentence
	schema  string // members of its schema besides its fields, as JSON
}

// docs are the fields that may stand in a place.
func (p *place[R]) docs() []fieldDoc { return docsOf(p.fields) }

func docsOf[R any](fields []field[R]) []fieldDoc {
	out := make([]fieldDoc, len(fields))
	for i := range fields {
		out[i] = fields[i].fieldDoc
	}
	return out
}

// unread are fields that another reader reads.
func unread[R any](docs []fieldDoc) []field[R] {
	out := make([]field[R], len(docs))
	for i := range docs {
		out[i].fieldDoc = docs[i]
	}
	return out
}

// object returns the mapping that stands in a place, and reports what is missing in it, or unknown.
func (p *place[R]) object(f *document.File, n *yaml.Node) (*document.Object, bool) {
	return p.objectAnd(f, n, func(document.Pair) bool { return false })
}

// objectAnd is object for a place with more than fields: see document.File.ObjectAnd.
func (p *place[R]) objectAnd(f *document.File, n *yaml.Node, other func(document.Pair) bool) (*document.Object, bool) {
	names := make([]string, len(p.fields))
	for i := range p.fields {
		names[i] = p.fields[i].name
	}
	o, ok := f.ObjectAnd(n, p.what, other, names...)
	for i := range p.fields {
		if d := &p.fields[i]; ok && d.required && !o.Has(d.name) {
			f.Fail(o.Node, p.missing, "%s needs `%s`", p.what, d.name)
		}
	}
	return o, ok
}

// read reads the fields that are there.
func (p *place[R]) read(reader R, o *document.Object) { readFields(p.fields, reader, o) }

func readFields[R any](fields []field[R], reader R, o *document.Object) {
	for i := range fields {
		if n := o.Get(fields[i].name); n != nil && fields[i].read != nil {
			fields[i].read(reader, n)
		}
	}
}

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
		{fieldDoc{"metadata", "metadata", "the set's `name`", true}, (*compiler).metadata},
		{fieldDoc{"spec", "spec", "what the set says", true}, (*compiler).spec},
	},
}

var metadataPlace = place[*compiler]{
	placeDoc: placeDoc{what: "metadata", example: "as in metadata: {name: shop}"},
	fields: []field[*compiler]{
		{fieldDoc{"name", "name", "the set's name", true}, func(c *compiler, n *yaml.Node) { c.set.Name, _ = c.name(n, "the set's name") }},
	},
}

var specPlace = place[*compiler]{
	placeDoc: placeDoc{what: "spec", called: "spec"},
	fields: []field[*compiler]{
		{fieldDoc{"max_lateness", "duration", "an event older than this before its broker time is too old; default `1h`", false}, (*compiler).maxLateness},
		{fieldDoc{"too_old", `{"enum": ["drop", "now"]}`, "`drop` (default): such an event counts in a metric only; `now`: it gets its broker time", false},
			func(c *compiler, n *yaml.Node) {
				word, _ := c.Word(n, "too_old", "drop", "now")
				c.set.TooOldNow = word == "now"
			}},
		{fieldDoc{"recent_ids", "recent_ids", "`{count: 64, for: 10m}`: how many event ids a key remembers (0 to 1,024), and for how long", false}, (*compiler).recentIDs},
		{fieldDoc{"defaults", "defaults", "`key`, `window`, `mode`, `timezone`, `week_starts`, `then` for rules that do not set them", false}, (*compiler).readDefaults},
		{fieldDoc{"rules", `{"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/rule"}}`, "the list of rules", true}, (*compiler).rules},
		{fieldDoc{"exempt", "exempt", "keys that are [exempt](#exempt) from every rule that counts by their dimensions", false}, (*compiler).exemptAll},
	},
}

var recentIDsPlace = place[*compiler]{
	placeDoc: placeDoc{what: "recent_ids", example: "as in recent_ids: {count: 64, for: 10m}"},
	fields: []field[*compiler]{
		{fieldDoc{"count", "ids", "how many event ids a key remembers", false}, (*compiler).recentCount},
		{fieldDoc{"for", "duration", "for how long", false}, (*compiler).recentFor},
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
		{windowDoc, func(c *compiler, n *yaml.Node) { c.windowKind(n) }},
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
		{fieldDoc{"match", "match", "which events", true}, (*ruleReader).match},
		{fieldDoc{"when", "when", "a predicate that must hold, too", false}, func(c *ruleReader, n *yaml.Node) { c.r.match.when = c.when(n) }},
		{fieldDoc{"count", "count", "what to add up; default: 1 per event × weight × cost", false}, (*ruleReader).count},
		{fieldDoc{"refunds", `{"type": "boolean"}`, "`true`: the rule remembers events, so that later ones can [take them back](#refunds)", false}, (*ruleReader).refunds},
		{limitDoc, nil},
		{fieldDoc{"limits", `{"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/limit"}}`,
			"instead of one limit a list of them, each with a `name`, and with tiers, candidate and window of its own if it says so", false}, nil},
		{tiersDoc, nil},
		{candidateDoc, nil},
		{thenDoc, nil}, // then, fuse and limits depend on what the others say: see compiler.rule
		{fieldDoc{"warn", "warn", "[notices](#warn) on the way to the limit, such as `[50%, 80%]`", false}, (*ruleReader).warn},
		{modeDoc, func(c *ruleReader, n *yaml.Node) { c.r.Mode = c.mode(n) }},
		{fieldDoc{"exempt", "exempt", "keys that are counted but [not judged](#exempt)", false}, func(c *ruleReader, n *yaml.Node) { c.r.exempt = c.exemptions(n, c.r) }},
		{fieldDoc{"fuse", "percentage", "a share of the keys, such as `5%`, beyond which the rule [stops blocking](#fuse)", false}, nil},
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
		{fieldDoc{"outcome", "values", "a value, or a list of values", false}, func(c *ruleReader, n *yaml.Node) { c.r.match.outcomes = c.values(n, "outcome") }},
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
		{fieldDoc{"block", `{"anyOf": [{"const": "until-reset"}, {"$ref": "#/$defs/duration"}]}`,
			"`until-reset`: a quota, until the count is below the limit. A duration: a penalty", false}, (*ruleReader).block},
		{fieldDoc{"escalate", `{"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/duration"}}`,
			"a penalty that grows: each new verdict takes the next step, and the last step repeats", false}, (*ruleReader).escalate},
		{fieldDoc{"forget", "duration", "of `escalate`: so long after the last verdict's end the next one takes the first step", false},
			func(c *ruleReader, n *yaml.Node) { c.r.Then.Forget, _ = c.duration(n, "forget") }},
		{fieldDoc{"extend", `{"type": "boolean"}`, "a penalty: every event that counts moves its end", false},
			func(c *ruleReader, n *yaml.Node) { c.r.Then.Extend = c.penaltyOnly(n, "extend") }},
		{fieldDoc{"reset", `{"type": "boolean"}`, "a penalty: the window is emptied when the verdict is issued", false},
			func(c *ruleReader, n *yaml.Node) { c.r.Then.Reset = c.penaltyOnly(n, "reset") }},
		{fieldDoc{"at", `{"enum": ["reached", "exceeded"]}`, "when the verdict is issued; default: a quota when the limit is reached, a penalty when it is exceeded", false}, (*ruleReader).at},
		{fieldDoc{"action", `{"enum": ["block", "challenge", "throttle", "log"]}`, "what an enforcer does; default `block`", false}, (*ruleReader).action},
		{fieldDoc{"apis", "patterns", "what the verdict covers; default: what the rule matches", false}, (*ruleReader).covers},
	},
}

// limitFields are the fields of a limit: of a rule with one, or of an entry of `limits`. Those of its window
// are read by the window's kind.
var limitFields = []field[*limitReader]{
	{limitDoc, func(c *limitReader, n *yaml.Node) { c.l.Limit = c.number(n, "limit", c.l.Rule) }},
	{tiersDoc, (*limitReader).tiers},
	{candidateDoc, (*limitReader).candidate},
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
		{fieldDoc{"limit", "number", "the limit of their keys", false}, nil},
		{fieldDoc{"unlimited", `{"const": true}`, "`true`: they have none", false}, nil},
	},
}

var candidatePlace = place[*limitReader]{
	placeDoc: placeDoc{
		what: "candidate",
		doc:  "The same counts, judged by another limit as well; its verdicts are shadow ones, named rule/candidate.",
	},
	fields: []field[*limitReader]{{fieldDoc{"limit", "number", "the limit that is tried", true}, nil}},
}

// Fields that stand in several places.
var (
	keyDoc   = fieldDoc{"key", "key", "what to count by; default `uid`", false}
	modeDoc  = fieldDoc{"mode", "mode", "`enforce` (default), or `shadow`: verdicts are published and shown, and deny nothing", false}
	limitDoc = fieldDoc{"limit", "number", "a positive number, such as `100`, `100k` or `1MiB`", false}
	tiersDoc = fieldDoc{"tiers", `{"type": "array", "minItems": 1, "maxItems": 32, "items": {"$ref": "#/$defs/tier"}}`,
		"[other limits](#tiers-and-candidates) for some keys: the first whose `when` holds for the event counts", false}
	candidateDoc = fieldDoc{"candidate", "candidate", "a limit to [try out](#tiers-and-candidates) beside the live one", false}
	thenDoc      = fieldDoc{"then", "then", "what follows; required, unless there is `warn`", false}
)

// Fields of windows. Which kinds have them windowKinds says.
var (
	windowDoc     = fieldDoc{"window", "window", "the kind of [window](#windows); default `sliding`", false}
	timezoneDoc   = fieldDoc{"timezone", `{"type": "string", "minLength": 1}`, "`calendar`: an IANA zone, such as `Asia/Shanghai`; default UTC", false}
	weekStartsDoc = fieldDoc{"week_starts", "weekday", "`calendar`, weeks: the first day; default `monday`", false}

	windowDocs = []fieldDoc{
		{"per", "per", "how long the window is: a duration, or for `calendar` a unit", false},
		windowDoc,
		{"offset", "duration", "`tumbling`: moves the edges", false},
		timezoneDoc,
		weekStartsDoc,
		{"resolution", "duration", "`sliding`: how long panes are; default `per/60`", false},
		{"gap", "duration", "`session`: events this far apart belong to different sessions", false},
		{"burst", "number", "`bucket`: how many at once; default `limit`", false},
		{"debt", "debt", "`bucket`: by how many times its burst it may be overdrawn; default 1", false},
	}
)

// windowFieldNames are the names of windowDocs.
var windowFieldNames = func() (names []string) {
	for _, d := range windowDocs {
		names = append(names, d.name)
	}
	return names
}()

// An exemption has dimensions, too.
var exemptionPlace = placeDoc{
	what: "an exemption", example: "as in {uid: 42, reason: load test}",
	schema: `{"minProperties": 2, "patternProperties": {"^(uid|ip|ip/64|attrs\\..+)$": {"type": ["string", "number", "boolean"]}}}`,
}

var exemptionDocs = []fieldDoc{
	{"reason", "value", "why", true},
	{"expires", `{"type": "string"}`, "until when by the key's latest time, such as `2026-12-31T00:00:00Z`; default: always", false},
}
