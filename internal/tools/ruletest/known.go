package ruletest

import (
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/tools/engine"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/document"
)

// verify checks the expectations against the rules. To expect no verdict of an unknown rule, or for a
// key that the rule does not count by, would always hold.
func (s *Suite) verify() {
	shapes := map[string]*rules.KeyShape{}
	var names []string
	byNobody := false             // a rule's key follows from an event alone
	silent := map[string]string{} // and what to do instead
	for _, set := range s.sets {
		for _, r := range set.All() {
			for _, l := range r.Limits {
				if l.Rule.Silent() {
					silent[l.Name] = "leave `rule` out, or give the rule a `then`"
					if l.InFlight || r.Scope == rules.ScopeInstance {
						silent[l.Name] = "leave `rule` out: events tell nothing of it"
					}
				}
			}
		}
		for _, shape := range set.Shapes {
			byNobody = byNobody || !slices.ContainsFunc(shape.Dims, func(name string) bool { return name != "api" && name != "all" })
		}
		for _, l := range set.Limits {
			for _, name := range []string{l.Name, l.CandidateName()} {
				if name == "" || shapes[name] != nil {
					continue
				}
				if shapes[name] = l.Rule.Shape; silent[name] == "" {
					names = append(names, name)
				}
			}
		}
	}
	for i := range s.File.Tests {
		for j := range s.File.Tests[i].Expect {
			x := &s.File.Tests[i].Expect[j]
			if x.nobody != nil && !byNobody {
				s.File.doc.Fail(x.nobody, "for example uid: u1", "the expectation names no uid, ip or attrs")
			}
			if hint := silent[x.Rule]; x.rule != nil && hint != "" && (x.Want != "" || shapes[x.Rule] == nil) {
				s.File.doc.Fail(x.rule, hint, "the rule %q issues no verdicts: it decides before the action", x.Rule)
				continue
			}
			s.verifyRule(x, shapes, names)
		}
	}
}

func (s *Suite) verifyRule(x *Expect, shapes map[string]*rules.KeyShape, names []string) {
	if x.rule == nil || x.Rule == "" {
		return
	}
	doc, shape := s.File.doc, shapes[x.Rule]
	if shape == nil {
		var own []string // each entry of limits has a name of its own
		for _, name := range names {
			if strings.HasPrefix(name, x.Rule+"/") {
				own = append(own, name)
			}
		}
		if len(own) > 0 {
			doc.Fail(x.rule, "their verdicts have the names "+document.OneOf(own), "the rule %q has several limits", x.Rule)
			return
		}
		doc.Fail(x.rule, "verdicts have the names "+document.OneOf(names), "unknown rule %q%s", x.Rule, document.DidYouMean(x.Rule, names))
		return
	}
	missing := slices.DeleteFunc(slices.Clone(shape.Dims), func(name string) bool { return engine.Dimension(&x.Who, name) != "" })
	if len(missing) > 0 {
		doc.Fail(x.rule, "add the missing dimensions", "%s counts by %s, but the expectation names no %s", x.Rule,
			strings.Join(shape.Dims, ", "), strings.Join(missing, ", "))
	}
}
