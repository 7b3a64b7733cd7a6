package auditlog

import (
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/event"
)

// Filter selects entries. The zero value wants all.
type Filter struct {
	Types    []string    // of one of these types; none: of any
	Key      []event.Dim // about keys with these dimensions; they may have others
	Rule     string      // about this rule, or one of its limits
	By       string      // whose By or For contains this text, in whatever case
	From, To time.Time   // from From, before To; zero is no bound

	// KeyOnly leaves out what names no key, where Key is given: without it such an entry counts as about all.
	KeyOnly bool
}

// Wants reports whether an entry is wanted.
func (f *Filter) Wants(e *Entry) bool {
	at := e.At.Time()
	switch {
	case !f.From.IsZero() && at.Before(f.From), !f.To.IsZero() && !at.Before(f.To):
		return false
	case len(f.Types) > 0 && !slices.Contains(f.Types, e.Type):
		return false
	case f.By != "" && !contains(e.By, f.By) && !contains(e.For, f.By):
		return false
	}
	return RuleIs(e.Rule, f.Rule) && f.wantsKey(e)
}

func contains(text, part string) bool {
	return strings.Contains(strings.ToLower(text), strings.ToLower(part))
}

// wantsKey reports whether an entry is about keys that are wanted: one that names none may be about all.
func (f *Filter) wantsKey(e *Entry) bool {
	if len(e.Key) == 0 && len(e.Each) == 0 {
		return len(f.Key) == 0 || !f.KeyOnly
	}
	return len(e.Key) > 0 && Has(e.Key, f.Key) || slices.ContainsFunc(e.Each, func(key []event.Dim) bool { return Has(key, f.Key) })
}

// Has reports whether a key has all of these dimensions.
func Has(key, dims []event.Dim) bool {
	for _, d := range dims {
		if !slices.Contains(key, d) {
			return false
		}
	}
	return true
}

// RuleIs reports whether rule, as verdicts have it, is the wanted rule or one of its limits; "" is any.
func RuleIs(rule, want string) bool {
	return want == "" || rule == want || strings.HasPrefix(rule, want+"/")
}
