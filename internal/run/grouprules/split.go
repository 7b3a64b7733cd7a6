package grouprules

import (
	"strings"

	"go.yaml.in/yaml/v4"
)

// Parts are a rule file's text, taken apart. What is no rule file has none.
type Parts struct {
	Rules map[string]Part // by name
	Rest  string          // what stands outside of the rules, without its comments and its layout
}

// Part is a rule's text.
type Part struct {
	From, To int    // its lines in the file, from 1
	Text     string // these lines, with the comments in and above them
	Plain    string // what it says, without comments and layout: to compare
}

// Split takes a file's text apart.
func Split(source string) Parts {
	p := Parts{Rules: map[string]Part{}}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(source), &doc); err != nil || len(doc.Content) == 0 {
		return p
	}
	list := field(field(doc.Content[0], "spec"), "rules")
	lines := strings.Split(source, "\n")
	if list != nil && list.Kind == yaml.SequenceNode {
		for i, item := range list.Content {
			name := field(item, "name")
			if name == nil {
				continue
			}
			from, to := above(lines, item.Line), 0
			if i+1 < len(list.Content) {
				to = max(above(lines, list.Content[i+1].Line)-1, item.Line)
			} else {
				to = end(lines, item)
			}
			for to > item.Line && strings.TrimSpace(lines[to-1]) == "" {
				to--
			}
			p.Rules[name.Value] = Part{from, to, strings.Join(lines[from-1:to], "\n"), plain(item)}
		}
		list.Content = nil
	}
	p.Rest = plain(doc.Content[0])
	return p
}

// field is the value of a mapping's field; nil when there is none.
func field(n *yaml.Node, name string) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			return n.Content[i+1]
		}
	}
	return nil
}

// above is the first line of the comments that stand right above a line; the line itself without any.
func above(lines []string, line int) int {
	for line > 1 && strings.HasPrefix(strings.TrimSpace(lines[line-2]), "#") {
		line--
	}
	return line
}

// end is the last line of the last rule: what is indented deeper than its dash belongs to it.
func end(lines []string, item *yaml.Node) int {
	dash := strings.Index(lines[item.Line-1], "-")
	last := item.Line
	for i := item.Line; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		switch {
		case text == "":
		case len(lines[i])-len(text) <= dash:
			return last
		default:
			last = i + 1
		}
	}
	return last
}

// plain writes a node as it is understood.
func plain(n *yaml.Node) string {
	var b strings.Builder
	write(&b, n)
	return b.String()
}

func write(b *strings.Builder, n *yaml.Node) {
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		b.WriteString(map[bool]string{true: "{", false: "["}[n.Kind == yaml.MappingNode])
		for _, c := range n.Content {
			write(b, c)
			b.WriteByte(',')
		}
		b.WriteByte(']')
	case yaml.AliasNode:
		b.WriteString("*" + n.Value)
	default:
		b.WriteString(n.ShortTag() + " " + n.Value)
	}
	if n.Anchor != "" {
		b.WriteString("&" + n.Anchor)
	}
}
