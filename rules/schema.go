package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/verdict"
)

// Schema returns the JSON Schema of rule files, for editors. It is made of the table of fields. It can't
// know everything that Compile knows, but what it refuses Compile refuses, too.
func Schema() []byte {
	var b bytes.Buffer
	b.WriteString(`{"$schema": "https://json-schema.org/draft/2020-12/schema",
		"$id": "https://tallygate.dev/schema/ruleset.v1.schema.json", "title": "Tallygate rule set", `)
	writePlace(&b, filePlace.placeDoc, filePlace.docs())
	b.WriteString(`, "$defs": {` + definitions + `, "window": ` + windowSchema() + `, "action": ` + actionSchema())
	for _, p := range allPlaces[1:] {
		fmt.Fprintf(&b, `, %q: {`, p.schema)
		writePlace(&b, p.placeDoc, p.fields)
		b.WriteString("}")
	}
	b.WriteString("}}")
	var out bytes.Buffer
	if err := json.Indent(&out, b.Bytes(), "", "  "); err != nil {
		panic(err) // the table is part of the program
	}
	out.WriteByte('\n')
	return out.Bytes()
}

// writePlace writes the members of a place's schema.
func writePlace(b *bytes.Buffer, p placeDoc, fields []fieldDoc) {
	b.WriteString(`"type": "object", "additionalProperties": false`)
	if p.doc != "" {
		b.WriteString(`, "description": ` + strconv.Quote(p.doc))
	}
	var required, properties []string
	for _, f := range fields {
		if f.required {
			required = append(required, strconv.Quote(f.name))
		}
		properties = append(properties, strconv.Quote(f.name)+": "+f.jsonSchema())
	}
	if len(required) > 0 {
		b.WriteString(`, "required": [` + strings.Join(required, ", ") + "]")
	}
	b.WriteString(`, "properties": {` + strings.Join(properties, ", ") + "}")
	if p.schema != "" {
		b.WriteString(", " + p.schema[1:len(p.schema)-1])
	}
}

var markdownLink = regexp.MustCompile(`\[([^]]*)\]\([^)]*\)`)

// jsonSchema is the schema of a field's value, with what the field is for.
func (f *fieldDoc) jsonSchema() string {
	members := f.schema
	if members[0] != '{' {
		members = `{"$ref": "#/$defs/` + members + `"}`
	}
	return members[:len(members)-1] + `, "description": ` + strconv.Quote(markdownLink.ReplaceAllString(f.sentence(), "$1")) + "}"
}

// windowSchema is the schema of a window's kind.
func windowSchema() string {
	var names, docs []string
	for kind := range eachKind {
		names = append(names, strconv.Quote(kind.String()))
		docs = append(docs, fmt.Sprintf("%v: %s.", kind, windowKinds[kind].doc))
	}
	names, docs = append(names, strconv.Quote(inFlight)), append(docs, inFlight+": what is under way now, with strict or scope: instance.")
	return `{"enum": [` + strings.Join(names, ", ") + `], "description": ` + strconv.Quote(strings.Join(docs, " ")) + "}"
}

// actionSchema is the schema of what an enforcer does.
func actionSchema() string {
	return `{"enum": ["` + strings.Join(verdict.ActionNames(), `", "`) + `"]}`
}

// sentence describes a field for pages and schema; of a window's field, also the kinds that have it.
func (f *fieldDoc) sentence() string {
	var kinds []string
	for kind := range eachKind {
		if slices.Contains(windowKinds[kind].fields, f.name) {
			kinds = append(kinds, "`"+kind.String()+"`")
		}
	}
	if len(kinds) == 0 {
		return f.doc
	}
	return strings.Join(kinds, ", ") + ": " + f.doc
}

// dimensionPattern is of names of dimensions: see event.IsDim. The bits of addresses are those that
// event.ParseAddressDim takes.
const dimensionPattern = `^(uid|api|all|attrs\\..+|ip(/([89]|[12][0-9]|3[013-9]|[4-9][0-9]|1[01][0-9]|12[0-7])` +
	`|/([89]|[12][0-9]|3[01])/(3[2-9]|[45][0-9]|6[0-35-9]|[7-9][0-9]|1[01][0-9]|12[0-8])|/32/32)?)$`

