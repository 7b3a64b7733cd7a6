package rules

import (
	"fmt"
	"hash/maphash"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/rules/when"
	"github.com/tallygate/tallygate/verdict"
)

// Vocabulary lists the APIs and attributes that a set declares. It is immutable and may be used by many goroutines.
// Nothing is counted otherwise for it.
type Vocabulary struct {
	apis     []string // names and patterns, sorted; nil: any API
	names    map[string]bool
	patterns apiNode[int]
	attrs    when.Attrs // nil: any attribute
}

// Vocabulary returns the set's declarations, nil without any.
func (s *Set) Vocabulary() *Vocabulary { return s.vocabulary }

// HasAPI reports whether events may have a name, or a name of a pattern.
func (v *Vocabulary) HasAPI(pattern string) bool {
	if v == nil || v.apis == nil || pattern == "*" || v.names[pattern] {
		return true
	}
	if !strings.Contains(pattern, "*") {
		return len(v.patterns.find(nil, pattern)) > 0
	}
	return slices.ContainsFunc(v.apis, func(declared string) bool { return overlap(declared, pattern) })
}

// overlap reports whether two patterns have a name in common.
func overlap(a, b string) bool {
	if !strings.Contains(a, "*") {
		return verdict.MatchAPI(b, a)
	}
	if !strings.Contains(b, "*") {
		return verdict.MatchAPI(a, b)
	}
	headA, _, _ := strings.Cut(a, "*")
	headB, _, _ := strings.Cut(b, "*")
	if shared := min(len(headA), len(headB)); headA[:shared] != headB[:shared] {
		return false
	}
	known := make([]int8, (len(a)+1)*(len(b)+1)) // of what is left of both; 0: not known yet
	var from func(i, j int) bool
	from = func(i, j int) (both bool) {
		switch {
		case i == len(a)-1 && a[i] == '*', j == len(b)-1 && b[j] == '*':
			return true // it takes all that the other has left
		case i == len(a) && j == len(b):
			return true
		}
		at := &known[i*(len(b)+1)+j]
		if *at != 0 {
			return *at > 0
		}
		switch {
		case i < len(a) && a[i] == '*':
			both = from(i+1, j) || j < len(b) && b[j] != '.' && from(i, j+1)
		case j < len(b) && b[j] == '*':
			both = from(i, j+1) || i < len(a) && a[i] != '.' && from(i+1, j)
		default:
			both = i < len(a) && j < len(b) && a[i] == b[j] && from(i+1, j+1)
		}
		if *at = -1; both {
			*at = 1
		}
		return both
	}
	return from(0, 0)
}

// APIMistake says why no rule file can name an API or a pattern, "" when it can.
func APIMistake(pattern string) string {
	problem, _ := scalar.APIMistake(pattern)
	return problem
}

// Mismatch is an event's contradiction to the vocabulary, without the value.
type Mismatch struct {
	What string // one of the Mismatch constants
	Name string // of the API, or of the attribute; OtherNames
}

// What a Mismatch is about.
const (
	MismatchAPI   = "api"   // the API is not declared
	MismatchAttr  = "attr"  // the attribute is not
	MismatchType  = "type"  // the attribute is of another type
	MismatchValue = "value" // its value is not in the list
)

// OtherNames stands for all names beyond the first MaxMismatchNames: names come from callers.
const (
	OtherNames       = "(other)"
	MaxMismatchNames = 100 // of each What
	maxMismatchName  = 64  // bytes
)

// VocabularyCheck compares events with a vocabulary. Each goroutine has one of its own; it allocates only for names
// that it has not met.
type VocabularyCheck struct {
	*Vocabulary

	// AllNames says that names are told as they are, and all of them: for events that are written by hand.
	AllNames bool

	seed  maphash.Seed
	slots []knownAPI // by a hash of the API's name
	found []apiEntry[int]
	told  map[string]map[string]string // that were told, by What
}

// knownAPI remembers whether an API is declared; names that share a slot take turns.
type knownAPI struct {
	api []byte
	has bool
}

// NewCheck returns a VocabularyCheck; nil where nothing is declared.
func (v *Vocabulary) NewCheck() *VocabularyCheck {
	if v == nil {
		return nil
	}
	return &VocabularyCheck{Vocabulary: v, seed: maphash.MakeSeed(), slots: make([]knownAPI, apiSlots), told: map[string]map[string]string{}}
}

