// Package cli is the tallygate tool's commands: one file each.
package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/rules"
)

const checkUsage = `
tallygate check tells whether rule files are good, and every mistake in them at once. A
folder stands for the .yaml and .yml files in it. The exit status is 0 if all are good, else 1.

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
	text        string
}

// Check is `tallygate check`.
func Check(args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	o := ops.NewOptions("tallygate check", checkUsage, stdout, getenv)
	asJSON := o.Bool("json", false, "write the result as JSON, an object a file")
	if err := o.Parse(args); err != nil {
		return ops.Exit(stderr, "tallygate check", err)
	}
	if o.NArg() == 0 {
		return ops.Exit(stderr, "tallygate check", &ops.UsageError{Err: errors.New("which files? tallygate check FILE…")})
	}
	files, err := ruleFiles(o.Args())
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

// ruleFiles replaces folders by the rule files in them.
func ruleFiles(args []string) (files []string, err error) {
	for _, arg := range args {
		info, err := os.Stat(arg)
		if err != nil {
			return nil, err
		}
		if !info.IsDir() {
			files = append(files, arg)
			continue
		}
		before := len(files)
		err = filepath.WalkDir(arg, func(path string, d fs.DirEntry, err error) error {
			if ext := filepath.Ext(path); err == nil && !d.IsDir() && (ext == ".yaml" || ext == ".yml") {
				files = append(files, path)
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		if len(files) == before {
			return nil, fmt.Errorf("%s: no .yaml file in it", arg)
		}
	}
	return slices.Compact(files), nil
}

func checkFile(path string) checked {
	c := checked{File: path}
	src, err := os.ReadFile(path)
	if err != nil {
		c.text = err.Error()
		return c
	}
	set, err := rules.Compile(path, src)
	if err != nil {
		c.text = err.Error()
		if list, ok := errors.AsType[rules.Errors](err); ok {
			c.Errors = list
		}
		return c
	}
	c.OK, c.Name, c.Rules, c.Limits = true, set.Name, len(set.Rules), len(set.Limits)
	c.Warnings = set.Warnings
	if c.MaxState, c.MaxStateKey = set.LargestState(); c.MaxState > rules.MaxStateBytes {
		c.OK = false
		c.text = fmt.Sprintf("%s: a key of %s can have %d bytes of state, at most %d are allowed: use fewer limits a key, or longer panes (resolution)",
			path, strings.Join(c.MaxStateKey, ", "), c.MaxState, rules.MaxStateBytes)
	}
	return c
}

func (c checked) write(stdout, stderr io.Writer, asJSON bool) {
	if asJSON {
		_ = json.NewEncoder(stdout).Encode(c) // a closed pipe ends the process anyway
		return
	}
	if !c.OK {
		fmt.Fprintln(stderr, strings.TrimRight(c.text, "\n"))
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
