package grouprules

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tallygate/tallygate/api"
)

const two = `# A shop.
apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: shop}
spec:
  rules:
    # Both searches
    # share a counter.
    - name: searches   # of users
      match: {api: [a, b]}
      limit: 10
      per: 1m
      then: {block: 5m}

    - {name: orders, match: {api: order}, limit: 3,
       per: 1d, then: {block: 1h}}
  # Of the office.
  max_lateness: 2h
`

func TestARulesTextHasItsComments(t *testing.T) {
	p := Split(two)
	if got := p.Rules["searches"]; got.From != 7 || got.To != 13 || !strings.HasPrefix(got.Text, "    # Both searches\n") || !strings.HasSuffix(got.Text, "{block: 5m}") {
		t.Errorf("%+v", got)
	}
	if got := p.Rules["orders"]; got.From != 15 || got.To != 16 {
		t.Errorf("%+v", got)
	}
}

func TestOnlyWhatIsSaidDiffers(t *testing.T) {
	p := Split(two)
	other := Split(strings.NewReplacer("# of users", "# of all", "limit: 10\n", "limit:   10\n", "# Of the office.", "#").Replace(two))
	if p.Rules["searches"].Plain != other.Rules["searches"].Plain || p.Rest != other.Rest {
		t.Error("comments and layout are no difference")
	}
	other = Split(strings.NewReplacer("limit: 10\n", "limit: 11\n", "2h", "3h").Replace(two))
	if p.Rules["searches"].Plain == other.Rules["searches"].Plain || p.Rest == other.Rest || p.Rules["orders"].Plain != other.Rules["orders"].Plain {
		t.Error("numbers are a difference, of that rule and of the rest")
	}
}

// Each rule of the gallery is found, and what is none has no parts.
func TestSplitFindsEveryRule(t *testing.T) {
	files, _ := filepath.Glob("../../../testdata/rules/*.yaml")
	for _, path := range files {
		if strings.HasSuffix(path, "_test.yaml") {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), "- name: "); n == 0 || len(Split(string(text)).Rules) == 0 {
			t.Errorf("%s: %d names, %d rules", path, n, len(Split(string(text)).Rules))
		}
	}
	for _, text := range []string{"", "a: [", "[]", "spec: {rules: 1}", "spec: {rules: [1, {}]}", "a: &a [*a]"} {
		if got := Split(text); len(got.Rules) != 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}

func TestParse(t *testing.T) {
	v, err := Parse([]byte(`{"version":7,"by":"alice","reason":"ticket 1","from":5,"source":"x","files":{"a":"aGk="}}`), nil)
	if err != nil || v.Version != 7 || v.From != 5 || string(v.Files["a"]) != "hi" {
		t.Errorf("%+v, %v", v, err)
	}
	if text, err := Beside(v)("a"); err != nil || string(text) != "hi" {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := Beside(v)("/etc/passwd"); err == nil {
		t.Error("a file of this machine")
	}
	for _, bad := range []string{"", "{}", "[]", `{"version":1}`} {
		if _, err := Parse([]byte(bad), nil); err == nil {
			t.Errorf("%q is no version", bad)
		}
	}
	if _, err := Compile(&api.Rules{Version: 3, RuleRecord: api.RuleRecord{Source: "x"}}); err == nil || !strings.Contains(err.Error(), "version 3") {
		t.Errorf("%v", err)
	}
}

func TestAPIs(t *testing.T) {
	got := strings.Join(APIs(two+"    - {name: w, match: {api: {b: 5, c.*: 1}}, limit: 1}\n"), " ")
	if got == "" { // the list ends before max_lateness
		got = strings.Join(APIs(strings.Replace(two, "  # Of the office.\n  max_lateness: 2h\n", "    - {name: w, match: {api: {b: 5, c.*: 1}}, limit: 1}\n", 1)), " ")
	}
	if got != "a b c.* order" {
		t.Errorf("%s", got)
	}
	for _, text := range []string{"", "a: [", "spec: {rules: {}}", "spec: {rules: [1, {match: 1}]}"} {
		if got := APIs(text); len(got) != 0 {
			t.Errorf("%q: %v", text, got)
		}
	}
}
