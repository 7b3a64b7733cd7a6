package rules

import (
	"cmp"
	"regexp"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// bucket reads a bucket's rate, and how much it holds. What its level is compared with is the burst.
func (c *limitReader) bucket() bool {
	if !c.length() {
		return false
	}
	l, w := c.l, c.w
	if !hasRate(c) {
		return false
	}
	l.Window.Limit, l.Burst = l.Limit, l.Limit
	if n := w.get("burst"); n != nil && !(draftReader{c}).burst(n) {
		l.Burst = c.number(n, "burst", l.Rule)
		c.atMost(n, l.Burst)
	}
	if l.Burst > 0 && l.Burst < event.One {
		c.Fail(cmp.Or(w.get("burst"), w.get("per")), "as in burst: 1", "a bucket's burst is at least 1, not %v", l.Burst)
	}
	if !c.debt(w.get("debt")) || !c.warmUp(w.get("warm_up")) {
		return false
	}
	l.bound()
	return l.Burst > 0
}

// hasRate reports a bucket that would never drain.
func hasRate(c *limitReader) bool {
	zero := c.l.Limit == 0 || c.l.Tries && c.l.Candidate == 0
	if zero {
		c.Fail(cmp.Or(c.o.At("limit"), c.w.get("window")), "window: tumbling with limit: 0 allows nothing", "a bucket's limit is a rate, and 0 would never give a token")
	}
	return !zero
}

// debt reads by how much a bucket may be overdrawn, in bursts.
func (c *limitReader) debt(n *yaml.Node) bool {
	l := c.l
	if l.Debt = event.One; n == nil {
		return true
	}
	text, ok := c.Text(n, "debt")
	if !ok {
		return false
	}
	var problem, hint string
	if l.Debt = 0; !zeroNumber.MatchString(text) {
		if l.Debt, problem, hint = scalar.ParseNumber(scalar.PlainNumber(text)); problem != "" {
			c.Fail(n, hint, "debt: %s", problem)
			return false
		}
	}
	if l.Debt.Times(l.Burst) == 0 && !l.Rule.Then.reached() && !l.Rule.Then.None {
		c.Fail(n, "as in debt: 1, or at: reached", "debt: %s keeps the bucket's level from exceeding its burst, so that nothing would ever be blocked", text)
		return false
	}
	return true
}

var zeroNumber = regexp.MustCompile(`^0+(\.0*)?$`)

// bucketCandidate: what is in a bucket depends on its rate.
func bucketCandidate(l, try *Limit, w windowFields) bool {
	if try.Window.Limit, try.Burst = l.Candidate, l.Candidate; w.get("burst") != nil {
		try.Burst = l.Burst
	}
	try.bound()
	return true
}

// bound sets how far a bucket's level may go, and how long that takes to drain.
func (l *Limit) bound() {
	l.Window.Most = l.Burst.Plus(l.Debt.Times(l.Burst))
	l.PerMax = scalar.MaxSpan
	if l.Window.Limit > 0 {
		l.PerMax = min(l.PerMax, max(l.Window.Per, l.passesIn(l.Window.Most)))
	}
}
