package rules

import (
	"fmt"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/windows"
)

// windowKind is how one kind of window is read from a rule file. What its counters can do windows.Kind
// and windows.Spec say.
type windowKind struct {
	doc    string   // half a sentence
	fields []string // of a rule, besides `per` and `window`

	// read reads the fields of a limit's window; false when there is a mistake that leaves none.
	read func(c *limitReader) bool

	// hash is what gives the counters their meaning. They are called by it in states: counters with
	// another text start empty.
	hash func(w *windows.Spec) string

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
	},
	windows.Calendar: {
		doc:    "the civil hour, day, week, month or year",
		fields: []string{"timezone", "week_starts"},
		read:   (*limitReader).calendar,
		hash:   calendarHash,
	},
	windows.Sliding: {
		doc:       "the last `per`, at every event",
		fields:    []string{"resolution"},
		read:      (*limitReader).sliding,
		hash:      func(w *windows.Spec) string { return fmt.Sprintf("sliding %d %t %d", w.Per, w.Exact, w.Resolution) },
		former:    slidingFormer,
		candidate: slidingCandidate,
	},
	windows.Session: {
		doc:    "events less than `gap` apart",
		fields: []string{"gap"},
		read:   (*limitReader).session,
		hash:   func(w *windows.Spec) string { return fmt.Sprintf("session %d", w.Gap) },
	},
	windows.Bucket: {
		doc:       "`limit` per `per`, `burst` at once",
		fields:    []string{"burst", "debt"},
		read:      (*limitReader).bucket,
		hash:      func(w *windows.Spec) string { return fmt.Sprintf("bucket %d", w.Per) }, // the level goes on at another rate
		candidate: bucketCandidate,
	},
}

// eachKind goes through all kinds.
func eachKind(yield func(windows.Kind) bool) {
	for kind := windows.Tumbling; int(kind) < len(windowKinds) && yield(kind); kind++ {
	}
}

func (c *limitReader) tumbling() bool {
	if !c.length() {
		return false
	}
	s, w := &c.l.Window, c.w
	if w["offset"] != nil {
		if offset, ok := c.duration(w["offset"], "offset"); ok {
			if offset >= s.Per {
				c.Fail(w["offset"], "windows repeat every "+scalar.FormatDuration(s.Per), "offset is shorter than per")
			}
			s.Offset = offset
		}
	}
	const week = 7 * event.Day
	if s.Per%week == 0 && s.Offset == 0 {
		c.Warn(w["per"], "offset: 4d starts them on Mondays, and window: calendar with per: week follows a timezone",
			"%s tumbling windows start on Thursdays at 00:00 UTC", scalar.FormatDuration(s.Per))
	}
	return true
}

// session reads a session's gap.
func (c *limitReader) session() bool {
	if c.own["per"] != nil {
		c.Fail(c.own["per"], "a session ends `gap` after its last event", "a session window has no `per`")
	}
	if c.w["gap"] == nil {
		if !c.o.Has("gap") {
			c.Fail(c.o.Node, "as in gap: 30m: events less than that apart are one session", "a session window needs `gap`")
		}
		return false
	}
	gap, ok := c.duration(c.w["gap"], "gap")
	l := c.l
	l.Window.Gap, l.PerMin, l.PerMax = gap, gap, gap
	return ok
}
