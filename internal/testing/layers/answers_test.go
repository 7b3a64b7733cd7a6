package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
)

// copiesOfAPI are the structs that repeat one of the package api, by file, and why they do not use it.
var copiesOfAPI = map[string]string{
	"rules/explain.go":          "rules is pure, and api has a client; the aggregator converts one to the other, which compiles only while they are the same",
	"pipeline/admit/version.go": "applications link it: without the client",
}

// fewFields is the largest number of fields in common that makes no copy: by chance so many have the same names.
const fewFields = 3

// What crosses a process is declared in api, once: a copy of an answer that is decoded elsewhere misses the next field.
func TestAnswersAreDeclaredOnce(t *testing.T) {
	declared, elsewhere := map[string][]string{}, map[string][][]string{}
	eachFile(t, func(file string, content []byte) {
		if path.Ext(file) != ".go" || otherModule(file) {
			return
		}
		for name, fields := range structsOf(t, file, content) {
			if path.Dir(file) == "api" {
				declared[name] = fields
			} else if len(fields) > fewFields {
				elsewhere[file] = append(elsewhere[file], fields)
			}
		}
	})
	if len(declared) < 20 || len(elsewhere) < 5 {
		t.Fatalf("%d structs of api, %d files with others", len(declared), len(elsewhere))
	}
	found := map[string]bool{}
	for file, structs := range elsewhere {
		for _, fields := range structs {
			if of := copyOf(fields, declared); of != "" {
				if found[file] = true; copiesOfAPI[file] == "" {
					t.Errorf("%s: a struct with the fields %q is a part of api.%s: use that", file, fields, of)
				}
			}
		}
	}
	for file := range copiesOfAPI {
		if !found[file] {
			t.Errorf("%s has no copy of api any more: take it out of copiesOfAPI", file)
		}
	}
}

// copyOf names a struct of api that has all of these fields; "" if none has.
func copyOf(fields []string, declared map[string][]string) string {
	for name, all := range declared {
		if !slices.ContainsFunc(fields, func(f string) bool { return !slices.Contains(all, f) }) {
			return name
		}
	}
	return ""
}

// structsOf are the names in JSON of the fields of each struct in a file, by the struct's name or place.
func structsOf(t *testing.T, file string, content []byte) map[string][]string {
	t.Helper()
	files := token.NewFileSet()
	parsed, err := parser.ParseFile(files, file, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	all, names := map[string][]string{}, map[*ast.StructType]string{}
	ast.Inspect(parsed, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.TypeSpec:
			if is, ok := n.Type.(*ast.StructType); ok {
				names[is] = n.Name.Name
			}
		case *ast.StructType:
			name := names[n]
			if name == "" {
				name = files.Position(n.Pos()).String()
			}
			for _, f := range n.Fields.List {
				if f.Tag != nil {
					tag, _, _ := strings.Cut(reflect.StructTag(strings.Trim(f.Tag.Value, "`")).Get("json"), ",")
					if tag != "" && tag != "-" {
						all[name] = append(all[name], tag)
					}
				}
			}
		}
		return true
	})
	return all
}

func TestCopiesAreFound(t *testing.T) {
	declared := map[string][]string{"Answer": {"a", "b", "c", "d", "e"}}
	for src, want := range map[string]string{
		"type x struct { A int `json:\"a\"`; C int `json:\"e,omitempty\"` }":          "Answer",
		"var x struct { A int `json:\"a\"`; B int `json:\"f\"`; C int `json:\"-\"` }": "",
	} {
		for _, fields := range structsOf(t, "x.go", []byte("package x\n"+src)) {
			if got := copyOf(fields, declared); got != want {
				t.Errorf("%s: a copy of %q, want %q", src, got, want)
			}
		}
	}
}
