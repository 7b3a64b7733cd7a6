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

	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/rulecheck"
	"github.com/tallygate/tallygate/internal/tools/input"
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

// check is `tallygate check`.
func check(ctx context.Context, c *call) error {
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
		result := rulecheck.Result{File: f, OK: true}
		if !slices.Contains(o.Args(), f) {
			result.Skipped = noRules(f)
		}
		if result.Skipped == "" {
			result = checkFile(ctx, f)
		} else {
			skipped++
		}
		if !result.OK {
			status = ops.ExitError
		}
		writeChecked(&result, c.stdout, c.stderr, *asJSON)
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

func checkFile(ctx context.Context, path string) rulecheck.Result {
	src, err := os.ReadFile(path)
	if err != nil {
		return rulecheck.Failed(path, err)
	}
	result, _ := rulecheck.Text(ctx, path, src, input.Beside(path))
	return result
}

func writeChecked(c *rulecheck.Result, stdout, stderr io.Writer, asJSON bool) {
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
	fmt.Fprintf(stdout, "%s: %s\n", c.File, c.Summary())
	for _, hint := range c.Hints {
		fmt.Fprintf(stdout, "  hint: %s\n", hint)
	}
}

func plural(n int, what string) string { return words.Plural(n, what) }
