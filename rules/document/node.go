package document

import (
	"fmt"

	"go.yaml.in/yaml/v4"
)

func isMerge(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!merge" }

// IsNull reports whether a value is absent, as behind `field:`.
func IsNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// Describe names a node's kind, for "… is a mapping, not …".
func Describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	case n.Kind == yaml.SequenceNode:
		return "a list"
	case IsNull(n):
		return "nothing"
	case len(n.Value) > 40:
		return "a text"
	}
	return fmt.Sprintf("%q", n.Value)
}
