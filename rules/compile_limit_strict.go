package rules

import (
	"cmp"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
)

// inFlight names a window that is none in rule files: actions under way now.
const inFlight = "in-flight"

// inFlight reads a limit on what is under way.
func (c *limitReader) inFlight() bool {
	l, r := c.l, c.l.Rule
	if l.InFlight = true; !r.beforehand() {
		c.Fail(c.w.get("window"), "write strict: {hold: 15m}: so long an action may take; or scope: instance for what is under way in one process",
			"window: in-flight counts what is under way, which no event says")
		return false
	}
	if n := c.own.get("per"); n != nil {
		c.Fail(n, "leave it out: what is under way counts as long as it is", "an in-flight limit has no `per`")
	}
	c.inapplicable(0)
	return true
}

// addBeforehand adds a limit that only ever sees requests: it has no counters in states.
func (c *limitReader) addBeforehand(l *Limit) {
	r := l.Rule
	if !l.InFlight {
		if err := l.Window.Validate(); err != nil {
			c.Fail(cmp.Or(c.own.get("resolution"), c.w.get("per")), "", "%s", strings.ReplaceAll(err.Error(), "windows: ", ""))
			return
		}
	}
	l.Index, l.Hash = len(r.Limits), sectionHash(l)
	if !l.InFlight {
		l.formers = formerSections(l)
	}
	c.warnHeavy(l)
	r.Limits = append(r.Limits, l)
}

// checkStrict reports limits that can't be strict, or counted in a process.
func (c *limitReader) checkStrict() {
	l, r := c.l, c.l.Rule
	if n := c.w.get("debt"); n != nil && r.Scope == ScopeInstance {
		c.Fail(n, "leave it out: a request that finds no token is not let in", "a bucket with scope: instance is never overdrawn")
	}
	if r.Strict == nil {
		return
	}
	switch at := cmp.Or(c.w.get("window"), c.o.Node); {
	case r.underWay && !l.InFlight:
		c.Fail(at, "its permits are held and given back in another way", "an in-flight limit that is strict stands in a rule of its own")
	case windowKinds[l.Window.Kind].drifts:
		c.Fail(at, "use window: sliding with the gap as `per`", "a session can't be strict: a late event may join two, and then there are more in it than were let in")
	}
}

// atMost reports a number of a strict limit that is too large for the scripts in Redis.
func (c *limitReader) atMost(n *yaml.Node, number event.Decimal) {
	if c.l.Rule.Strict != nil && number > MaxStrict {
		c.Fail(n, "count in a larger unit, as in GB instead of bytes", "a strict limit is at most %v, not %v", MaxStrict, number)
	}
}

// warmUp reads how a bucket gets to its rate after it was idle.
func (c *limitReader) warmUp(n *yaml.Node) bool {
	if n == nil {
		return true
	}
	if c.l.Rule.Scope != ScopeInstance {
		c.Fail(n, "it protects a process that has just begun, with scope: instance", "only a bucket with scope: instance has `warm_up`")
		return false
	}
	_, ok := warmUpPlace.inside(c, c.File, n)
	return ok && c.l.WarmUp.Time > 0 && c.l.WarmUp.From > 0
}

func (c *limitReader) warmUpFrom(n *yaml.Node) {
	share, _, ok := c.percentage(n, "from")
	if ok && share >= event.One {
		c.Fail(n, "as in from: 25%, or leave `warm_up` out", "from: with the whole rate there is nothing to warm up")
		return
	}
	c.l.WarmUp.From = share
}