// Event appends what an event contradicts. An attribute that is empty is absent.
func (c *VocabularyCheck) Event(dst []Mismatch, e *event.Event) []Mismatch {
	if !c.hasAPI(e.API) {
		dst = append(dst, c.mismatch(MismatchAPI, e.API))
	}
	if c.attrs == nil {
		return dst
	}
	for i := range e.Attrs {
		a := &e.Attrs[i]
		declared := c.attrs[a.Name]
		switch {
		case a.Value.Text == "":
		case declared == nil:
			dst = append(dst, c.mismatch(MismatchAttr, a.Name))
		case !declared.Fits(a.Value.Kind):
			dst = append(dst, c.mismatch(MismatchType, a.Name))
		case declared.Values != nil && !declared.Has(a.Value.Text):
			dst = append(dst, c.mismatch(MismatchValue, a.Name))
		}
	}
	return dst
}

func (c *VocabularyCheck) hasAPI(api string) bool {
	if c.apis == nil || c.names[api] {
		return true
	}
	slot := &c.slots[maphash.String(c.seed, api)%uint64(len(c.slots))]
	if string(slot.api) != api {
		slot.api = append(slot.api[:0], api...)
		c.found = c.patterns.find(c.found[:0], api)
		slot.has = len(c.found) > 0
	}
	return slot.has
}

// mismatch is one whose name outlives the event.
func (c *VocabularyCheck) mismatch(what, name string) Mismatch {
	if c.AllNames {
		return Mismatch{what, name}
	}
	names := c.told[what]
	if told, ok := names[name]; ok {
		return Mismatch{what, told}
	}
	if len(names) >= MaxMismatchNames {
		return Mismatch{what, OtherNames}
	}
	if names == nil {
		names = map[string]string{}
		c.told[what] = names
	}
	told := shortName(name)
	names[strings.Clone(name)] = told
	return Mismatch{what, told}
}

// Explain describes an event's mismatch, with a guess at what was meant.
func (v *Vocabulary) Explain(m Mismatch, e *event.Event) (problem, hint string) {
	if m.What == MismatchAPI {
		return v.unknownAPI(m.Name, when.DidYouMean, v.likeName)
	}
	a := v.attrs[m.Name]
	if a == nil {
		return v.attrs.Unknown(m.Name, when.DidYouMean)
	}
	value, _ := e.Attr(m.Name)
	problem, hint = a.Impossible(m.Name, value.Text, when.DidYouMean)
	if m.What == MismatchType {
		kind := map[event.Kind]string{event.String: "text", event.Number: "a number", event.Bool: "true or false"}[value.Kind]
		problem = "attrs." + scalar.Shortened(m.Name) + " is " + a.String() + ", and here it is " + kind
	}
	return problem, hint
}

// Attr says in words what a declared attribute can be.
func (v *Vocabulary) Attr(name string) string { return v.attrs[name].String() }

// unknownAPI says that an API is not declared, with the one of some that was probably meant.
func (v *Vocabulary) unknownAPI(pattern string, guess when.Guess, candidates func(name string) []string) (problem, hint string) {
	what := "the API %q is not declared"
	if strings.Contains(pattern, "*") {
		what = "no API that is declared fits %q"
	}
	return fmt.Sprintf(what, scalar.Shortened(pattern)) + guess(pattern, func() []string { return candidates(pattern) }), "an API that there is has a line in spec.apis"
}

// like are the declared APIs, patterns with what stands in the place of their stars.
func (v *Vocabulary) like(name string) []string {
	out, own := slices.Clone(v.apis), strings.Split(name, ".")
	for i, declared := range out {
		parts := strings.Split(declared, ".")
		if len(own) < len(parts) {
			continue
		}
		for j, part := range parts {
			switch {
			case part != "*":
			case j == len(parts)-1:
				parts[j] = strings.Join(own[j:], ".")
			default:
				parts[j] = own[j]
			}
		}
		out[i] = strings.Join(parts, ".")
	}
	return out
}

// likeName is like without what is no name.
func (v *Vocabulary) likeName(name string) []string {
	return slices.DeleteFunc(v.like(name), func(api string) bool { return strings.Contains(api, "*") })
}

// shortName is a name as labels and log lines may have it.
func shortName(name string) string {
	name = strings.ToValidUTF8(name, string(utf8.RuneError))
	end := min(len(name), maxMismatchName)
	for end < len(name) && !utf8.RuneStart(name[end]) {
		end--
	}
	return strings.Clone(name[:end])
}
