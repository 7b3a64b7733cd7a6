package ruletest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/input"
)

const usage = `
Usage: tallygate test [options] FILE…

Runs the tests of rules: events on a timeline, and the verdicts expected to be in force. Time is
simulated, so a test may span a month. A folder stands for the files in it whose names end in
_test.yaml or _test.yml. The exit status is 0 if all tests pass, else 1.

  rule_files: [rules.yaml]
  tests:
    - name: three discounts, then no more until midnight in Shanghai
      start: 2026-11-21T10:00:00+08:00
      events:
        - {at: 0s, uid: u1, api: order.create, outcome: success, attrs: {discounted: true}, times: 3, every: 1m}
      expect:
        - {at: 2m, uid: u1, api: order.discount, verdict: block, rule: discounts-daily, until: 2026-11-22T00:00:00+08:00}
        - {at: 14h, uid: u1, api: order.discount, verdict: none}

Examples:
  tallygate test rules_test.yaml
  tallygate test --run midnight --junit report.xml deploy/rules`

// options are the parsed command line.
type options struct {
	run   *regexp.Regexp
	junit string
	json  bool
	files []string
}

// Command is `tallygate test`. It returns the exit status: 0 if all tests pass, 1 if one fails or a
// file is invalid, 2 for wrong options.
func Command(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	o, err := parse(args, stdout, getenv)
	if err == nil {
		err = o.runAll(ctx, stdout)
	}
	return ops.Exit(stderr, "tallygate test", err)
}

func parse(args []string, stdout io.Writer, getenv func(string) string) (*options, error) {
	var o options
	flags := ops.NewOptions("tallygate test", usage, stdout, getenv)
	run := flags.String("run", "", "only tests whose name this regular `expression` matches")
	flags.StringVar(&o.junit, "junit", "", "also write the results to this `FILE` as JUnit XML")
	flags.BoolVar(&o.json, "json", false, "write the results as JSON, an object a test")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var err error
	if o.run, err = regexp.Compile(*run); err != nil {
		return nil, &ops.UsageError{Err: fmt.Errorf("--run: %w", err)}
	}
	if flags.NArg() == 0 {
		return nil, &ops.UsageError{Err: errors.New("name the files. For example: tallygate test rules_test.yaml")}
	}
	o.files, err = input.Files(flags.Args(), isTestFile, "file that ends in _test.yaml")
	return &o, err
}

func isTestFile(name string) bool {
	return strings.HasSuffix(name, "_test.yaml") || strings.HasSuffix(name, "_test.yml")
}

// errFailed sums up the failures, which were printed before.
var errFailed = errors.New("not all tests pass")

// FileResult is the result of a file's tests.
type FileResult struct {
	File    string
	Err     error // the file is invalid: no test ran
	Results []Result
	Missed  []Unreached // if all tests of the file ran
	Took    time.Duration
}

func (o *options) runAll(ctx context.Context, stdout io.Writer) error {
	var all []FileResult
	total, failed := 0, 0
	for _, path := range o.files {
		r := o.runFile(ctx, path)
		all = append(all, r)
		if r.Err != nil {
			failed++
		}
		for i := range r.Results {
			total++
			if len(r.Results[i].Failures) > 0 {
				failed++
			}
		}
		var err error
		if o.json {
			err = r.writeJSON(stdout)
		} else {
			err = r.write(stdout)
		}
		if err != nil {
			return fmt.Errorf("write the results: %w", err)
		}
	}
	if o.junit != "" {
		if err := writeJUnit(o.junit, all); err != nil {
			return fmt.Errorf("write the JUnit report: %w", err)
		}
	}
	switch {
	case failed > 0:
		return fmt.Errorf("%w: %d failed", errFailed, failed)
	case total == 0:
		return fmt.Errorf("no test name matches --run %s", o.run)
	}
	return nil
}

func (o *options) runFile(ctx context.Context, path string) FileResult {
	f, err := Load(path)
	if f == nil {
		return FileResult{File: path, Err: err}
	}
	return f.Run(ctx, OnDisk, o.run.MatchString)
}

