package cli

import (
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
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(RuleSchema))
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
	good, bad := ruleFilesBelow(t, "../..")
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
	var doc any
	if err := yaml.Unmarshal(src, &doc); err != nil {
		return err
	}
	return schema.Validate(doc)
}
