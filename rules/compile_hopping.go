package rules

import (
	"fmt"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/windows"
)

// hopping reads how far apart windows begin.
func (c *limitReader) hopping() bool {
	if !c.length() {
		return false
	}
	n := c.w.get("every")
	if n == nil {
		if !c.o.Has("every") {
			c.Fail(c.o.Node, "as in per: 1h and every: 5m: one hour begins every five minutes", "a hopping window needs `every`")
		}
		return false
	}
	s := &c.l.Window
	every, ok := c.duration(n, "every")
	if s.Every = every; !ok || !c.hops(n, s.Per, every) {
		return false
	}
	c.offset(every, "every")
	if s.Distinct && c.l.largest() > windows.ExactDistinct*event.One {
		c.Fail(c.o.At("limit"), "use window: tumbling or calendar, which estimate greater counts",
			"a hopping window counts up to %d distinct values", windows.ExactDistinct)
	}
	return true
}

// hops reports windows that do not begin where others end, and too many of them.
func (c *limitReader) hops(n *yaml.Node, per, every event.Micros) bool {
	span := scalar.FormatDuration
	switch {
	case every > per:
		hint := ""
		if every%per == 0 {
			hint = fmt.Sprintf("did you mean per: %s and every: %s?", span(every), span(per))
		}
		c.Fail(n, hint, "every is at most per, %s", span(per))
	case per/every > windows.MaxHops:
		_, longer := divisors(per, windows.MaxHops)
		hint := fmt.Sprintf("write %s or more", span(longer))
		if longer == per {
			hint = "per has no divisor that is long enough: write another per, or window: tumbling"
		}
		c.Fail(n, hint, "every: %s makes %d windows of %s at once, more than %d",
			span(every), (per+every-1)/every, span(per), windows.MaxHops)
	case per%every != 0:
		shorter, longer := divisors(per, per/every)
		near := span(longer)
		if shorter > 0 {
			near = span(shorter) + " or " + near
		}
		less := per - per%every
		c.Fail(n, fmt.Sprintf("the nearest are every: %s, or per: %s or %s", near, span(less), span(less+every)),
			"per, %s, is not a multiple of every, %s", span(per), span(every))
	case per == every:
		c.Warn(n, "write window: tumbling, which is the same, or a shorter every", "windows of %s every %s do not overlap", span(per), span(every))
		return true
	default:
		return true
	}
	return false
}

// divisors are the longest divisor of per that is shorter than an n-th of it, and the shortest one that
// is not, of whole milliseconds; shorter is 0 when it would make too many windows.
func divisors(per, n event.Micros) (shorter, longer event.Micros) {
	divides := func(n event.Micros) bool { return per%n == 0 && per/n%event.Millisecond == 0 }
	for k := n; longer == 0; k-- {
		if divides(k) {
			longer = per / k
		}
	}
	for k := n + 1; shorter == 0 && k <= windows.MaxHops; k++ {
		if divides(k) {
			shorter = per / k
		}
	}
	return shorter, longer
}

// hoppingGrain: ends are where windows end. A grain that all of them are multiples of changes none.
func hoppingGrain(w *windows.Spec) event.Micros {
	a, b := w.Every, w.Offset
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
