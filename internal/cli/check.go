// Package cli implements the commands of the tallygate tool, one file each. main.go has their table.
package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/internal/input"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/internal/words"
	"github.com/tallygate/tallygate/rules"
)

const checkUsage = `
tallygate check validates rule files, and reports all mistakes at once. A folder stands for
the .yaml and .yml files in it, except those that end in _test. What is no RuleSet there is skipped,
and said so: files that rules name are checked with the rules. The exit status is 0 if all files are
valid, else 1.

  tallygate check rules.yaml
  tallygate check --json deploy/rules
`

// checked is the result of one file.
type checked struct {
	File        string          `json:"file"`
	OK          bool            `json:"ok"`
	Skipped     string          `json:"skipped,omitempty"` // why it is not checked: it is no rule file
	Name        string          `json:"name,omitempty"`
	Rules       int             `json:"rules"`
	Limits      int             `json:"limits"`
	MaxState    int             `json:"max_state_bytes"`         // of one key, at most
	MaxStateKey []string        `json:"max_state_key,omitempty"` // the dimensions of that key
	Errors      []*rules.Error  `json:"errors,omitempty"`
	Warnings    []rules.Warning `json:"warnings,omitempty"`
	Hints       []string        `json:"hints,omitempty"` // what may be right as it is
}

// check is `tallygate check`.
func check(_ context.Context, c *call) error {
	o := c.options(checkUsage)
	asJSON := o.Bool("json", false, "write the result as JSON, one object per file")
	if err := o.Parse(c.args); err != nil {
		return err
	}
	if o.NArg() == 0 {
		return &ops.UsageError{Err: errors.New("name the files. For example: tallygate check rules.yaml")}
	}
	files, err := input.Files(o.Args(), isRuleFile, ".yaml file")
	if err != nil {
		return err
	}
	status, skipped := exitStatus(ops.ExitOK), 0
	for _, f := range files {
		result := checked{File: f, OK: true}
		if !slices.Contains(o.Args(), f) {
			result.Skipped = noRules(f)
		}
		if result.Skipped == "" {
			result = checkFile(f)
		} else {
			skipped++
		}
		if !result.OK {
			status = ops.ExitError
		}
		result.write(c.stdout, c.stderr, *asJSON)
	}
	if skipped == len(files) {
		return fmt.Errorf("no rule file in %s: a rule file has `kind: RuleSet`", strings.Join(o.Args(), ", "))
	}
	return status
}

// noRules says why a file of a folder is no rule file; "" if it is one, or may be meant to be one.
func noRules(path string) string {
	src, err := os.ReadFile(path)
	if err != nil {
		return "" // checkFile says why
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(src, &doc); err != nil || len(doc.Content) == 0 {
		return ""
	}
	root := doc.Content[0]
	if root.Kind == yaml.SequenceNode {
		return "a list, such as exemptions: it is checked with the rules that name it"
	}
	is := map[string]string{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		is[root.Content[i].Value] = root.Content[i+1].Value
	}
	_, spec := is["spec"]
	_, ruleList := is["rules"]
	switch api, kind := is["apiVersion"], is["kind"]; {
	case root.Kind != yaml.MappingNode, strings.EqualFold(kind, "RuleSet"), strings.HasPrefix(api, "tallygate"):
		return ""
	case api != "" && kind != "":
		return "its kind is " + kind
	case api == "" && kind == "" && !spec && !ruleList:
		return "it has no kind"
	}
	return ""
}

// isRuleFile reports by its name whether a file of a folder holds rules. Test files lie beside them.
func isRuleFile(name string) bool {
	base, yml := strings.CutSuffix(name, ".yml")
	if !yml {
		base, yml = strings.CutSuffix(name, ".yaml")
	}
	return yml && !strings.HasSuffix(base, "_test")
}

func checkFile(path string) checked {
	c := checked{File: path}
	src, err := os.ReadFile(path)
	if err != nil {
		c.Errors = wholeFile(path, err.Error(), "")
		return c
	}
	set, err := rules.CompileWith(path, src, input.Beside(path))
	if err != nil {
		if list, ok := errors.AsType[rules.Errors](err); ok {
			c.Errors = list
		} else {
			c.Errors = wholeFile(path, err.Error(), "")
		}
		return c
	}
	c.Name, c.Rules, c.Limits, c.Warnings = set.Name, len(set.All()), limitsOf(set), set.Warnings
	c.Hints = hintsOf(set)
	if c.MaxState, c.MaxStateKey = set.LargestState(); c.MaxState > rules.MaxStateBytes {
		c.Errors = wholeFile(path,
			fmt.Sprintf("a key of %s can have %d bytes of state, at most %d are allowed", strings.Join(c.MaxStateKey, ", "), c.MaxState, rules.MaxStateBytes),
			"use fewer limits per key, or longer panes (resolution)")
	}
	c.OK = len(c.Errors) == 0
	return c
}

// wholeFile is a mistake that concerns the whole file.
func wholeFile(path, message, hint string) []*rules.Error {
	return []*rules.Error{{File: path, Line: 1, Column: 1, Message: message, Hint: hint}}
}

func (c checked) write(stdout, stderr io.Writer, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(stdout).Encode(c) // a closed pipe ends the process anyway
		return
	}
	if !c.OK {
		fmt.Fprintln(stderr, rules.Errors(c.Errors))
		return
	}
	if c.Skipped != "" {
		fmt.Fprintf(stdout, "%s: skipped, no rule file: %s\n", c.File, c.Skipped)
		return
	}
	for _, w := range c.Warnings {
		fmt.Fprintln(stderr, w.String())
	}
	state := fmt.Sprintf(", at most %d bytes of state per key", c.MaxState)
	if c.MaxState == 0 { // no rule counts events
		state = ""
	}
	fmt.Fprintf(stdout, "%s: valid: %s, %s%s\n", c.File, plural(c.Rules, "rule"), plural(c.Limits, "limit"), state)
	for _, hint := range c.Hints {
		fmt.Fprintf(stdout, "  hint: %s\n", hint)
	}
}

// hintsOf says what depends on programs that the rule file does not know of.
func hintsOf(set *rules.Set) (hints []string) {
	var limited, more []string
	for _, r := range set.Strict() {
		if r.CountsLimited() && slices.Contains(set.Rules, r) {
			limited = append(limited, r.Name)
		}
	}
	for _, r := range set.Rules {
		if r.DeniesMore {
			more = append(more, r.Name)
		}
	}
	if len(limited) > 0 {
		hints = append(hints, "strict, and they count what limits denied: "+strings.Join(limited, ", ")+
			". Such events have no permit, and count above the limit; leave the outcome limited out of match")
	}
	if len(more) > 0 {
		hints = append(hints, "they count only some requests of an API, and deny all of it: "+strings.Join(more, ", ")+
			". To deny only those, let services check them under an API of their own, such as order.discount, and name that in then: {apis: […]}")
	}
	return hints
}

func plural(n int, what string) string { return words.Plural(n, what) }

// limitsOf is how many limits a set has.
func limitsOf(set *rules.Set) (n int) {
	for _, r := range set.All() {
		n += len(r.Limits)
	}
	return n
}
