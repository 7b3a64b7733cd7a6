package logic

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Kinds is a set of kinds of values.
type Kinds uint8

// The kinds. Fails is no value: the term cannot be evaluated.
const (
	Nil Kinds = 1 << iota
	Text
	Number
	True
	False
	Other
	Fails

	Bool     = True | False
	Anything = Nil | Text | Number | Bool | Other | Fails
)

// Domain is a set of values. Bounds and lists are about the values of their kind only.
type Domain struct {
	Kinds Kinds

	Whole             bool // numbers have no fraction
	Low, High         float64
	LowOpen, HighOpen bool      // the bound itself is not in
	Numbers           []float64 // the only ones; nil: any
	NotNumbers        []float64

	Texts    []string // the only ones; nil: any
	NotTexts []string
	Tests    []Test // that texts pass
}

// Test is a condition on texts.
type Test struct {
	Op, With string
	Wanted   bool
	Holds    func(text string) bool // nil: it is not known
}

// OfKinds are all values of some kinds.
func OfKinds(k Kinds) Domain { return Domain{Kinds: k, Low: math.Inf(-1), High: math.Inf(1)} }

// Span are numbers from low to high, both in it.
func Span(low, high float64, whole bool) Domain {
	return Domain{Kinds: Number, Low: low, High: high, Whole: whole}
}

// Empty reports whether no value is in the domain.
func (d Domain) Empty() bool { return d.Kinds == 0 }

// And are the values that are in both.
func (d Domain) And(o Domain) Domain {
	d.Kinds &= o.Kinds
	d.Whole = d.Whole || o.Whole
	if o.Low > d.Low || o.Low == d.Low && o.LowOpen {
		d.Low, d.LowOpen = o.Low, o.LowOpen
	}
	if o.High < d.High || o.High == d.High && o.HighOpen {
		d.High, d.HighOpen = o.High, o.HighOpen
	}
	d.Numbers, d.Texts = common(d.Numbers, o.Numbers), common(d.Texts, o.Texts)
	d.NotNumbers = slices.Concat(d.NotNumbers, o.NotNumbers)
	d.NotTexts = slices.Concat(d.NotTexts, o.NotTexts)
	d.Tests = slices.Concat(d.Tests, o.Tests)
	if d.Kinds&Number != 0 && !d.someNumber() {
		d.Kinds &^= Number
	}
	if d.Kinds&Text != 0 && !d.someText() {
		d.Kinds &^= Text
	}
	return d
}

// common are the members of both lists, where nil is the list of all.
func common[T comparable](a, b []T) []T {
	switch {
	case a == nil:
		return b
	case b == nil:
		return a
	}
	in := make(map[T]bool, len(b))
	for _, v := range b {
		in[v] = true
	}
	out := []T{}
	for _, v := range a {
		if in[v] {
			out = append(out, v)
		}
	}
	return out
}

// maxTried bounds how many whole numbers are tried one by one.
const maxTried = 400

func (d *Domain) someNumber() bool {
	switch {
	case d.Numbers != nil:
		return slices.ContainsFunc(d.Numbers, d.hasNumber)
	case d.Low > d.High || d.Low == d.High && (d.LowOpen || d.HighOpen):
		return false
	case d.Low == d.High:
		return d.hasNumber(d.Low)
	case d.Whole && d.High-d.Low <= maxTried:
		for n := math.Ceil(d.Low); n <= d.High; n++ {
			if d.hasNumber(n) {
				return true
			}
		}
		return false
	}
	return true
}

func (d *Domain) hasNumber(n float64) bool {
	switch {
	case n < d.Low || n == d.Low && d.LowOpen, n > d.High || n == d.High && d.HighOpen, d.Whole && n != math.Trunc(n):
		return false
	}
	return !slices.Contains(d.NotNumbers, n)
}

func (d *Domain) someText() bool {
	if d.Texts != nil {
		return slices.ContainsFunc(d.Texts, d.hasText)
	}
	for i, a := range d.Tests {
		if a.Wanted && slices.ContainsFunc(d.Tests[:i], a.excludes) || slices.ContainsFunc(d.Tests[:i], func(b Test) bool { return b.Wanted && b.excludes(a) }) {
			return false
		}
	}
	return true
}

func (d *Domain) hasText(text string) bool {
	return !slices.Contains(d.NotTexts, text) && !slices.ContainsFunc(d.Tests, func(t Test) bool { return t.Holds != nil && t.Holds(text) != t.Wanted })
}

// excludes reports whether a text that passes one test, which is wanted, surely does not pass another.
func (t Test) excludes(o Test) bool {
	switch {
	case t.Op == o.Op && t.With == o.With:
		return !o.Wanted
	case !o.Wanted && o.Op == "contains":
		return t.Op != "matches" && t.Op != patternTest && strings.Contains(t.With, o.With)
	case t.Op == "startsWith" && o.Op == t.Op:
		if o.Wanted {
			return !strings.HasPrefix(t.With, o.With) && !strings.HasPrefix(o.With, t.With)
		}
		return strings.HasPrefix(t.With, o.With)
	case t.Op == "endsWith" && o.Op == t.Op:
		if o.Wanted {
			return !strings.HasSuffix(t.With, o.With) && !strings.HasSuffix(o.With, t.With)
		}
		return strings.HasSuffix(t.With, o.With)
	}
	return false
}

// patternTest is the Op of a test that a name fits one of some patterns.
const patternTest = "fits"

// Fits is the test that a text fits one of some patterns.
func Fits(patterns string, holds func(text string) bool) Test {
	return Test{Op: patternTest, With: patterns, Wanted: true, Holds: holds}
}

// values adds all values of the domain as text; false when there are too many to list.
func (d *Domain) values(out map[string]bool) bool {
	if d.Kinds&(Other|Fails) != 0 || d.Kinds&Text != 0 && d.Texts == nil || d.Kinds&Number != 0 && d.Numbers == nil {
		return false
	}
	if d.Kinds&Text != 0 {
		for _, text := range d.Texts {
			if d.hasText(text) {
				out[text] = true
			}
		}
	}
	if d.Kinds&Number != 0 {
		for _, n := range d.Numbers {
			if d.hasNumber(n) {
				out[strconv.FormatFloat(n, 'f', -1, 64)] = true
			}
		}
	}
	out["true"] = out["true"] || d.Kinds&True != 0
	out["false"] = out["false"] || d.Kinds&False != 0
	for _, word := range []string{"true", "false"} {
		if !out[word] {
			delete(out, word)
		}
	}
	return true
}
