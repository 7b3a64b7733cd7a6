// Package ruletest runs the tests of rules: events on a timeline, and what is expected to be in
// force at moments of it. Time is what the test says; nothing waits.
package ruletest

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/rules"
)

// File is one file of tests.
type File struct {
	Path      string
	RuleFiles []string // as they are to be opened
	Tests     []Test
}

// Test is one story.
type Test struct {
	Name   string
	Line   int
	Zone   *time.Location // in which its times are shown
	Events []Event        // in the order in which the broker sees them
	Expect []Expect       // in their order in the file
}

// Event is an event of a test.
type Event struct {
	event.Event
	Broker event.Micros // when the broker sees it
	Line   int
}

// Expect is what should be in force at a moment.
type Expect struct {
	Line   int
	At     event.Micros
	Who    event.Event // its dimensions and the API
	Want   string      // none, block, challenge, throttle, log or warn
	Rule   string      // "": whichever decides
	Shadow bool        // a shadow verdict is wanted
	Until  event.Micros
	Since  event.Micros
	Count  string
	Limit  string
}

// form is a mapping that remembers its place.
type form struct {
	node   *yaml.Node
	fields map[string]*yaml.Node
}

func formOf(n *yaml.Node) form {
	f := form{node: n, fields: map[string]*yaml.Node{}}
	if n.Kind == yaml.MappingNode {
		for i := 0; i < len(n.Content); i += 2 {
			f.fields[n.Content[i].Value] = n.Content[i+1]
		}
	}
	return f
}

// Load reads a file of tests. Its error tells every mistake in it.
func Load(path string) (*File, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var root yaml.Node
	loader, err := yaml.NewLoader(bytes.NewReader(src))
	if err == nil {
		err = loader.Load(&root)
	}
	if errors.Is(err, io.EOF) || err == nil && len(root.Content) == 0 {
		return nil, fmt.Errorf("%s: the file is empty: it needs rule_files and tests", path)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	r := reader{path: path, item: formOf(root.Content[0])}
	if kind := r.item.fields["kind"]; kind != nil && kind.Value == "RuleSet" {
		return nil, fmt.Errorf("%s: this is a rule file: `tallygate check` looks at it; a file of tests has rule_files and tests", path)
	}
	r.known("rule_files", "tests")
	f := &File{Path: path}
	for _, n := range r.list("rule_files") {
		f.RuleFiles = append(f.RuleFiles, filepath.Join(filepath.Dir(path), n.Value))
	}
	if len(f.RuleFiles) == 0 {
		r.errorf(r.item.node, "rule_files is absent: name the rules that are tested, relative to this file")
	}
	tests := r.list("tests")
	if len(tests) == 0 {
		r.errorf(r.item.node, "there are no tests")
	}
	for _, n := range tests {
		f.Tests = append(f.Tests, r.test(n))
	}
	return f, errors.Join(r.errs...)
}

// defaultStart is when a test begins that does not say: a Monday.
const defaultStart = "2026-01-05T00:00:00Z"

func (r *reader) test(n *yaml.Node) Test {
	r.item = formOf(n)
	r.known("name", "start", "events", "expect")
	t := Test{Name: r.text("name"), Line: n.Line, Zone: time.UTC}
	if n.Kind != yaml.MappingNode {
		return t
	}
	if t.Name == "" {
		r.errorf(n, "the test has no name")
	}
	began := cmp.Or(r.text("start"), defaultStart)
	start, err := time.Parse(time.RFC3339Nano, began)
	if err != nil {
		r.errorf(r.item.fields["start"], "start %q: want a time such as 2026-11-21T10:00:00+08:00", began)
	} else {
		t.Zone = start.Location()
	}
	r.start = event.FromTime(start)
	events, expect := r.list("events"), r.list("expect")
	if len(expect) == 0 {
		r.errorf(n, "the test %q expects nothing", t.Name)
	}
	for _, n := range events {
		t.Events = append(t.Events, r.events(n)...)
	}
	for _, n := range expect {
		t.Expect = append(t.Expect, r.expect(n))
	}
	slices.SortStableFunc(t.Events, func(a, b Event) int { return cmp.Compare(a.Broker, b.Broker) })
	return t
}

// reader reads a file's parts, and collects what is wrong with them.
type reader struct {
	path  string
	start event.Micros // of the test that is read
	item  form         // that is read
	errs  []error
}

func (r *reader) errorf(at *yaml.Node, format string, args ...any) {
	r.errs = append(r.errs, fmt.Errorf("%s:%d: %s", r.path, at.Line, fmt.Sprintf(format, args...)))
}

// known refuses fields that the item doesn't have.
func (r *reader) known(names ...string) {
	if r.item.node.Kind != yaml.MappingNode {
		r.errorf(r.item.node, "want a mapping of %s", strings.Join(names, ", "))
		return
	}
	for i := 0; i < len(r.item.node.Content); i += 2 {
		if n := r.item.node.Content[i]; !slices.Contains(names, n.Value) {
			r.errorf(n, "there is no field %q here: want %s", n.Value, strings.Join(names, ", "))
		}
	}
}

func (r *reader) text(name string) string {
	n := r.item.fields[name]
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode {
		r.errorf(n, "%s: want a single value", name)
		return ""
	}
	return n.Value
}

func (r *reader) list(name string) []*yaml.Node {
	n := r.item.fields[name]
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.errorf(n, "%s: want a list", name)
		return nil
	}
	return n.Content
}

