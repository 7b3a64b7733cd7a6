package rules

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// What a rule file says at its top.
const (
	apiVersion = "tallygate.dev/v1"
	kind       = "RuleSet"
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

// noRules is the name of the set without rules, which no file has: it is no good name.
const noRules = "(none)"

// None is the set without rules: for programs that need a set and judge nothing. A file may not be like that,
// since it would lift every block when its rules were lost by mistake.
func None() *Set {
	return &Set{
		Name: noRules, MaxLateness: defaultMaxLateness, RecentIDs: defaultRecentIDs, RecentFor: defaultRecentFor,
		Files: map[string][]byte{}, byHash: map[SectionHash]*Limit{}, Hash: setHash(nil, nil),
	}
}

// CompileWith is Compile for sources that name other files, which read gets, each once.
func CompileWith(file string, src []byte, read func(name string) ([]byte, error)) (*Set, error) {
	return newCompiler(file, src, read).compile(src)
}

func newCompiler(file string, src []byte, read func(name string) ([]byte, error)) *compiler {
	return &compiler{
		src: newSource(file, src), read: read, defaults: standardDefaults(),
		names: map[string]int{}, zones: scalar.Zones{}, glued: map[*yaml.Node]bool{},
	}
}

func (c *compiler) compile(src []byte) (*Set, error) {
	root, bad := parseYAML(src, c.src)
	if bad != nil {
		return nil, Errors{bad}
	}
	if what := foreign(root); what != "" {
		return nil, Errors{{File: c.src.file, Line: 1, Column: 1, Message: what}}
	}
	c.refuse(c.src.invisible(root, !c.published)...)
	c.set = &Set{
		MaxLateness: defaultMaxLateness,
		RecentIDs:   defaultRecentIDs,
		RecentFor:   defaultRecentFor,
		Files:       map[string][]byte{},
		byHash:      map[SectionHash]*Limit{},
	}
	c.file(c.resolve(root))
	if len(c.errs) > 0 {
		return nil, c.errs.sorted()
	}
	c.set.Hash = setHash(src, c.set.Files)
	c.set.index = newAPIIndex(c.set.Rules)
	c.set.finish()
	c.set.Warnings, c.set.Outdated = c.warnings(), c.outdated.sorted()
	return c.set, nil
}

// compiler carries one file through Compile.
type compiler struct {
	src      *source
	read     func(name string) ([]byte, error)
	set      *Set
	defaults defaults
	rule     string // the rule being read
	errs     Errors
	warned   Errors
	outdated Errors // see CompilePublished

	published bool
	names     map[string]int // names of rules, and the lines they are on
	nodes     int            // YAML nodes read so far
	exempt    int            // exemptions read so far
	zones     scalar.Zones
	glued     map[*yaml.Node]bool // mappings with a field whose colon has no blank behind it
}

// fail reports a mistake at a node.
func (c *compiler) fail(n *yaml.Node, hint, format string, args ...any) {
	c.errs = append(c.errs, c.errorAt(n, hint, fmt.Sprintf(format, args...)))
}

// warn reports what is allowed but probably not meant.
func (c *compiler) warn(n *yaml.Node, hint, format string, args ...any) {
	c.warned = append(c.warned, c.errorAt(n, hint, fmt.Sprintf(format, args...)))
}

func (c *compiler) errorAt(n *yaml.Node, hint, message string) *Error {
	e := c.src.errorAt(n.Line, n.Column, message, hint)
	e.Rule = c.rule
	return e
}

func (c *compiler) warnings() []Warning {
	var out []Warning
	for _, w := range c.warned.sorted() {
		out = append(out, Warning(*w))
	}
	return out
}

// file reads the whole document.
func (c *compiler) file(root *yaml.Node) {
	o, ok := c.object(root, "a rule file", "apiVersion", "kind", "metadata", "spec")
	if !ok {
		return
	}
	c.required(o, "a rule file", "apiVersion", "kind", "metadata", "spec")
	if n := o.get("apiVersion"); n != nil {
		c.word(n, "apiVersion", apiVersion)
	}
	if n := o.get("kind"); n != nil {
		c.word(n, "kind", kind)
	}
	if n := o.get("metadata"); n != nil {
		if m, ok := c.object(n, "metadata", "name"); ok {
			c.required(m, "metadata", "name")
			c.set.Name, _ = c.name(m.get("name"), "the set's name")
		}
	}
	if n := o.get("spec"); n != nil {
		c.spec(n)
	}
}

func (c *compiler) spec(n *yaml.Node) {
	o, ok := c.object(n, "spec", "defaults", "rules", "max_lateness", "too_old", "recent_ids", "exempt")
	if !ok {
		return
	}
	c.required(o, "spec", "rules")
	if n := o.get("max_lateness"); n != nil {
		if d, ok := c.duration(n, "max_lateness"); ok {
			c.set.MaxLateness = d
		}
	}
	if n := o.get("too_old"); n != nil {
		word, _ := c.word(n, "too_old", "drop", "now")
		c.set.TooOldNow = word == "now"
	}
	if n := o.get("recent_ids"); n != nil {
		c.recentIDs(n)
	}
	if n := o.get("defaults"); n != nil {
		c.readDefaults(n)
	}
	if n := o.get("rules"); n != nil {
		c.rules(n)
	}
	if n := o.get("exempt"); n != nil {
		c.exemptAll(n)
	}
}

func (c *compiler) rules(n *yaml.Node) {
	if n.Kind != yaml.SequenceNode {
		c.fail(n, "each rule begins with `- name: …`", "rules is a list, not %s", describe(n))
		return
	}
	if len(n.Content) == 0 {
		c.refuse(c.errorAt(n, "a rule begins with `- name: …`; one that is to deny nothing has mode: shadow", "rules is an empty list: nothing would be counted"))
	}
	for _, item := range c.items(n) {
		c.rule = ""
		c.compileRule(item)
	}
	c.rule = ""
}

func (c *compiler) recentIDs(n *yaml.Node) {
	o, ok := c.object(n, "recent_ids", "count", "for")
	if !ok {
		return
	}
	if n := o.get("count"); n != nil {
		if s, ok := c.text(n, "count"); ok {
			count, err := strconv.Atoi(scalar.PlainNumber(s))
			if err != nil || count < 0 || count > maxRecentIDs {
				c.fail(n, "", "count is a whole number from 0 to %d, not %q", maxRecentIDs, scalar.Shortened(s))
			}
			c.set.RecentIDs = count
		}
	}
	if n := o.get("for"); n != nil {
		if d, ok := c.duration(n, "for"); ok {
			c.set.RecentFor = d
		}
	}
}

// required reports fields that are missing.
func (c *compiler) required(o *object, what string, names ...string) {
	for _, name := range names {
		if !o.has(name) {
			c.fail(o.node, "", "%s needs `%s`", what, name)
		}
	}
}

// duration reads a positive Prometheus duration.
func (c *compiler) duration(n *yaml.Node, what string) (event.Micros, bool) {
	s, ok := c.text(n, what)
	if !ok {
		return 0, false
	}
	d, err := scalar.ParseDuration(s)
	switch {
	case err != nil:
		c.fail(n, scalar.DurationHint(s), "%s: %v", what, err)
	case d == 0:
		c.fail(n, "", "%s must be longer than zero", what)
	case d > scalar.MaxSpan:
		c.fail(n, "", "%s is too long: at most %s", what, scalar.FormatDuration(scalar.MaxSpan))
	default:
		return d, true
	}
	return 0, false
}

var validName = regexp.MustCompile(`^[a-z0-9-]{1,64}$`)

// name reads the name of a set, a rule or a limit.
func (c *compiler) name(n *yaml.Node, what string) (string, bool) {
	if n == nil {
		return "", false
	}
	s, ok := c.text(n, what)
	if !ok {
		return "", false
	}
	if !validName.MatchString(s) {
		c.fail(n, nameHint(s), "%s has 1 to 64 of a-z, 0-9 and `-`, not %q", what, scalar.Shortened(s))
		return "", false
	}
	return s, true
}

var notInName = regexp.MustCompile(`[^a-z0-9]+`)

func nameHint(s string) string {
	if proposal := notInName.ReplaceAllString(strings.ToLower(s), "-"); validName.MatchString(proposal) && proposal != "-" {
		return "did you mean " + proposal + "?"
	}
	return ""
}

// mode reads enforce or shadow.
func (c *compiler) mode(n *yaml.Node) verdict.Mode {
	if word, _ := c.word(n, "mode", "enforce", "shadow"); word == "shadow" {
		return verdict.Shadow
	}
	return verdict.Enforce
}
