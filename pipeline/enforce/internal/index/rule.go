package index

import (
	"strings"
	"sync/atomic"
)

// Rule holds the fields that all verdicts of one rule share, whatever their classes. It stays as long as the index
// does.
type Rule struct {
	Name   string
	Number int // from 0, in the order in which rules came

	WouldDeny atomic.Uint64 // checks that only its being in shadow mode allowed
}

const (
	// MaxRules bounds the rules that are told apart. An installation has fewer; a label of a metric may not grow
	// without bound.
	MaxRules = 1000
	// OtherRules is the name of all further ones.
	OtherRules = "(other)"
)

// Rules returns the rules that have or had verdicts, in the order of their numbers. The list is not to be
// changed.
func (x *Index) Rules() []*Rule {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.w.rules.list[:len(x.w.rules.list):len(x.w.rules.list)]
}

// rules are those of an index. Its caller holds the index's lock.
type rules struct {
	byName map[string]*Rule
	list   []*Rule
}

// of returns the rule of that name. It keeps nothing of the name's own memory.
func (r *rules) of(name string) *Rule {
	if rule := r.byName[name]; rule != nil {
		return rule
	}
	if len(r.list) >= MaxRules {
		name = OtherRules
		if rule := r.byName[name]; rule != nil {
			return rule
		}
	}
	rule := &Rule{Name: strings.Clone(name), Number: len(r.list)}
	if r.byName == nil {
		r.byName = map[string]*Rule{}
	}
	r.byName[rule.Name], r.list = rule, append(r.list, rule)
	return rule
}
