package rules

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
)

// limits reads a rule's limit, or its stacked limits.
func (c *ruleReader) limits() {
	inherited := windowFields{c.o}
	stacked := c.o.Get("limits")
	if stacked == nil {
		if !c.o.Has("limits") {
			if !c.o.Has("limit") {
				c.Fail(c.o.Node, "", "a rule needs `limit`")
			}
			c.limit(c.o, c.r.Name, slices.Concat(inherited, c.defaults.window), inherited)
		}
		return
	}
	for _, f := range limitFields {
		if n := c.o.Get(f.name); n != nil {
			c.Fail(n, "put it into the list too", "a rule has `%s` or `limits`, not both", f.name)
		}
	}
	if stacked.Kind != yaml.SequenceNode || len(stacked.Content) == 0 {
		c.Fail(stacked, "as in limits: [{name: burst, limit: 5, per: 1s}, …]", "limits is a list of limits, not %s", emptyOr(stacked))
		return
	}
	names := map[string]int{}
	for _, n := range c.Items(stacked) {
		o, ok := limitPlace.object(c.File, n)
		if !ok {
			continue
		}
		if !o.Has("limit") {
			c.Fail(o.Node, "", "a limit needs `limit`")
		}
		name, ok := c.compiler.name(o.Get("name"), "a limit's name")
		if line, twice := names[name]; ok && twice {
			c.Fail(o.Get("name"), "", "this rule has a limit named %q already, on line %d", name, line)
		}
		names[name] = n.Line
		own := windowFields{o}
		c.limit(o, c.r.Name+"/"+name, slices.Concat(own, inherited, c.defaults.window), own)
	}
}

func emptyOr(n *yaml.Node) string {
	if n.Kind == yaml.SequenceNode {
		return "an empty list"
	}
	return document.Describe(n)
}

// limit reads one limit.
func (c *ruleReader) limit(o *document.Object, name string, w, own windowFields) {
	before := c.Mistakes()
	lr := &limitReader{compiler: c.compiler, l: &Limit{Rule: c.r, Name: name, Limit: Unlimited, Warn: c.r.warn}, o: o, w: w, own: own}
	c.limitAt[lr.l] = o.At("limit")
	readFields(limitFields, lr, o)
	if lr.window() && c.Mistakes() == before && lr.l.Limit != Unlimited {
		lr.checkStrict()
		checkNotices(lr)
		lr.add(lr.l)
		lr.ownCandidate()
	}
}

// checkNotices reports notices of a limit that has no shares.
func checkNotices(c *limitReader) {
	if l := c.l; len(l.Warn) > 0 && !l.Window.Kind.HasRate() && l.largestLive() == 0 {
		c.Fail(c.o.At("limit"), "leave it out: nothing is a share of 0", "a limit of 0 gives no notices, and the rule has `warn`")
	}
}

// add adds a limit that was read to its rule and to the set.
func (c *limitReader) add(l *Limit) {
	if l.Rule.beforehand() {
		c.addBeforehand(l)
		return
	}
	if err := l.Window.Validate(); err != nil {
		c.Fail(cmp.Or(c.own.get("resolution"), c.w.get("per")), "", "%s", strings.ReplaceAll(err.Error(), "windows: ", ""))
		return
	}
	l.Index = len(c.set.Limits)
	l.Grain = l.PerMin / 60
	if grain := windowKinds[l.Window.Kind].grain; grain != nil {
		l.Grain = grain(&l.Window)
	}
	l.Grain = max(l.Grain, minGrain)
	l.Hash = sectionHash(l)
	if other := c.set.byHash.of(l.Hash); other != nil && c.Mistakes() == 0 {
		c.Fail(c.o.Node, "rename one of them", "the counters of %q and %q have one name in the state", l.Name, other.Name)
	}
	c.set.byHash.put(l.Hash, l)
	l.formers = formerSections(l)
	for _, f := range l.formers {
		c.set.byHash.put(f.hash, l)
	}
	c.warnHeavy(l)
	r := l.Rule
	r.Limits = append(r.Limits, l)
	c.set.Limits = append(c.set.Limits, l)
}

// warnHeavy warns of an API of which a single event is over the limit.
func (c *limitReader) warnHeavy(l *Limit) {
	if l.Rule.Count != CountEvents {
		return
	}
	for _, a := range l.Rule.match.apis {
		if weight := a.weight * l.Rule.match.byOutcome.before(""); event.One.TimesInt(weight) > l.threshold() && l.threshold() > 0 && !l.Shadow {
			c.Warn(c.o.Get("limit"), "", "one event of %s weighs %d, more than the limit", a.pattern, weight)
			return
		}
	}
}

// ownCandidate makes a limit of its own of a candidate that can't share the live limit's counters: see
// windowKind.candidate. Nor can one whose verdicts empty the window: each of the two then empties its
// own.
func (c *limitReader) ownCandidate() {
	l, apart := c.l, windowKinds[c.l.Window.Kind].candidate
	if !l.Tries {
		return
	}
	try := &Limit{
		Rule: l.Rule, Name: l.Name + candidateSuffix, Limit: l.Candidate, Shadow: true, Window: l.Window,
		PerMin: l.PerMin, PerMax: l.PerMax, Debt: l.Debt, panes: l.panes,
	}
	switch {
	case apart != nil && apart(l, try, c.w):
	case l.Rule.Then.Reset:
		try.beside = l
	default:
		return
	}
	l.Candidate, l.Tries = 0, false
	c.add(try)
}
