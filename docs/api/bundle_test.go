package apidocs_test

import (
	"encoding/json"
	"strings"
	"testing"

	apidocs "github.com/tallygate/tallygate/docs/api"
)

// A document in one piece needs no other file, and all that it refers to is in it.
func TestBundlesAreWhole(t *testing.T) {
	for _, name := range []string{apidocs.Enforcer, apidocs.Aggregator} {
		text, err := apidocs.Bundle(name)
		if err != nil {
			t.Fatal(err)
		}
		var doc map[string]any
		if err := json.Unmarshal(text, &doc); err != nil {
			t.Fatal(err)
		}
		there, refs := map[string]bool{}, map[string]string{}
		walk(doc, "", func(at string, node map[string]any) {
			there[at] = true
			if ref, ok := node["$ref"].(string); ok {
				refs[at] = ref
			}
		})
		verdicts := 0
		for at, ref := range refs {
			if where, ok := strings.CutPrefix(ref, "#"); !ok || !there[where] {
				t.Errorf("%s%s: %s leads nowhere", name, at, ref)
			}
			if strings.HasPrefix(ref, "#/components/schemas/Verdict") {
				verdicts++
			}
		}
		if verdicts < 3 || !there["/components/schemas/Problem/properties/detail"] {
			t.Errorf("%s has %d references to verdicts of %d", name, verdicts, len(refs))
		}
	}
}
