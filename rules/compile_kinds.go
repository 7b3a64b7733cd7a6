package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/windows"
)

// windowKind reads one kind of window from a rule file. What its counters can do windows.Kind and windows.Spec say.
type windowKind struct {
	doc    string   // half a sentence
	fields []string // of a rule, besides `per` and `window`

	// read reads the fields of a limit's window; false when there is a mistake that leaves none.
	read func(c *limitReader) bool

	// hash names the meaning of the counters. They are called by it in states: counters with another text start
	// empty.
	hash func(w *windows.Spec) string

	// words say over which time a limit counts, behind the number.
	words func(w *windows.Spec) string

	// covers reports whether its windows, whenever they are asked, hold all that those of o do, which is of the same
	// kind; nil: nobody can tell.
	covers func(w, o *windows.Spec) bool

	// drifts: a late event may make one of two windows. No two limits can be compared then, and none can be strict.
	drifts bool

	// instead has hints for fields that the kind does not have, and people expect.
	instead map[string]string

	// grain is the unit to which the moving end of a quota is rounded up; nil: a sixtieth of the window.
	grain func(w *windows.Spec) event.Micros

	// former are other windows that the limit's counters may have been of, and that they are carried
	// over from; nil: none.
	former func(l *Limit) []windows.Spec

	// candidate makes try a limit of its own of a candidate that can't share the live limit's counters,
	// and tells whether it has to be; nil: it never has to.
	candidate func(l, try *Limit, w windowFields) bool
}

// windowKinds is the table of all kinds, and the only place in this package that tells them apart.
var windowKinds = [...]windowKind{
	windows.Tumbling: {
		doc:    "aligned to the Unix epoch plus `offset`",
		fields: []string{"offset"},
		read:   (*limitReader).tumbling,
		hash:   func(w *windows.Spec) string { return fmt.Sprintf("tumbling %d %d", w.Per, w.Offset) },
		words:  eachPer,
		covers: func(w, o *windows.Spec) bool { return w.Per%o.Per == 0 && (w.Offset-o.Offset)%o.Per == 0 },
	},
	windows.Calendar: {
		doc:    "the civil hour, day, week, month or year",
		fields: []string{"offset", "timezone", "week_starts", "anchor"},
		read:   (*limitReader).calendar,
		hash:   calendarHash,
		words:  calendarWords,
		covers: calendarCovers,
	},
	windows.Sliding: {
		doc:       "the last `per`, at every event",
		fields:    []string{"resolution"},
		read:      (*limitReader).sliding,
		hash:      func(w *windows.Spec) string { return fmt.Sprintf("sliding %d %t %d", w.Per, w.Exact, w.Resolution) },
		words:     func(w *windows.Spec) string { return "in any " + FormatDuration(w.Per) },
		former:    slidingFormer,
		candidate: slidingCandidate,
	},
	windows.Session: {
		doc:    "events less than `gap` apart",
		fields: []string{"gap"},
		read:   (*limitReader).session,
		hash:   func(w *windows.Spec) string { return fmt.Sprintf("session %d", w.Gap) },
		words:  func(w *windows.Spec) string { return "in a row, less than " + FormatDuration(w.Gap) + " apart" },
		drifts: true,
	},
	windows.Bucket: {
		doc:       "`limit` per `per`, `burst` at once",
		fields:    []string{"burst", "debt", "warm_up"},
		read:      (*limitReader).bucket,
		hash:      func(w *windows.Spec) string { return fmt.Sprintf("bucket %d", w.Per) }, // the level goes on at another rate
		words:     eachPer,
		candidate: bucketCandidate,
	},
	windows.Hopping: {
		doc:    "`per` long, and one begins every `every`",
		fields: []string{"every", "offset"},
		read:   (*limitReader).hopping,
		hash:   func(w *windows.Spec) string { return fmt.Sprintf("hopping %d %d %d", w.Per, w.Every, w.Offset) },
		words: func(w *windows.Spec) string {
			return "in " + FormatDuration(w.Per) + ", looked at every " + FormatDuration(w.Every)
		},
		grain: hoppingGrain,
	},
	windows.FromFirst: {
		doc:    "`per` from the first event that counts",
		read:   (*limitReader).length,
		hash:   func(w *windows.Spec) string { return fmt.Sprintf("from-first %d", w.Per) },
		words:  func(w *windows.Spec) string { return "in " + FormatDuration(w.Per) + " from the first event" },
		covers: func(w, o *windows.Spec) bool { return w.Per == o.Per }, // the two begin with the same events
		instead: map[string]string{
			"offset": "its windows begin with events",
			"gap":    "what ends some time after the last event is window: session",
		},
	},
}

func eachPer(w *windows.Spec) string { return "each " + FormatDuration(w.Per) }

