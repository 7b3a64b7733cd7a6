package grouprules

import (
	"slices"

	"go.yaml.in/yaml/v4"
)

// APIs are the names and patterns of APIs whose events a file's rules count, sorted, each once.
func APIs(source string) (list []string) {
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(source), &doc); err != nil || len(doc.Content) == 0 {
		return nil
	}
	rules := field(field(doc.Content[0], "spec"), "rules")
	if rules == nil || rules.Kind != yaml.SequenceNode {
		return nil
	}
	for _, item := range rules.Content {
		api := field(field(item, "match"), "api")
		switch {
		case api == nil:
		case api.Kind == yaml.ScalarNode:
			list = append(list, api.Value)
		default:
			step := 1
			if api.Kind == yaml.MappingNode { // weights
				step = 2
			}
			for i := 0; i < len(api.Content); i += step {
				list = append(list, api.Content[i].Value)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}
