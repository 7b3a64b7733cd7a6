package rules

import (
	"errors"
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/logic"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Settings of a set that doesn't say otherwise.
const (
	defaultMaxLateness = event.Hour
	defaultRecentIDs   = 64
	defaultRecentFor   = 10 * event.Minute
	maxRecentIDs       = 1024
)

// Compile turns a rule file's YAML into a Set. file is its name in errors; nothing is read
// from it. The error is an Errors: every mistake there is, in the order of the file.
//
// A source that names other files, as `exempt: {file: vip.yaml}` does, needs CompileWith.
func Compile(file string, src []byte) (*Set, error) {
	return CompileWith(file, src, func(string) ([]byte, error) { return nil, errNoFiles })
}

// ParseDuration reads a Prometheus duration, such as 30s, 1h30m or 7d: whole numbers with the units
// y (365d), w, d, h, m, s and ms, from long to short. 0 needs no unit.
func ParseDuration(s string) (event.Micros, error) { return scalar.ParseDuration(s) }

// ParseNumber reads a number that a limit may have, such as 100, 100k or 1MiB.
func ParseNumber(s string) (event.Decimal, error) {
	n, problem, hint := scalar.ParseNumber(scalar.PlainNumber(s))
	switch {
	case problem == "" && n == 0:
		return 0, errors.New("a limit, or what is granted, is above zero")
	case hint != "":
		problem += ": " + hint
	}
	if problem != "" {
		return 0, errors.New(problem)
	}
	return n, nil
}

// FormatDuration writes a duration as ParseDuration reads it: 90d, 1h30m. It is cut to milliseconds.
func FormatDuration(d event.Micros) string { return scalar.FormatDuration(d) }

// noRules is the name of the set without rules, which no file has: it is no good name.
const noRules = "(none)"

// None is the set without rules: for programs that need a set and judge nothing. A file may not be like that,
// since it would lift every block when its rules were lost by mistake.
func None() *Set {
	return &Set{
		Name: noRules, MaxLateness: defaultMaxLateness, RecentIDs: defaultRecentIDs, RecentFor: defaultRecentFor,
		Files: map[string][]byte{}, Hash: setHash(nil, nil),
	}
}

// CompileWith is Compile for sources that name other files, which read gets, each once.
func CompileWith(file string, src []byte, read func(name string) ([]byte, error)) (*Set, error) {
	return newCompiler(file, src, read).compile()
}

// CompileUntil is CompileWith for texts of strangers: stop is asked now and then, and its error, if it has
// one, is that of the compilation.
func CompileUntil(file string, src []byte, read func(name string) ([]byte, error), stop func() error) (*Set, error) {
	c := newCompiler(file, src, read)
	c.Stop = stop
	return c.compile()
}

func newCompiler(file string, src []byte, read func(name string) ([]byte, error)) *compiler {
	set, f := None(), document.New(file, src, vocabulary)
	return &compiler{
		File: f, vocabularyReader: vocabularyReader{File: f}, source: src, read: read, set: set,
		defaults: standardDefaults(), names: map[string]int{}, zones: scalar.Zones{},
		lists: &networkLists{byName: map[string]*networkList{}}, formulas: map[*yaml.Node]logic.Formula{},
		holdAt: map[*Rule]*yaml.Node{}, limitAt: map[*Limit]*yaml.Node{}, tiersAt: map[*Limit][]*yaml.Node{},
	}
}

func (c *compiler) compile() (*Set, error) {
	if !c.Parse(c.source) {
		return nil, c.Err()
	}
	if what := foreign(c.Root); what != "" {
		return nil, Errors{{File: c.Name, Line: 1, Column: 1, Message: what}}
	}
	c.FindInvisible()
	if o, ok := filePlace.inside(c, c.File, c.Root); ok && o.Get("spec") != nil {
		c.spec(o.Get("spec"))
	}
	if err := c.Ended(); err != nil {
		return nil, err
	}
	if err := c.Err(); err != nil {
		return nil, err
	}
	c.set.Hash = setHash(c.source, c.set.Files)
	c.set.index = indexAPIs(c.set.Rules)
	c.set.networks = c.lists.sets()
	c.set.finish()
	c.longHolds()
	c.set.Warnings, c.set.Outdated = c.Warnings(), c.Outdated()
	return c.set, nil
}

func (c *compiler) spec(n *yaml.Node) {
	o, ok := specPlace.inside(c, c.File, n)
	if !ok {
		return
	}
	c.declare(o, c.pattern)
	c.set.vocabulary = c.vocabulary
	if n := o.Get("defaults"); n != nil {
		c.readDefaults(n)
	}
	if n := o.Get("rules"); n != nil {
		c.rules(n)
	}
	if n := o.Get("exempt"); n != nil {
		c.exemptAll(n)
	}
	networkReader{c}.warnUnused()
}

func (c *compiler) rules(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		c.Fail(n, "each rule begins with `- name: …`", "rules is a list, not %s", document.Describe(n))
		return
	}
	if len(n.Content) == 0 {
		c.Refuse(c.At(n, "a rule begins with `- name: …`; one that is to deny nothing has mode: shadow", "rules is an empty list: nothing would be counted"))
	}
	for _, item := range c.Items(n) {
		if c.Rule = ""; !c.drafts.skips(item) {
			c.rule(item)
		}
	}
	c.Rule = ""
}
