package apidocs_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/testing/apitest"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
)

// eachFile calls do with each description, as JSON has it.
func eachFile(t *testing.T, do func(name string, doc map[string]any)) {
	t.Helper()
	entries, err := apidocs.Files.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		doc, err := apitest.Load(e.Name())
		if err != nil {
			t.Fatal(err)
		}
		do(e.Name(), doc.(map[string]any))
	}
}

// walk calls do with each object in a document and where it is.
func walk(node any, at string, do func(at string, node map[string]any)) {
	switch node := node.(type) {
	case map[string]any:
		do(at, node)
		for name, v := range node {
			walk(v, at+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(name), do)
		}
	case []any:
		for i, v := range node {
			walk(v, fmt.Sprintf("%s/%d", at, i), do)
		}
	}
}

// Each schema is one, each reference leads somewhere, and nothing is without a value: that is what
// becomes of a text with a comma that lacks its quotes.
func TestDescriptionsAreWhole(t *testing.T) {
	found := 0
	places := map[string]map[string]bool{} // by file
	eachFile(t, func(name string, doc map[string]any) {
		places[name] = map[string]bool{"": true}
		walk(doc, "", func(at string, _ map[string]any) { places[name][at] = true })
	})
	eachFile(t, func(name string, doc map[string]any) {
		found++
		if strings.HasSuffix(name, ".json") {
			compiled(t, name)
		}
		walk(doc, "", func(at string, node map[string]any) {
			for key, v := range node {
				if v == nil {
					t.Errorf("%s%s: %q has no value", name, at, key)
				}
			}
			ref, ok := node["$ref"].(string)
			if !ok {
				return
			}
			file, where, _ := strings.Cut(ref, "#")
			if file == "" {
				file = name
			}
			if !places[file][where] {
				t.Errorf("%s%s: %s leads nowhere", name, at, ref)
			}
		})
	})
	if found != 10 {
		t.Errorf("%d descriptions", found)
	}
}

// What examples show is as described.
func TestExamplesAreAsDescribed(t *testing.T) {
	found := 0
	check := func(schema string, examples ...any) {
		t.Helper()
		s := compiled(t, schema)
		for _, e := range examples {
			found++
			if err := s.ValidateValue(e); err != nil {
				t.Errorf("%s: %v", schema, err)
			}
		}
	}
	eachFile(t, func(name string, doc map[string]any) {
		walk(doc, "", func(at string, node map[string]any) {
			if list, ok := node["examples"].([]any); ok {
				check(name+"#"+escape(at), list...)
			}
			if e, ok := node["example"]; ok {
				check(name+"#"+escape(at)+"/schema", e)
			}
		})
	})
	if found < 10 {
		t.Errorf("%d examples", found)
	}
}

func escape(at string) string {
	return strings.NewReplacer("%", "%25", "{", "%7B", "}", "%7D").Replace(at)
}

// routes are the patterns that a program's sources give to its mux, with the roles that they need.
func routes(t *testing.T, files ...string) map[string]string {
	t.Helper()
	pattern := regexp.MustCompile(`(?:HandleFunc|Handle|let)\("((?:[A-Z]+ )?/[^"]*)"(?:, access\.(\w+))?|"(POST /[^"]*)": s\.`)
	found := map[string]string{}
	for _, glob := range files {
		paths, err := filepath.Glob(glob)
		if err != nil || len(paths) == 0 {
			t.Fatal(glob, err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasSuffix(path, "_test.go") {
				continue
			}
			for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
				found[m[1]+m[3]] = strings.ToLower(m[2])
			}
		}
	}
	for _, private := range []string{"GET /metrics", "GET /debug/pprof/", "GET /debug/pprof/profile", "GET /debug/pprof/trace"} {
		delete(found, private) // of the metrics listener
	}
	return found
}

// Every path that a program serves is described, with the role that it needs, and no other one. The
// tests of the programs ask each.
func TestEveryPathIsDescribed(t *testing.T) {
	page := reference(t)
	for name, sources := range map[string][]string{
		apidocs.Aggregator: {"../../internal/programs/aggregator/*.go", "../../internal/run/ops/serve.go"},
		apidocs.Enforcer:   {"../../internal/programs/decision/*.go", "../../internal/programs/enforcer/*.go", "../../internal/run/ops/serve.go"},
	} {
		served := routes(t, sources...)
		if name == apidocs.Enforcer {
			served["/v1/ext-authz/{target}"] = "" // behind no mux, which would change paths
		}
		described := map[string]string{}
		for _, o := range apitest.Open(t, name).Operations() {
			pattern := o.Method + " " + o.Path
			if o.AnyMethod() {
				pattern = o.Path
			}
			described[pattern] = o.Role()
			heading, _, _ := strings.Cut(o.Path, "{")
			if !regexp.MustCompile(`(?m)^###? .*` + regexp.QuoteMeta(heading) + `(,|$)`).Match(page) {
				t.Errorf("%s: the reference has no heading with %s", name, heading)
			}
		}
		if want, got := slices.Sorted(maps.Keys(served)), slices.Sorted(maps.Keys(described)); !slices.Equal(want, got) {
			t.Errorf("%s: served are\n%q, described\n%q", name, want, got)
		}
		if name == apidocs.Aggregator && !maps.Equal(served, described) {
			t.Errorf("%s: the roles are\n%v, described\n%v", name, served, described)
		}
	}
}

// Every topic that is for other programs is described.
func TestEveryTopicIsDescribed(t *testing.T) {
	doc, err := apitest.Load(apidocs.Topics)
	if err != nil {
		t.Fatal(err)
	}
	var described []string
	for _, c := range doc.(map[string]any)["channels"].(map[string]any) {
		described = append(described, strings.Replace(c.(map[string]any)["address"].(string), "{prefix}", "p", 1))
	}
	slices.Sort(described)
	names := topics.NamesOf("p")
	want := []string{names.Events, names.Verdicts, names.Audit, names.DeadLetters, names.Rules}
	slices.Sort(want)
	if !slices.Equal(described, want) {
		t.Errorf("described are %q, want %q", described, want)
	}
}
