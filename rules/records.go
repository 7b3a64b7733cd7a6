package rules

import (
	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/verdict"
)

// RecordKeys returns the record keys of all verdicts that a key can have by these rules: blocks,
// candidates' blocks, notices and quotas of the limits that count by its dimensions, and the block by
// a command. nil when key is not a key's text.
func (s *Set) RecordKeys(key []byte) (out [][]byte) {
	dims, err := event.ParseKey(key)
	if err != nil {
		return nil
	}
	add := func(name string, state verdict.State) {
		out = append(out, verdict.AppendRecordKey(nil, &verdict.Verdict{Rule: name, Key: dims, State: state}))
	}
	add(ManualRule, verdict.Block)
	for _, l := range s.Limits {
		if !l.Rule.Shape.fits(dims) {
			continue
		}
		add(l.Name, verdict.Block)
		if name := l.CandidateName(); name != "" {
			add(name, verdict.Block)
		}
		if len(l.Warn) > 0 {
			add(l.Name, verdict.Warn)
		}
		if l.Quota {
			add(l.Name, verdict.Left)
		}
	}
	return out
}

// Names reports whether a rule, or a limit as rule/limit, has this name. ManualRule is one.
func (s *Set) Names(name string) bool {
	if name == ManualRule {
		return true
	}
	for _, l := range s.Limits {
		if name == l.Name || name == l.Rule.Name {
			return true
		}
	}
	return false
}
