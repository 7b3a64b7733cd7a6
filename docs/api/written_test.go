package apidocs_test

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	apidocs "github.com/tallygate/tallygate/docs/api"
	"github.com/tallygate/tallygate/internal/testing/testrun"
)

// The schemas of what the package api declares are written from its types, with -rewrite.
func TestSchemasAreWrittenFromTypes(t *testing.T) {
	all := typesOf(t)
	all.place = func(name string) string { return "#/$defs/" + name }
	status := all.part("Status")
	inStatus := map[string]object{}
	for name := range status {
		if name != "Status" {
			inStatus[name] = all.schema(all.named[name])
		}
	}
	root := all.schema(all.named["Status"])
	text := written{json: true}.members(append(root, member{"$defs", sorted(inStatus)}), "  ")
	testrun.Section(t, apidocs.Status, "\"title\": \"Status\",\n", ",\n  \"examples\": [", text)

	all.place = func(name string) string {
		switch {
		case name == "Status":
			return apidocs.Status
		case status[name]:
			return apidocs.Status + "#/$defs/" + name
		}
		return "#/components/schemas/" + name
	}
	all.referred = map[string]bool{}
	inAPI, ofEnforcer := map[string]object{}, map[string]object{}
	for _, m := range byHand {
		inAPI[m.name] = m.value.(object)
	}
	for range 2 { // the second time it is known which are referred to
		for _, d := range all.all {
			of := inAPI
			if d.enforcer {
				of = ofEnforcer
			}
			if delete(of, d.name); !status[d.name] && !all.embeddedOnly(d) {
				of[d.name] = all.schema(d)
			}
		}
	}
	toTheEnd(t, apidocs.Aggregator, "\n  schemas:\n", written{apart: true}.members(sorted(inAPI), "    "))
	toTheEnd(t, apidocs.Enforcer, "\n    # Below: written from the types of api.\n", written{apart: true}.members(sorted(ofEnforcer), "    "))
	toTheEnd(t, apidocs.Topics, "\n    ruleSet:\n", written{}.members(all.schema(all.named["RuleRecord"]), "      "))
}

// toTheEnd is testrun.Section for what stands last in a file.
func toTheEnd(t *testing.T, path, begin, got string) {
	t.Helper()
	page, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	at := strings.LastIndex(string(page), begin)
	if at < 0 {
		t.Fatalf("%s has no %q", path, begin)
	}
	testrun.Golden(t, path, string(page[:at])+begin+got+"\n")
}

// written are the forms in which schemas are written. What fits into a line is one.
type written struct {
	json  bool // else YAML
	apart bool // with a line between the members
}

const lineWidth = 160

// members are those of an object, a line or more each.
func (w written) members(o object, indent string) string {
	var lines []string
	for _, m := range o {
		head := indent + w.text(m.name) + ":"
		line := w.line(m.value)
		deep, nested := m.value.(object)
		list, many := m.value.([]any)
		inner := written{json: w.json}
		switch {
		case !w.apart && len(head)+1+len(line) <= lineWidth || !nested && (!many || w.json):
			lines = append(lines, head+" "+line)
		case many:
			for _, one := range list {
				head += "\n" + indent + "  - " + w.line(one)
			}
			lines = append(lines, head)
		case w.json:
			lines = append(lines, head+" {\n"+inner.members(deep, indent+"  ")+"\n"+indent+"}")
		default:
			lines = append(lines, head+"\n"+inner.members(deep, indent+"  "))
		}
	}
	between := "\n"
	if w.json {
		between = ",\n"
	} else if w.apart {
		between = "\n\n"
	}
	return strings.Join(lines, between)
}

// line is a value on one line.
func (w written) line(v any) string {
	switch v := v.(type) {
	case object:
		var parts []string
		for _, m := range v {
			parts = append(parts, w.text(m.name)+": "+w.line(m.value))
		}
		if w.json {
			return "{ " + strings.Join(parts, ", ") + " }"
		}
		return "{" + strings.Join(parts, ", ") + "}"
	case []any:
		var parts []string
		for _, one := range v {
			parts = append(parts, w.line(one))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case string:
		return w.text(v)
	}
	return fmt.Sprint(v)
}

// plain is text that YAML takes as it is, within a line too.
var plain = regexp.MustCompile(`^(\$ref|[A-Za-z/]([A-Za-z0-9 ._;()'/-]*[A-Za-z0-9._;()'/-])?)$`)

func (w written) text(s string) string {
	if !w.json && plain.MatchString(s) && s != "null" && s != "true" && s != "false" {
		return s
	}
	var b strings.Builder
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(s) // it is a string
	return strings.TrimSuffix(b.String(), "\n")
}
