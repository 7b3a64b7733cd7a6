package shard

import (
	"encoding/hex"
	"fmt"
	"slices"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

// Rules is a version of the group's rules. Number is 0 for a set that is in no topic.
type Rules struct {
	Number    int64
	Published uint64 // what those who ask for permits know it by
	Set       *rules.Set
}

func (r *Rules) hash() string { return hex.EncodeToString(r.Set.Hash[:]) }

// inUse is the version of the rules that the shard counts by, and all that follows from it.
type inUse struct {
	Rules
	matcher    *rules.Matcher
	stepper    *rules.Stepper
	permits    *rules.Permits         // nil: no rule is strict
	vocabulary *rules.VocabularyCheck // nil: none is declared

	exempt  exemptions          // that commands gave
	allowed map[string]struct{} // the keys that have limits or grants by commands, or had them lately
	scratch []byte              // a block in the making
}

// noteExemptions follows the exemptions in a key's state.
func (u *inUse) noteExemptions(key, state []byte) {
	u.note(key, state)
	u.useExemptions()
}

// note takes over what a key's state says of what commands gave it.
func (u *inUse) note(key, state []byte) {
	u.exempt.note(key, state)
	if rules.HasAllowances(state) {
		if u.allowed == nil {
			u.allowed = map[string]struct{}{}
		}
		u.allowed[string(key)] = struct{}{}
	} else {
		delete(u.allowed, string(key))
	}
}

// useExemptions has the stepper ask only where there is something to find: to ask costs every
// judged event.
func (u *inUse) useExemptions() {
	u.stepper.Exempt = nil
	if len(u.exempt.byKey) > 0 {
		u.stepper.Exempt = u.exempt.exempts
	}
}

// inForce returns a limit's verdict in force for a key at a time.
func (u *inUse) inForce(state, key []byte, at event.Micros, limit string) *verdict.Verdict {
	if len(state) == 0 {
		return nil
	}
	for _, e := range u.Set.Explain(state, key, at, "") {
		if e.Rule == limit {
			return e.Verdict
		}
	}
	return nil
}

// erased are the record keys of all that may be in the verdict topic about a key: of what its
// rules are now, and of what was in force.
func (u *inUse) erased(key []byte, changes []verdict.Verdict) [][]byte {
	out := u.Set.RecordKeys(key)
	for i := range changes {
		if !u.Set.Names(changes[i].Rule) {
			out = append(out, verdict.AppendRecordKey(nil, &changes[i]))
		}
	}
	return out
}

// exemptions are those that commands gave to keys with a uid. They hold for every key that has the
// same dimensions, and maybe others, as in a rule file; all of these are in one partition. Where
// they are kept is the states of the keys that the commands named: this only finds them.
type exemptions struct {
	byKey   map[string]rules.Exemptions // by a key's text
	choices [][]string                  // the choices of dimensions that keys in it have, or had
	alone   map[string]rules.Exemptions // of keys without a uid: each holds for its own key only
}

// note takes over what a key's state says.
func (x *exemptions) note(key, state []byte) {
	given := rules.ExemptionsOf(state)
	if len(given) == 0 {
		x.forget(key)
		return
	}
	dims, err := event.ParseKey(key)
	if err != nil {
		return
	}
	if !hasUID(dims) {
		if x.alone == nil {
			x.alone = map[string]rules.Exemptions{}
		}
		x.alone[string(key)] = given
		return
	}
	if x.byKey == nil {
		x.byKey = map[string]rules.Exemptions{}
	}
	x.byKey[string(key)] = given
	var names []string
	for _, d := range dims {
		names = append(names, d.Name)
	}
	if !slices.ContainsFunc(x.choices, func(c []string) bool { return slices.Equal(c, names) }) {
		x.choices = append(x.choices, names)
	}
}

func (x *exemptions) forget(key []byte) {
	delete(x.byKey, string(key))
	delete(x.alone, string(key))
}

// exempts reports whether a key, its dimensions sorted, is exempt under a limit at a time.
func (x *exemptions) exempts(l *rules.Limit, key []event.Dim, at event.Micros) (yes bool) {
	x.about(key, func(_ string, given rules.Exemptions) bool {
		yes = given.Spare(l, at)
		return !yes
	})
	return yes
}

// about calls f with what was given to keys whose dimensions a key has, and their texts, until f returns
// false.
func (x *exemptions) about(key []event.Dim, f func(of string, given rules.Exemptions) bool) {
	var text []byte
	for _, names := range x.choices {
		text = text[:0]
		for _, d := range key {
			if slices.Contains(names, d.Name) {
				text = event.AppendDim(text, d.Name, d.Value)
			}
		}
		if given, known := x.byKey[string(text)]; known && !f(string(text), given) {
			return
		}
	}
}

// with are those that hold for a key, its dimensions sorted, at a time.
func (x *exemptions) with(key []event.Dim, at event.Micros) (list []Exempted) {
	own := event.FormatKey(key)
	list = appendExempted(list, own, x.alone[own], at)
	x.about(key, func(of string, given rules.Exemptions) bool {
		list = appendExempted(list, of, given, at)
		return true
	})
	return list
}

func (x *exemptions) all(at event.Micros) (list []Exempted) {
	for _, by := range []map[string]rules.Exemptions{x.byKey, x.alone} {
		for key, given := range by {
			list = appendExempted(list, key, given, at)
		}
	}
	return list
}

// fromStrict is until when commands exempt a key from all of its strict limits; 0 for not at all.
func (x *exemptions) fromStrict(set *rules.Set, key string, state []byte) event.Micros {
	given := rules.ExemptionsOf(state)
	if len(given) == 0 && len(x.byKey) == 0 {
		return 0
	}
	dims, err := event.ParseKey([]byte(key))
	if err != nil {
		return 0
	}
	all := []rules.Exemptions{given}
	x.about(dims, func(_ string, one rules.Exemptions) bool {
		all = append(all, one)
		return true
	})
	return max(0, set.ExemptFrom(dims, all...))
}

// Exempted is a command's exemption: a key's text, and its terms.
type Exempted struct {
	Key string
	rules.Given
}

func appendExempted(list []Exempted, key string, given rules.Exemptions, at event.Micros) []Exempted {
	for _, g := range given.Given(at) {
		list = append(list, Exempted{key, g})
	}
	return list
}

func hasUID(key []event.Dim) bool {
	return slices.ContainsFunc(key, func(d event.Dim) bool { return d.Name == "uid" })
}

func unhex(dst []byte, text string) error {
	b, err := hex.DecodeString(text)
	if err != nil || len(b) != len(dst) {
		return fmt.Errorf("checkpoint record: what was judged: %q is no hash of %d bytes", text, len(dst))
	}
	copy(dst, b)
	return nil
}
