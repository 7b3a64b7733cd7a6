package ruletest

import (
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/document"
)

// verifyEvents refuses events that contradict what the rules declare: services do not emit such, so that a
// test with them shows nothing.
func (s *Suite) verifyEvents() {
	for _, set := range s.sets {
		v := set.Vocabulary()
		check := v.NewCheck()
		if check == nil {
			continue
		}
		check.AllNames = true
		seen := map[*document.Object]bool{} // an item may stand for many events
		var found []rules.Mismatch
		for i := range s.File.Tests {
			for j := range s.File.Tests[i].Events {
				e := &s.File.Tests[i].Events[j]
				if seen[e.item] {
					continue
				}
				seen[e.item] = true
				found = check.Event(found[:0], &e.Event)
				for _, m := range found {
					problem, hint := v.Explain(m, &e.Event)
					s.File.doc.Fail(e.place(m), hint+" of "+set.Name, "%s", problem)
				}
			}
		}
	}
}

// place finds the node of a mismatch.
func (e *Event) place(m rules.Mismatch) *yaml.Node {
	if m.What == rules.MismatchAPI {
		return e.item.At("api")
	}
	attrs := e.item.At("attrs")
	for i := 0; i+1 < len(attrs.Content); i += 2 {
		if attrs.Content[i].Value != m.Name {
			continue
		}
		if m.What == rules.MismatchAttr {
			return attrs.Content[i]
		}
		return attrs.Content[i+1]
	}
	return attrs
}
