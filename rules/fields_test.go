package rules

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/internal/testing/testrun"
)

const rulesPage = "../docs/rules.md"

// The page's tables of fields are made of the table of fields: `go test ./rules -run Tables -rewrite` writes them.
func TestTablesOfThePage(t *testing.T) {
	for name, table := range map[string]string{
		"file": fieldTable(
			fieldRows("", filePlace.docs()[:2]), fieldRows("metadata.", metadataPlace.docs()), fieldRows("spec.", specPlace.docs())),
		"rule": fieldTable(fieldRows("", rulePlace.docs())),
	} {
		testrun.Section(t, rulesPage, fmt.Sprintf("<!-- fields of a %s: written by a test of package rules -->\n", name), "<!-- end -->", table)
	}
}

func fieldTable(rows ...string) string {
	return "\n| field | meaning |\n|---|---|\n" + strings.Join(rows, "") + "\n"
}

func fieldRows(prefix string, fields []fieldDoc) string {
	var b strings.Builder
	for _, f := range fields {
		doc := f.sentence()
		if f.required {
			doc = "required; " + doc
		}
		fmt.Fprintf(&b, "| `%s%s` | %s |\n", prefix, f.name, doc)
	}
	return b.String()
}

// Whoever looks for a field finds it on the page.
func TestThePageNamesEachField(t *testing.T) {
	page, err := os.ReadFile(rulesPage)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range allPlaces {
		for _, f := range p.fields {
			if !regexp.MustCompile("[`.{ ]" + f.name + "[`:.]").Match(page) {
				t.Errorf("%s does not name `%s` of %s; its tables: go test ./rules -run Tables -rewrite", rulesPage, f.name, p.what)
			}
		}
	}
}

// Each field has a value that the schema knows, and each window field is one that some kind has.
func TestTheTableOfFieldsIsWhole(t *testing.T) {
	var schema struct {
		Defs map[string]any `json:"$defs"`
	}
	if err := json.NewDecoder(bytes.NewReader(Schema())).Decode(&schema); err != nil {
		t.Fatal(err)
	}
	for _, p := range allPlaces {
		for _, f := range p.fields {
			if f.doc == "" || f.name == "" {
				t.Errorf("%s: the field %q has no sentence", p.what, f.name)
			}
			if f.schema[0] != '{' && schema.Defs[f.schema] == nil {
				t.Errorf("%s: the schema has no definition %q, of `%s`", p.what, f.schema, f.name)
			}
		}
	}
	for kind := range eachKind {
		for _, name := range windowKinds[kind].fields {
			if !slices.ContainsFunc(windowDocs, func(d fieldDoc) bool { return d.name == name }) {
				t.Errorf("windowDocs has no `%s`, which %v windows have", name, kind)
			}
		}
	}
}