// Run runs the tests of the file whose names are wanted, until ctx ends. Its rules come from where from says.
func (f *File) Run(ctx context.Context, from RuleFiles, wanted func(name string) bool) FileResult {
	began := time.Now()
	r := FileResult{File: f.Path}
	suite, err := NewSuite(ctx, f, from)
	if err != nil {
		r.Err = err
		return r
	}
	for i := range f.Tests {
		if !wanted(f.Tests[i].Name) {
			continue
		}
		result := suite.Run(ctx, &f.Tests[i])
		if ctx.Err() != nil {
			r.Err = context.Cause(ctx)
			break
		}
		r.Results = append(r.Results, result)
	}
	r.Took = time.Since(began)
	if len(r.Results) == len(f.Tests) {
		r.Missed = suite.Reach.unreached()
	}
	return r
}

func (r *FileResult) write(out io.Writer) error {
	var b strings.Builder
	if r.Err != nil {
		fmt.Fprintf(&b, "FAIL  %s\n%s\n", r.File, indent(r.Err.Error()))
	}
	for _, res := range r.Results {
		if len(res.Failures) == 0 {
			fmt.Fprintf(&b, "ok    %s: %s\n", r.File, res.Test.Name)
			continue
		}
		fmt.Fprintf(&b, "FAIL  %s:%d: %s\n", r.File, res.Test.Line, res.Test.Name)
		for _, f := range res.Failures {
			fmt.Fprintf(&b, "  %s:%d: %s\n", r.File, f.Line, indentNext(f.Text()))
		}
	}
	for i, m := range r.Missed {
		between := ", "
		if i == 0 {
			between = fmt.Sprintf("      %s: no test reaches ", r.File)
		}
		fmt.Fprintf(&b, "%s%s (%s)", between, m.Name, m.Why)
	}
	if len(r.Missed) > 0 {
		b.WriteByte('\n')
	}
	_, err := io.WriteString(out, b.String())
	return err
}

// Text describes the failure in several lines.
func (f *Failure) Text() string {
	return fmt.Sprintf("%s\n- %s   (expected)\n+ %s   (in force)\n%s", f.What, f.Want, f.Got, strings.Join(slices.Concat(f.Story, f.Why), "\n"))
}

func indent(s string) string { return "  " + strings.ReplaceAll(s, "\n", "\n  ") }

func indentNext(s string) string { return strings.ReplaceAll(s, "\n", "\n      ") }

// resultObject is a test in --json.
type resultObject struct {
	File     string          `json:"file"`
	Name     string          `json:"name,omitempty"`
	Line     int             `json:"line,omitempty"`
	OK       bool            `json:"ok"`
	Error    string          `json:"error,omitempty"` // the file is invalid: no test ran
	Failures []failureObject `json:"failures,omitempty"`
}

type failureObject struct {
	Line  int      `json:"line"`
	What  string   `json:"what"`
	Want  string   `json:"want"`
	Got   string   `json:"got"`
	Story []string `json:"story"`
	Why   []string `json:"why,omitempty"`
}

// unreachedObject follows a file's tests in --json.
type unreachedObject struct {
	File      string   `json:"file"`
	Unreached []string `json:"unreached"` // limits, candidates and tiers that no test reaches
}

func (r *FileResult) writeJSON(out io.Writer) error {
	enc := json.NewEncoder(out)
	if r.Err != nil {
		return enc.Encode(resultObject{File: r.File, Error: r.Err.Error()})
	}
	for _, res := range r.Results {
		o := resultObject{File: r.File, Name: res.Test.Name, Line: res.Test.Line, OK: len(res.Failures) == 0}
		for _, f := range res.Failures {
			o.Failures = append(o.Failures, failureObject(f))
		}
		if err := enc.Encode(o); err != nil {
			return err
		}
	}
	if len(r.Missed) == 0 {
		return nil
	}
	o := unreachedObject{File: r.File}
	for _, m := range r.Missed {
		o.Unreached = append(o.Unreached, m.Name)
	}
	return enc.Encode(o)
}
