package cli

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules"
)

func ruleSchema(t *testing.T) *jsonschema.Schema {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(rules.Schema()))
	if err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	if err := c.AddResource("ruleset.json", doc); err != nil {
		t.Fatal(err)
	}
	s, err := c.Compile("ruleset.json")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// ruleFilesBelow are all rule files of the repository: those that compile, and those that do not.
func ruleFilesBelow(t *testing.T, root string) (good, bad []string) {
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".yaml" {
			return err
		}
		src, err := os.ReadFile(path)
		if err != nil || !strings.Contains(string(src), "kind: RuleSet") {
			return err
		}
		if _, err := rules.Compile(path, src); err != nil {
			bad = append(bad, path)
		} else {
			good = append(good, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return good, bad
}

// The schema accepts every rule file that compiles. It cannot know everything, but what it
// does refuse is wrong.
func TestSchemaAcceptsWhatCompiles(t *testing.T) {
	schema := ruleSchema(t)
	good, bad := ruleFilesBelow(t, "../../..")
	if len(good) < 5 || len(bad) < 30 {
		t.Fatalf("found %d good and %d bad rule files", len(good), len(bad))
	}
	for _, path := range good {
		if err := validate(t, schema, path); err != nil {
			t.Errorf("%s compiles, but: %v", path, err)
		}
	}
	refused := 0
	for _, path := range bad {
		if validate(t, schema, path) != nil {
			refused++
		}
	}
	if refused < len(bad)/2 {
		t.Errorf("the schema refuses %d of %d bad files: an editor helps with few mistakes", refused, len(bad))
	}
	t.Logf("%d good files; %d of %d bad ones refused", len(good), refused, len(bad))
}

func validate(t *testing.T, schema *jsonschema.Schema, path string) error {
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var root yaml.Node
	if err := yaml.Unmarshal(src, &root); err != nil {
		return err
	}
	timesAsText(&root)
	var doc any
	if err := root.Decode(&doc); err != nil {
		return err
	}
	return schema.Validate(doc)
}

// timesAsText has a plain time be text, as editors see it: YAML 1.2 has no type for it.
func timesAsText(n *yaml.Node) {
	if n.Tag == "!!timestamp" {
		n.Tag = "!!str"
	}
	for _, child := range n.Content {
		timesAsText(child)
	}
}

// An expiry without quotes was refused, since the test's YAML reader made a time of it.
func TestSchemaAcceptsAPlainExpiry(t *testing.T) {
	for _, expires := range []string{"2026-12-01T00:00:00Z", "'2026-12-01T00:00:00Z'", "2026-12-01T00:00:00+08:00"} {
		path := filepath.Join(t.TempDir(), "rules.yaml")
		src := "apiVersion: tallygate.dev/v1\nkind: RuleSet\nmetadata: {name: a}\nspec:\n  exempt: [{uid: 1, reason: a test, expires: " + expires +
			"}]\n  rules:\n    - {name: a, match: {api: a}, limit: 1, per: 1m, then: {block: 1m}}\n"
		if err := os.WriteFile(path, []byte(src), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := rules.Compile(path, []byte(src)); err != nil {
			t.Error(err)
		}
		if err := validate(t, ruleSchema(t), path); err != nil {
			t.Errorf("expires: %s: %v", expires, err)
		}
	}
}