// definitions are the types of fields' values.
const definitions = `
"name": {"type": ["string", "integer"], "pattern": "^[a-z0-9-]{1,64}$", "description": "1 to 64 of a-z, 0-9 and -."},
"duration": {
	"type": "string",
	"pattern": "^([0-9]+y)?([0-9]+w)?([0-9]+d)?([0-9]+h)?([0-9]+m)?([0-9]+s)?([0-9]+ms)?$",
	"not": {"pattern": "^[0ywdhms]*$"},
	"description": "A duration: whole numbers with units, from long to short (y w d h m s ms), such as 30s, 1h30m or 7d."
},
"per": {"anyOf": [{"$ref": "#/$defs/duration"}, {"enum": ["hour", "day", "week", "month", "year"]}]},
"number": {
	"description": "A positive number, with the suffixes k M G (thousands) and Ki Mi Gi (1024), each with or without B.",
	"anyOf": [
		{"type": "number", "minimum": 0.000001, "maximum": 9000000000000},
		{"type": "string", "pattern": "^[0-9][0-9_]*(\\.[0-9]{1,6})?((k|M|G|Ki|Mi|Gi)?B?)$", "not": {"pattern": "^[0_.]*[A-Za-z]*$"}}
	]
},
"allowed": {
	"description": "A number of at least 0, which allows nothing, with the suffixes k M G (thousands) and Ki Mi Gi (1024), each with or without B.",
	"anyOf": [{"const": 0}, {"type": "string", "pattern": "^[0_]*0(\\.0{1,6})?((k|M|G|Ki|Mi|Gi)?B?)$"}, {"$ref": "#/$defs/number"}]
},
"debt": {"anyOf": [{"const": 0}, {"type": "string", "pattern": "^0+(\\.0*)?$"}, {"$ref": "#/$defs/number"}]},
"ids": {
	"anyOf": [
		{"type": "integer", "minimum": 0, "maximum": 1024},
		{"type": "string", "pattern": "^([0-9]|[1-9][0-9]{1,2}|10[01][0-9]|102[0-4]|1_0[01][0-9]|1_02[0-4])$"}
	]
},
"percentage": {"type": "string", "pattern": "^0*(100(\\.0+)?|[0-9]{1,2}(\\.[0-9]{1,4})?)%$", "not": {"pattern": "^[0.]*%$"}},
"warn": {"anyOf": [{"$ref": "#/$defs/percentage"}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/percentage"}}]},
"value": {"type": ["string", "number", "boolean"], "minLength": 1},
"values": {
	"description": "A value, or a list of which one must be the event's. Compared as text.",
	"anyOf": [
		{"type": ["string", "number", "boolean"]},
		{"type": "array", "minItems": 1, "items": {"type": ["string", "number", "boolean"]}}
	]
},
"pattern": {
	"type": "string", "minLength": 1, "maxLength": 128,
	"description": "A name or a pattern: * stays inside a dotted segment; as the last character it takes all that follows."
},
"patterns": {"anyOf": [{"$ref": "#/$defs/pattern"}, {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/pattern"}}]},
"weight": {
	"anyOf": [
		{"type": "integer", "minimum": 1, "maximum": 9000000000000},
		{
			"type": "string", "pattern": "^[0-9][0-9_]*(\\.[0-9]{1,6})?((k|M|G|Ki|Mi|Gi)?B?)$",
			"not": {"pattern": "^([0_.]*[A-Za-z]*|.*\\..*[0-9])$"}
		}
	]
},
"weights": {
	"anyOf": [
		{"$ref": "#/$defs/patterns"},
		{"type": "object", "minProperties": 1, "additionalProperties": {"$ref": "#/$defs/weight"}, "description": "Patterns with their weights."}
	]
},
"outcomes": {
	"anyOf": [
		{"$ref": "#/$defs/values"},
		{
			"type": "object", "minProperties": 1, "description": "Outcomes with their weights.",
			"additionalProperties": {"allOf": [{"$ref": "#/$defs/weight"}, {"anyOf": [{"type": "string"}, {"maximum": 1000000}]}]}
		}
	]
},
"when": {
	"type": ["string", "boolean"], "minLength": 1, "maxLength": 4096,
	"description": "A predicate of the expr language over id, uid, ip, api, outcome, cost, attrs and time."
},
"mode": {"enum": ["enforce", "shadow"]},
"dimension": {"type": "string", "pattern": "` + dimensionPattern + `", "description": "uid, ip, a network such as ip/24, ip/64 or ip/24/56, api, attrs.NAME, or all, which stands alone"},
"key": {"anyOf": [{"$ref": "#/$defs/dimension"}, {"type": "array", "uniqueItems": true, "items": {"$ref": "#/$defs/dimension"}}]},
"declared_apis": {"anyOf": [{"$ref": "#/$defs/pattern"}, {"type": "array", "minItems": 1, "maxItems": 10000, "items": {"$ref": "#/$defs/pattern"}}]},
"declared_attrs": {"type": "object", "minProperties": 1, "maxProperties": 1000, "propertyNames": {"minLength": 1}, "additionalProperties": {"$ref": "#/$defs/declared_attr"}},
"declared_attr": {
	"description": "A type, or a list of the values that there are. Compared as text.",
	"anyOf": [
		{"enum": ["text", "number", "boolean", "any"]},
		{"type": "array", "minItems": 1, "maxItems": 1000, "items": {"$ref": "#/$defs/value"}}
	]
},
"weekday": {"enum": ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]},
"networks": {
	"type": "object", "maxProperties": 100, "propertyNames": {"pattern": "^[a-z0-9-]{1,64}$"},
	"additionalProperties": {
		"description": "Networks such as 10.0.0.0/8, or the name of a file with one in each line.",
		"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[0-9A-Fa-f.:]+(/[0-9]{1,3})?$"}}]
	}
},
"exempt": {
	"description": "Keys that are counted and not judged: a list, or the name of a file with one.",
	"anyOf": [{"type": "string", "minLength": 1}, {"type": "array", "items": {"$ref": "#/$defs/exemption"}}]
}`
