package rules

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/verdict"
)

func standardDefaults() defaults { return defaults{key: []string{"uid"}} }

// rule reads one rule and adds it, with its limits, to the set.
func (c *compiler) rule(n *yaml.Node) {
	before := c.Refused()
	if n.Kind == yaml.MappingNode {
		c.Rule = nameOf(n)
	}
	o, ok := rulePlace.object(c.File, n)
	if !ok {
		return
	}
	r := &Rule{Mode: c.defaults.mode, Shape: newShape(c.defaults.key)}
	rr := &ruleReader{compiler: c, r: r, o: o}
	rr.scope()
	rulePlace.read(rr, o)
	strictReader{rr}.strict()
	rr.then()
	rr.fuse()
	resetReader{rr}.reset()
	rr.limits()
	rr.told()
	rr.warnPartial()
	warnLimited(rr)
	strictReader{rr}.warnMemory()
	analyse(rr, before)
	c.addRule(r)
}

// addRule adds a rule to those of its kind.
func (c *compiler) addRule(r *Rule) {
	list := &c.set.Rules
	switch {
	case r.Scope == ScopeInstance:
		list = &c.set.Instance
	case r.underWay:
		list = &c.set.InFlight
	default:
		r.Shape = c.shape(r.Shape)
	}
	r.Index = len(*list)
	*list = append(*list, r)
	c.set.all = append(c.set.all, r)
}

// told takes `when` apart for events of denied requests: see Matcher.tells.
func (c *ruleReader) told() {
	if m := &c.r.match; m.when != nil && m.parts == nil && c.r.counted() && c.r.asks() {
		m.parts = c.parts(c.o.Get("when"))
	}
}

// nameOf finds the rule's name before anything of it is read, for the errors in it.
func nameOf(n *yaml.Node) string {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "name" && n.Content[i+1].Kind == yaml.ScalarNode {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// warnPartial warns that a check, which knows the API and the key but no more, blocks more than what the
// rule counts. Of an outcome no check could know, and nobody expects it to.
func (c *ruleReader) warnPartial() {
	r, o := c.r, c.o
	then := cmp.Or(o.Get("then"), c.defaults.then)
	if then == nil || r.Then.Action == verdict.ActLog || r.Then.None || !r.countsSome() {
		return
	}
	if slices.ContainsFunc(then.Content, func(n *yaml.Node) bool { return n.Value == "apis" }) { // the author has thought of it
		r.DeniesMore = r.coversCounted()
		return
	}
	hint := "name what is to be blocked in then: {apis: […]}, when it is something else: for example an API that services check for such requests alone"
	if r.Shape.hasAPI() {
		hint = ""
	}
	c.Warn(o.At("then"), hint,
		"the rule counts only some events of %s, but blocks all of it", strings.Join(r.APIs, ", "))
}

// maxOverlaps bounds how many pairs of patterns are compared for a warning.
const maxOverlaps = 100_000

// coversCounted reports whether verdicts cover some API that is counted. Names are looked up; of more pairs of
// patterns than anyone writes it is taken to hold.
func (r *Rule) coversCounted() bool {
	isPattern := func(api string) bool { return strings.Contains(api, "*") }
	names, patterns := map[string]bool{}, []string(nil)
	for _, api := range r.APIs {
		if names[api] = true; isPattern(api) {
			patterns = append(patterns, api)
		}
	}
	pairs := 0
	for _, a := range r.match.apis {
		with := patterns
		if isPattern(a.pattern) {
			with = r.APIs
		}
		if pairs += len(with); names[a.pattern] || pairs > maxOverlaps ||
			slices.ContainsFunc(with, func(covered string) bool { return overlap(a.pattern, covered) }) {
			return true
		}
	}
	return false
}

// readDefaults reads spec.defaults, so that a mistake in it is reported also without rules.
func (c *compiler) readDefaults(n *yaml.Node) {
	o, ok := defaultsPlace.inside(c, c.File, n)
	if !ok {
		return
	}
	if n := o.Get("then"); n != nil {
		(&ruleReader{compiler: c, r: &Rule{}, o: o}).then()
		c.defaults.then = n
	}
	c.defaults.window = windowFields{o}
}

// then reads what follows.
func (c *ruleReader) then() {
	t := &c.r.Then
	t.Action = verdict.ActBlock
	if c.r.beforehand() {
		t.None = true // the fields that need verdicts are refused: see strictReader.without
		return
	}
	n := cmp.Or(c.o.Get("then"), c.defaults.then)
	if n == nil || c.o.Spoilt("then") {
		if t.None = c.o.Has("warn") || c.r.Strict != nil; !c.o.Has("then") && !t.None {
			c.Fail(c.o.Node, "as in then: {block: 5m} or then: {block: until-reset}", "a rule needs `then`")
		}
		return
	}
	o, ok := thenPlace.object(c.File, n)
	if !ok {
		return
	}
	if t.None = !o.Has("block") && !o.Has("escalate") && c.o.Has("warn"); !t.None {
		c.howLong(o)
	}
	forget, escalate := o.Get("forget"), o.Get("escalate")
	switch {
	case forget != nil && escalate == nil:
		c.Fail(forget, "", "`forget` belongs to `escalate`")
	case escalate != nil && !o.Has("forget"):
		c.Fail(o.Node, "as in forget: 7d: after that the next verdict is a first one again", "`escalate` needs `forget`")
	}
	thenPlace.read(c, o)
	c.ownAPI(o)
}

// ownAPI refuses `apis` where a verdict covers its key's API.
func (c *ruleReader) ownAPI(then *document.Object) {
	if !c.r.Shape.hasAPI() || !then.Has("apis") {
		return
	}
	if c.o.Has("then") {
		c.Fail(then.At("apis"), "leave it out", "a rule that counts by api blocks the API that is over the limit, and has no `apis`")
		return
	}
	c.Fail(c.o.At("key"), "give the rule a `then` of its own, without `apis`",
		"a rule that counts by api blocks the API that is over the limit, and spec.defaults.then has `apis`")
}

// howLong reports when it is not said how long a verdict holds, by block or escalate, or said twice.
func (c *ruleReader) howLong(o *document.Object) {
	switch {
	case o.Get("block") != nil && o.Get("escalate") != nil:
		c.Fail(o.Get("escalate"), "the first step is the first block", "then has `block` or `escalate`, not both")
	case !o.Has("block") && !o.Has("escalate"):
		c.Fail(o.Node, "as in then: {block: 5m} or then: {block: until-reset}", "then needs `block`")
	}
}

// fuse reads the share of a partition's keys that a rule may block.
func (c *ruleReader) fuse() {
	n := c.o.Get("fuse")
	if n == nil || c.r.beforehand() {
		return
	}
	share, _, ok := c.percentage(n, "fuse")
	if ok && c.r.Then.None {
		c.Fail(n, "leave `fuse` out, or give the rule a `then`", "a rule that blocks nothing needs no fuse")
	}
	if dims := c.r.Shape.dims(); ok && len(dims) == 1 && (dims[0] == dimAll || dims[0] == dimAPI) {
		c.Fail(n, "leave `fuse` out", "a fuse is for rules with many keys, and this one counts by %s alone", dims[0])
	}
	c.r.Fuse = share
}
