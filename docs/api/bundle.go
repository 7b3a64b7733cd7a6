package apidocs

import (
	"encoding/json"
	"fmt"
	"path"
	"strings"

	"go.yaml.in/yaml/v4"
)

// components are the names that the schemas have in a document in one piece.
var components = map[string]string{Event: "Event", Verdict: "Verdict", Audit: "AuditEntry", DeadLetter: "DeadLetter", Problem: "Problem", Status: "Status"}

// Bundle returns an OpenAPI document in one piece, as JSON: the files that it refers to are among its
// components.
func Bundle(name string) ([]byte, error) {
	var doc map[string]any
	text, err := Files.ReadFile(name)
	if err == nil {
		err = yaml.Unmarshal(text, &doc)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	wanted := map[string]bool{}
	rewrite(doc, "", wanted)
	for added := true; added; { // what is added may refer to more
		added = false
		for file := range wanted {
			if _, there := schemas[components[file]]; there {
				continue
			}
			var schema map[string]any
			if text, err = Files.ReadFile(file); err == nil {
				err = json.Unmarshal(text, &schema)
			}
			if err != nil {
				return nil, fmt.Errorf("read %s: %w", file, err)
			}
			delete(schema, "$schema")
			rewrite(schema, components[file], wanted)
			schemas[components[file]], added = schema, true
		}
	}
	return json.Marshal(doc)
}

// rewrite makes references to files references to components, and notes the files. In a file that
// becomes a component, "" for none, references within it begin there.
func rewrite(node any, component string, files map[string]bool) {
	switch node := node.(type) {
	case map[string]any:
		if ref, ok := node["$ref"].(string); ok {
			file, where, _ := strings.Cut(ref, "#")
			switch {
			case file != "":
				files[file] = true
				node["$ref"] = "#" + path.Join("/components/schemas", components[file], where)
			case component != "":
				node["$ref"] = "#" + path.Join("/components/schemas", component, where)
			}
		}
		for _, v := range node {
			rewrite(v, component, files)
		}
	case []any:
		for _, v := range node {
			rewrite(v, component, files)
		}
	}
}
