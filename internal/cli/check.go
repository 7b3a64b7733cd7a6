// Package cli is the tallygate tool's commands: one file each.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/tallygate/tallygate/internal/input"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/rules"
)

const checkUsage = `
tallygate check tells whether rule files are good, and every mistake in them at once. A
folder stands for the .yaml and .yml files in it, without _test.yaml. The exit status is 0 if all are good, else 1.

  tallygate check rules.yaml
  tallygate check --json deploy/rules
`

// checked is what is said of one file.
type checked struct {
	File        string          `json:"file"`
	OK          bool            `json:"ok"`
	Name        string          `json:"name,omitempty"`
	Rules       int             `json:"rules"`
	Limits      int             `json:"limits"`
	MaxState    int             `json:"max_state_bytes"`         // of one key, at most
	MaxStateKey []string        `json:"max_state_key,omitempty"` // the dimensions of that key
	Errors      []*rules.Error  `json:"errors,omitempty"`
	Warnings    []rules.Warning `json:"warnings,omitempty"`
}

// Check is `tallygate check`.
func Check(args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	o := ops.NewOptions("tallygate check", checkUsage, stdout, getenv)
	asJSON := o.Bool("json", false, "write the result as JSON, an object a file")
	if err := o.Parse(args); err != nil {
		return ops.Exit(stderr, "tallygate check", err)
	}
	if o.NArg() == 0 {
		return ops.Exit(stderr, "tallygate check", &ops.UsageError{Err: errors.New("which files? For example: tallygate check rules.yaml")})
	}
	files, err := input.Files(o.Args(), isRuleFile, ".yaml file")
	if err != nil {
		return ops.Exit(stderr, "tallygate check", err)
	}
	status := ops.ExitOK
	for _, f := range files {
		c := checkFile(f)
		if !c.OK {
			status = ops.ExitError
		}
		c.write(stdout, stderr, *asJSON)
	}
	return status
}

// isRuleFile tells by its name whether a file in a folder holds rules: tests are beside them.
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
	c.Name, c.Rules, c.Limits, c.Warnings = set.Name, len(set.Rules), len(set.Limits), set.Warnings
	if c.MaxState, c.MaxStateKey = set.LargestState(); c.MaxState > rules.MaxStateBytes {
		c.Errors = wholeFile(path,
			fmt.Sprintf("a key of %s can have %d bytes of state, at most %d are allowed", strings.Join(c.MaxStateKey, ", "), c.MaxState, rules.MaxStateBytes),
			"use fewer limits a key, or longer panes (resolution)")
	}
	c.OK = len(c.Errors) == 0
	return c
}

// wholeFile is a mistake that has no place of its own.
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
	for _, w := range c.Warnings {
		fmt.Fprintln(stderr, w.String())
	}
	fmt.Fprintf(stdout, "%s: good: %s, %s, at most %d bytes of state a key\n",
		c.File, plural(c.Rules, "rule"), plural(c.Limits, "limit"), c.MaxState)
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
