package apidocs_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// types are the structs that the package api declares, in the order of its files.
type types struct {
	all      []*declared
	named    map[string]*declared
	referred map[string]bool          // somebody has a reference to them
	place    func(name string) string // where the schema of one is referred to
}

// declared is a struct: an answer, a body, or a part of one.
type declared struct {
	name, doc string
	enforcer  bool // it crosses a path of the decision server
	fields    []field
	body      bool // clients send it
}

type field struct {
	goName, name string // name is that in JSON; "" of an embedded struct
	doc          string
	omit         bool
	schema       string // the tag
	kind         ast.Expr
}

// typesOf reads the package's sources, because comments are the descriptions.
func typesOf(t *testing.T) *types {
	t.Helper()
	paths, err := filepath.Glob("../../api/*.go")
	if err != nil || len(paths) == 0 {
		t.Fatal(paths, err)
	}
	all := &types{named: map[string]*declared{}, referred: map[string]bool{}}
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if d, ok := d.(*ast.GenDecl); ok && d.Tok == token.TYPE && !strings.HasSuffix(path, "_test.go") {
				if is := declaredBy(d); is != nil {
					is.enforcer = filepath.Base(path) == "enforcer.go"
					all.all, all.named[is.name] = append(all.all, is), is
				}
			}
		}
	}
	return all
}

// declaredBy is nil of what has no JSON of its own.
func declaredBy(d *ast.GenDecl) *declared {
	spec := d.Specs[0].(*ast.TypeSpec)
	is, ok := spec.Type.(*ast.StructType)
	if !ok || spec.Name.Name == "Problem" { // whose schema stands in a file of its own: doors write it, too
		return nil
	}
	out := &declared{name: spec.Name.Name, doc: d.Doc.Text(), body: strings.Contains(d.Doc.Text(), " is the body of ")}
	tagged := false
	for _, f := range is.Fields.List {
		one := field{doc: f.Doc.Text() + f.Comment.Text(), kind: f.Type}
		if f.Tag != nil {
			tag := reflect.StructTag(strings.Trim(f.Tag.Value, "`"))
			name, options, _ := strings.Cut(tag.Get("json"), ",")
			one.name, one.omit, one.schema, one.goName, tagged = name, options != "", tag.Get("schema"), f.Names[0].Name, true
		}
		out.fields = append(out.fields, one)
	}
	if !tagged {
		return nil
	}
	return out
}

// flat are the fields of a struct and of those embedded in it.
func (a *types) flat(d *declared) (out []field) {
	for _, f := range d.fields {
		if f.name == "" {
			out = append(out, a.flat(a.named[f.kind.(*ast.Ident).Name])...)
			continue
		}
		out = append(out, f)
	}
	return out
}

// schema is that of a struct. Its members have the order of the fields.
func (a *types) schema(d *declared) object {
	var required []any
	var properties object
	fields := a.flat(d)
	for _, f := range fields {
		s := a.of(f.kind, f.omit && !d.body, d.body)
		for rule := range strings.FieldsSeq(f.schema) {
			s = s.ruled(rule)
		}
		if text := sentence(f.doc, f.goName, fields); text != "" {
			s = append(object{{"description", text}}, s...)
		}
		properties = append(properties, member{f.name, s})
		if !f.omit {
			required = append(required, f.name)
		}
	}
	about := sentence(ofPath.ReplaceAllString(d.doc, ""), d.name, fields)
	if d.body {
		about = strings.TrimSpace(about + " Unknown fields are refused.")
	}
	out := object{{"type", "object"}}
	if about != "" {
		out = append(object{{"description", about}}, out...)
	}
	if len(required) > 0 {
		out = append(out, member{"required", required})
	}
	if d.body {
		out = append(out, member{"additionalProperties", false})
	}
	return append(append(out, member{"properties", properties}), beyondTypes[d.name]...)
}

// of is the schema of a field's type. What is omitted when it is zero is never zero.
func (a *types) of(kind ast.Expr, omitted, body bool) object {
	switch kind := kind.(type) {
	case *ast.StarExpr:
		is := a.of(kind.X, false, body)
		switch {
		case omitted:
			return is
		case is[0].name == "type":
			return append(object{{"type", []any{is[0].value, "null"}}}, is[1:]...)
		}
		return object{{"anyOf", []any{is, object{{"type", "null"}}}}}
	case *ast.ArrayType:
		if e, ok := kind.Elt.(*ast.Ident); ok && e.Name == "byte" {
			return object{{"type", "string"}, {"contentEncoding", "base64"}}
		}
		is := object{{"type", "array"}}
		if omitted {
			is = append(is, member{"minItems", 1})
		}
		elt := kind.Elt
		if pointer, ok := elt.(*ast.StarExpr); ok { // none of a list is null
			elt = pointer.X
		}
		return append(is, member{"items", a.of(elt, false, body)})
	case *ast.MapType:
		if body {
			return object{{"$ref", "#/components/schemas/GivenKey"}}
		}
		return object{{"type", "object"}, {"additionalProperties", a.of(kind.Value, false, body)}}
	case *ast.SelectorExpr:
		return slices.Clone(ofOthers[kind.X.(*ast.Ident).Name+"."+kind.Sel.Name])
	case *ast.Ident:
		return a.ofName(kind.Name, omitted)
	}
	return nil
}

