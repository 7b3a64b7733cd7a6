// Package ruletest runs the tests of rules: events on a timeline, and the verdicts expected to be in
// force at moments of it. Time is simulated; nothing waits.
package ruletest

import (
	"cmp"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/rules/document"
)

// File is one file of tests.
type File struct {
	Path      string
	RuleFiles []string // paths to open
	Tests     []Test

	doc       *document.File // for mistakes that only show with the rules
	events    int            // so far
	maxEvents int
	ruleFiles []*yaml.Node // the places of RuleFiles
}

// Test is one test: a timeline, and its expectations.
type Test struct {
	Name   string
	Line   int
	Zone   *time.Location // for the times in its output
	Events []Event        // in the order in which the broker sees them
	Expect []Expect       // in their order in the file
}

// Event is an event of a test.
type Event struct {
	event.Event
	Broker event.Micros // when the broker sees it
	Line   int

	item *document.Object // as it is written
}

// Expect is an expectation: the verdict in force at a moment, or what is left then, or both.
type Expect struct {
	Line   int
	At     event.Micros
	Who    event.Event // its dimensions and the API
	Want   string      // none, block, challenge, throttle, log or warn; "": whatever is in force
	Rule   string      // "": the deciding verdict of any rule
	Shadow bool        // a shadow verdict is expected
	Until  event.Micros
	Since  event.Micros
	Count  string
	Limit  string
	Left   string // under Rule; "": whatever it is

	rule   *yaml.Node // the place of Rule
	nobody *yaml.Node // the expectation, if it names no dimension but its API
}

const whatFile = "a file of tests, with rule_files and tests,"

// Load reads a file of tests. Its error lists all mistakes, in the form of those of rule files. A file
// that is valid YAML is returned also with mistakes, so that NewSuite can add those that only show
// with its rules.
func Load(path string) (*File, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, src, math.MaxInt)
}

// Parse is Load for a text, of which all tests together may have so many events.
func Parse(path string, src []byte, maxEvents int) (*File, error) {
	doc, err := rules.ParseDocument(path, src, whatFile)
	if err != nil {
		return nil, err
	}
	f := &File{Path: path, doc: doc, maxEvents: maxEvents}
	if isRuleSet(doc.Root) {
		return nil, fmt.Errorf("%s: this is a rule file: use `tallygate check`; a file of tests has rule_files and tests", path)
	}
	fields, ok := doc.Object(doc.Root, "a file of tests", "rule_files", "tests")
	if !ok {
		return nil, doc.Err()
	}
	f.readRuleFiles(fields)
	if tests := fields.Get("tests"); tests != nil {
		names := map[string]int{}
		for _, n := range doc.List(tests, "tests") {
			f.Tests = append(f.Tests, f.test(n, names))
		}
	}
	if len(f.Tests) == 0 && (fields.Get("tests") == nil || len(fields.Get("tests").Content) == 0) {
		doc.Fail(fields.At("tests"), "for example tests: [{name: …, events: […], expect: […]}]", "there are no tests")
	}
	return f, doc.Err()
}

func isRuleSet(root *yaml.Node) bool {
	for i := 0; i+1 < len(root.Content); i += 2 {
		if root.Content[i].Value == "kind" && root.Content[i+1].Value == "RuleSet" {
			return true
		}
	}
	return false
}

func (f *File) readRuleFiles(fields *document.Object) {
	if n := fields.Get("rule_files"); n != nil {
		for _, item := range f.doc.List(n, "rule_files") {
			if name, ok := f.doc.Text(item, "a rule file's name"); ok {
				f.RuleFiles = append(f.RuleFiles, filepath.Join(filepath.Dir(f.Path), name))
				f.ruleFiles = append(f.ruleFiles, item)
			}
		}
		if len(n.Content) > 0 || n.Kind != yaml.SequenceNode {
			return
		}
	}
	f.doc.Fail(fields.At("rule_files"), "for example rule_files: [rules.yaml], relative to this file", "rule_files is missing: name the rules to test")
}

// defaultStart begins a test without a start: a Monday.
const defaultStart = "2026-01-05T00:00:00Z"

// test reads one test. names has the names of earlier tests, with their lines.
func (f *File) test(n *yaml.Node, names map[string]int) Test {
	t := Test{Line: n.Line, Zone: time.UTC}
	fields, ok := f.doc.Object(n, "a test", "name", "start", "events", "expect")
	if !ok {
		return t
	}
	r := reader{doc: f.doc, file: f, item: fields}
	t.Name = r.text("name")
	switch line, twice := names[t.Name]; {
	case t.Name == "" && (!fields.Has("name") || fields.Get("name") != nil):
		f.doc.Fail(fields.At("name"), "for example name: three orders, then no more", "the test has no name")
	case twice && t.Name != "":
		f.doc.Fail(fields.At("name"), "", "a test named %q is already on line %d", t.Name, line)
	default:
		names[t.Name] = n.Line
	}
	began := cmp.Or(r.text("start"), defaultStart)
	start, err := time.Parse(time.RFC3339Nano, began)
	if err != nil {
		f.doc.Fail(fields.At("start"), "for example 2026-11-21T10:00:00+08:00", "start: %q is not a time", began)
		start, _ = time.Parse(time.RFC3339Nano, defaultStart)
	}
	t.Zone, r.start = start.Location(), event.FromTime(start)
	events := fields.Get("events")
	if events != nil {
		for _, n := range f.doc.List(events, "events") {
			t.Events = append(t.Events, r.events(n)...)
		}
	}
	expect := fields.Get("expect")
	switch {
	case expect != nil && (expect.Kind != yaml.SequenceNode || len(expect.Content) > 0):
		for _, n := range f.doc.List(expect, "expect") {
			t.Expect = append(t.Expect, r.expect(n))
		}
	case expect != nil || !fields.Has("expect"):
		f.doc.Fail(fields.At("expect"), "for example expect: [{at: 1m, uid: u1, api: login, verdict: block}]", "the test %q expects nothing", t.Name)
	}
	slices.SortStableFunc(t.Events, func(a, b Event) int { return cmp.Compare(a.Broker, b.Broker) })
	return t
}