// moment reads a span since the start, or a time.
func (r *reader) moment(name string, absent event.Micros) event.Micros {
	s := r.text(name)
	if s == "" {
		return absent
	}
	if d, err := rules.ParseDuration(s); err == nil {
		return r.start + d
	}
	t, err := event.ParseMicros(s)
	if err != nil {
		r.errorf(r.item.fields[name], "%s: %q is neither a span since the start, such as 90s, 2m or 1d, nor a time such as 2026-11-22T00:00:00+08:00", name, s)
	}
	return t
}

// who reads the fields that events and expectations share.
func (r *reader) who() event.Event {
	e := event.Event{UID: r.text("uid"), API: r.text("api"), Cost: event.One, Time: event.NoTime, BrokerTime: event.NoTime}
	if e.API == "" {
		r.errorf(r.item.node, "api is absent")
	}
	if ip := r.text("ip"); ip != "" {
		addr, err := netip.ParseAddr(ip)
		if err != nil {
			r.errorf(r.item.fields["ip"], "ip %q is no IPv4 or IPv6 address", ip)
		}
		e.IP = addr.Unmap().WithZone("")
	}
	if n := r.item.fields["attrs"]; n != nil {
		e.Attrs = r.attrs(n)
	}
	return e
}

func (r *reader) attrs(n *yaml.Node) (out []event.Attr) {
	if n.Kind != yaml.MappingNode {
		r.errorf(n, "attrs: want a mapping such as {plan: pro}")
		return nil
	}
	for i := 0; i < len(n.Content); i += 2 {
		name, v := n.Content[i].Value, n.Content[i+1]
		value := event.Value{Kind: event.String, Text: v.Value}
		switch {
		case v.Kind != yaml.ScalarNode:
			r.errorf(v, "attrs.%s: an attribute is a string, a number or a boolean", name)
		case v.Tag == "!!bool":
			value.Kind, value.Text = event.Bool, strings.ToLower(v.Value)
		case v.Tag == "!!int", v.Tag == "!!float":
			text, ok := event.CanonicalNumber(v.Value)
			if !ok {
				r.errorf(v, "attrs.%s: %s is no number that an event can have", name, v.Value)
			}
			value.Kind, value.Text = event.Number, text
		}
		out = append(out, event.Attr{Name: name, Value: value})
	}
	return out
}