// Over says over which time a limit counts, behind its number: in any 5m.
func Over(l *Limit) string {
	if l.InFlight {
		return "under way at once"
	}
	return windowKinds[l.Window.Kind].words(&l.Window)
}

// refundable are the kinds of which amounts can be taken back, in words.
func refundable() string {
	var names []string
	for kind := range eachKind {
		if (&windows.Spec{Kind: kind}).Refundable() {
			names = append(names, kind.String())
		}
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// eachKind goes through all kinds.
func eachKind(yield func(windows.Kind) bool) {
	for kind := windows.Tumbling; int(kind) < len(windowKinds) && yield(kind); kind++ {
	}
}

// window reads the fields of a limit's window; false when there is a mistake that leaves none.
func (c *limitReader) window() bool {
	s := &c.l.Window
	s.Kind, s.Lateness = windows.Sliding, c.set.MaxLateness
	if n := c.w.get("window"); n != nil {
		kind, ok := c.windowKind(n)
		if !ok || kind == 0 && n == c.defaults.window.get("window") { // refused there
			return false
		}
		s.Kind = kind
	}
	if s.Kind == 0 {
		return c.inFlight()
	}
	if c.l.Rule.Scope == ScopeInstance {
		s.Lateness = 0 // a process counts at its own clock, where nothing is late
	}
	s.Refunds = c.l.Rule.Refunds && c.l.Rule.Count != CountDistinct
	c.inapplicable(s.Kind)
	c.countable()
	return windowKinds[s.Kind].read(c)
}

// defaultWindow reads the window of spec.defaults.
func (c *compiler) defaultWindow(n *yaml.Node) {
	if kind, ok := c.windowKind(n); ok && kind == 0 {
		c.Fail(n, "write it in each rule that counts what is under way", "`defaults` can't have window: in-flight: what else a rule may say depends on it")
	}
}

// windowKind reads a kind of window; 0 is in-flight, which is none.
func (c *compiler) windowKind(n *yaml.Node) (windows.Kind, bool) {
	var names []string
	for kind := range eachKind {
		names = append(names, kind.String())
	}
	word, ok := c.Word(n, "window", append(names, inFlight)...)
	for kind := range eachKind {
		if ok && word == kind.String() {
			return kind, true
		}
	}
	return 0, ok
}

// inapplicable reports fields that the window does not have; 0 is in-flight.
func (c *limitReader) inapplicable(kind windows.Kind) {
	is := inFlight
	if kind != 0 {
		is = kind.String()
	}
	of := map[string][]string{}
	for other := range eachKind {
		for _, name := range windowKinds[other].fields {
			of[name] = append(of[name], other.String())
		}
	}
	for name, kinds := range of {
		if n := c.own.get(name); n != nil && !slices.Contains(kinds, is) {
			hint := "it belongs to window: " + strings.Join(kinds, " and ")
			if instead := windowKinds[kind].instead[name]; instead != "" {
				hint += "; " + instead
			}
			c.Fail(n, hint, "%s %s window has no `%s`", article(is), is, name)
		}
	}
}

func article(word string) string {
	if strings.ContainsRune("aeiou", rune(word[0])) {
		return "an"
	}
	return "a"
}

// countable reports counts and fields that a window can't have.
func (c *limitReader) countable() {
	l, o := c.l, c.o
	s, r := &l.Window, l.Rule
	distinct, rate := r.Count == CountDistinct, s.Kind.HasRate()
	switch {
	case r.Refunds && !s.Refundable():
		c.Fail(o.Node, "use "+refundable(), "a %v window has no refunds", s.Kind)
	case distinct && !s.Kind.CountsValues():
		c.Fail(o.Node, "use another window", "a %v can't count distinct values", s.Kind)
	case rate && len(l.Tiers) > 0:
		c.Fail(o.Get("tiers"), "write a rule for each tier, with `when`", "a %v has no `tiers`", s.Kind)
	case rate && l.Told != nil:
		c.Fail(o.Get("limit"), "write a rule for each rate, with `when`", "a %v's limit is a number", s.Kind)
	case rate && len(l.Warn) > 0:
		c.Fail(o.Node, "use another window, or a `candidate` with a lower limit", "a %v has no `warn`", s.Kind)
	}
	overrideFile{c}.check()
	checkGrants(c)
	s.Distinct = distinct
	s.Estimate = distinct && s.Estimates() && l.largest() > windows.ExactDistinct*event.One
	if s.Estimate {
		c.Warn(o.At("limit"), "", "above %d distinct values the count is an estimate (HyperLogLog): two of three are within %.1f%%, 19 of 20 within %.1f%%",
			windows.ExactDistinct, 100*windows.SketchError, 200*windows.SketchError)
	}
}
