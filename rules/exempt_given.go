package rules

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// Giver names the person behind an exemption, and the reason. The zero value is that nobody knows.
type Giver struct {
	By, OnBehalfOf, Reason string
}

// How much of each text is kept in a key's state: the audit has all of it.
const (
	maxWhoNote    = 128
	maxReasonNote = 400
)

// note encodes it for a state; nil for nothing.
func (w *Giver) note() []byte {
	if *w == (Giver{}) {
		return nil
	}
	part := func(text string, most int) string {
		text = strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "")
		if len(text) > most {
			text = strings.ToValidUTF8(text[:most], "") // not half a character
		}
		return text
	}
	return []byte(part(w.By, maxWhoNote) + "\x00" + part(w.OnBehalfOf, maxWhoNote) + "\x00" + part(w.Reason, maxReasonNote))
}

// giverOf is the inverse.
func giverOf(note []byte) (w Giver) {
	parts := strings.SplitN(string(note), "\x00", 3)
	for i, to := range []*string{&w.By, &w.OnBehalfOf, &w.Reason} {
		if i < len(parts) {
			*to = parts[i]
		}
	}
	return w
}

// Given is an exemption that a command gave to a key.
type Given struct {
	Rule  string // the rule or limit; "": all
	Until event.Micros
	Giver
}

// Given are those of x that hold at a time.
func (x Exemptions) Given(at event.Micros) (list []Given) {
	for i := range x {
		if at < x[i].Until {
			list = append(list, Given{Rule: string(x[i].Rule), Until: x[i].Until, Giver: giverOf(x[i].Note)})
		}
	}
	return list
}

// Concerns reports whether it exempts from a limit.
func (g *Given) Concerns(l *Limit) bool {
	return g.Rule == "" || g.Rule == l.Rule.Name || g.Rule == l.Name
}

// Exempts are the exemptions of the rule file that exempt a key, its dimensions sorted, from a limit at a
// time.
func (l *Limit) Exempts(key []event.Dim, at event.Micros) (list []Exemption) {
	if !l.Rule.exemptKeys.covers(key, at) { // there may be many that do not
		return nil
	}
	for i := range l.Rule.exempt {
		if e := &l.Rule.exempt[i]; spares(e.Expires, at) && e.covers(key) {
			list = append(list, *e)
		}
	}
	return list
}

// covers reports whether it is about a key, its dimensions sorted.
func (e *Exemption) covers(key []event.Dim) bool {
	for _, d := range e.Key {
		if !slices.Contains(key, d) {
			return false
		}
	}
	if !e.ofNetwork() {
		return true
	}
	for _, d := range key {
		if in, ok := networkOf(d); ok && e.around(in) {
			return true
		}
	}
	return false
}

// around reports whether all of a network lies in its own.
func (e *Exemption) around(in netip.Prefix) bool {
	if e.list != nil {
		return e.list.Covers(in)
	}
	return e.In.Bits() <= in.Bits() && e.In.Contains(in.Addr())
}

// RuleExemption is an exemption of the rule file, and the rules that know it.
type RuleExemption struct {
	Exemption
	Rules []string
}

// Exemptions are all that the rule file has, in the order of the rules, those of several rules once.
func (s *Set) Exemptions() (list []RuleExemption) {
	place := map[string]int{}
	for _, r := range s.all {
		for i := range r.exempt {
			e := &r.exempt[i]
			id := fmt.Sprintf("%s\x00%v\x00%s\x00%d\x00%s", event.FormatKey(e.Key), e.In, e.List, e.Expires, e.Reason)
			if at, known := place[id]; known {
				list[at].Rules = append(list[at].Rules, r.Name)
				continue
			}
			place[id] = len(list)
			list = append(list, RuleExemption{*e, []string{r.Name}})
		}
	}
	return list
}