func (a *types) ofName(name string, omitted bool) object {
	least := 0
	if omitted {
		least = 1
	}
	switch name {
	case "string", "DecimalText":
		return object{{"type", "string"}}
	case "NumberText":
		return object{{"type", []any{"string", "number"}}}
	case "bool":
		if omitted {
			return object{{"const", true}}
		}
		return object{{"type", "boolean"}}
	case "int", "int32", "int64", "uint64":
		return object{{"type", "integer"}, {"minimum", least}}
	case "float64":
		return object{{"type", "number"}, {"minimum", 0}}
	}
	a.referred[name] = true
	return object{{"$ref", a.place(name)}}
}

// ofOthers are the schemas of types that other packages declare.
var ofOthers = map[string]object{
	"event.Micros":    {{"$ref", "#/components/schemas/Time"}},
	"event.Decimal":   {{"type", "number"}},
	"time.Time":       {{"type", "string"}, {"format", "date-time"}},
	"verdict.Verdict": {{"$ref", "verdict.schema.json"}},
	"json.RawMessage": {{"anyOf", []any{object{{"type", "string"}}, object{{"type", "object"}, {"additionalProperties", object{{"type", "string"}}}}}}}, // a permit's time, or times by key
	"verdict.Mode":    {{"enum", []any{"enforce", "shadow"}}},
}

// beyondTypes are the rules of structs that stand above their fields.
var beyondTypes = map[string]object{
	"Command": {{"anyOf", []any{object{{"required", []any{"key"}}},
		object{{"required", []any{"keys"}}, {"properties", object{{"command", object{{"const", "unblock"}}}}}}}}},
	"ResentLetter": {{"minProperties", 1}, {"maxProperties", 1}},
}

// byHand are schemas that accept other forms of JSON than their types write.
var byHand = object{
	{"GivenKey", object{{"description", "An object, or one text: uid=42 attrs.campaign=summer"}, {"anyOf", []any{
		object{{"type", "string"}, {"minLength", 1}},
		object{{"type", "object"}, {"minProperties", 1}, {"additionalProperties", object{{"type", "string"}, {"minLength", 1}}}}}}}},
	{"Time", object{{"description", "RFC 3339 in UTC; null if there is none."}, {"type", []any{"string", "null"}}, {"format", "date-time"}}},
}

// object is a JSON object whose members have an order.
type object []member

type member struct {
	name  string
	value any
}

// ruled is the schema with a rule of the tag: enum=a|b, or a keyword with its value, or without, to drop it.
func (o object) ruled(rule string) object {
	keyword, text, _ := strings.Cut(rule, "=")
	var value any = text
	if n := json.Number(text); text != "" && strings.Trim(text, "-0123456789") == "" {
		value = n
	}
	o = slices.DeleteFunc(o, func(m member) bool {
		return m.name == keyword || (keyword == "enum" || keyword == "const") && (m.name == "type" || m.name == "minimum")
	})
	switch {
	case keyword == "enum":
		var values []any
		for one := range strings.SplitSeq(text, "|") {
			values = append(values, one)
		}
		value = values
	case text == "":
		return o
	case text == "true":
		value = true
	}
	return append(o, member{keyword, value})
}

// ofPath begins the comments of what crosses a path: the description of the path says the same.
var ofPath = regexp.MustCompile(`^\w+ is the (answer|body) (to|of) [A-Z]+ [^ .,:]+(, and to POST [^ .,:]+)?[.,:]\s*`)

var goWords = regexp.MustCompile(`\b(NoTime|nil|[A-Z]\w+)\b`)

// sentence is a comment as a description: without the name that it begins with, and with names as JSON has them.
func sentence(comment, name string, fields []field) string {
	comment = strings.Join(strings.Fields(comment), " ")
	if rest, ok := strings.CutPrefix(comment, name+" "); ok {
		comment = strings.TrimPrefix(strings.TrimPrefix(rest, "is "), "are ")
	}
	if comment == "" {
		return ""
	}
	inJSON := map[string]string{"NoTime": "null", "nil": "null"}
	for _, f := range fields {
		inJSON[f.goName] = f.name
	}
	comment = goWords.ReplaceAllStringFunc(comment, func(word string) string {
		if is, ok := inJSON[word]; ok {
			return is
		}
		return word
	})
	first := []rune(comment)
	if word, _, _ := strings.Cut(comment, " "); !strings.HasSuffix(word, ":") && word != "null" { // else it is a value
		first[0] = unicode.ToUpper(first[0])
	}
	return strings.TrimSuffix(string(first), ".") + "."
}

// part are the structs that one refers to, itself among them.
func (a *types) part(root string) map[string]bool {
	was := a.referred
	defer func() { a.referred = was }()
	found := map[string]bool{}
	for next := []string{root}; len(next) > 0; {
		found[next[0]], a.referred = true, map[string]bool{}
		a.schema(a.named[next[0]])
		next = next[1:]
		for name := range a.referred {
			if !found[name] {
				next = append(next, name)
			}
		}
	}
	return found
}

// embeddedOnly reports whether a struct is part of others, and by itself nothing.
func (a *types) embeddedOnly(d *declared) bool {
	return !a.referred[d.name] && slices.ContainsFunc(a.all, func(other *declared) bool {
		return slices.ContainsFunc(other.fields, func(f field) bool {
			is, ok := f.kind.(*ast.Ident)
			return ok && f.name == "" && is.Name == d.name
		})
	})
}

// sorted are the schemas of some structs by name, in the order of names.
func sorted(schemas map[string]object) (out object) {
	for _, name := range slices.Sorted(maps.Keys(schemas)) {
		out = append(out, member{name, schemas[name]})
	}
	return out
}
