package rules

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
	"github.com/tallygate/tallygate/windows"
)

// maxOverrides bounds how many rows a file of overrides has.
const maxOverrides = 10_000

// overrideFile reads the limits of single keys from a CSV file.
type overrideFile struct{ *limitReader }

func (c overrideFile) read(n *yaml.Node) {
	name, ok := c.Text(n, "overrides")
	if !ok {
		return
	}
	src, ok := c.beside(n, name, "overrides")
	if !ok {
		return
	}
	if len(c.l.Rule.Shape.dims()) == 0 {
		return // there is a mistake in the key, or see check
	}
	c.l.overrides = overrides{}
	c.IncludeText(name, src, func(text []string) {
		rows := &overrideReader{limitReader: c.limitReader, text: text, csv: csv.NewReader(bytes.NewReader(bytes.TrimPrefix(src, []byte("\ufeff"))))}
		rows.csv.FieldsPerRecord, rows.csv.TrimLeadingSpace, rows.csv.Comment = -1, true, '#'
		rows.read()
	})
}

// overrideReader reads the rows of one file.
type overrideReader struct {
	*limitReader
	csv     *csv.Reader
	text    []string // its lines
	columns []string
	lines   map[string]int // of the keys so far
}

func (c *overrideReader) read() {
	head, ok := c.row()
	if !ok {
		c.Fail(c.at(1, 1), c.example(), "a file of overrides begins with the names of its columns")
		return
	}
	if c.columns = head; !c.head(head) {
		return
	}
	c.lines = map[string]int{}
	for {
		row, ok := c.row()
		if !ok {
			return
		}
		c.override(row)
		if len(c.lines) > maxOverrides {
			c.Fail(c.field(0), "tell limits by an attribute, as in limit: {from: attrs.quota, else: 100, most: 10k}", "there are more than %d overrides", maxOverrides)
			return
		}
	}
}

// row returns the next row, false behind the last one or one that is no CSV.
func (c *overrideReader) row() ([]string, bool) {
	row, err := c.csv.Read()
	if bad, ok := errors.AsType[*csv.ParseError](err); ok {
		c.Fail(c.at(bad.Line, bad.Column), "a value with a comma or a quote stands in quotes, in which a quote is written twice", "not valid CSV: %v", bad.Err)
		return nil, false
	}
	return row, err == nil && !errors.Is(err, io.EOF)
}

func (c *overrideReader) example() string {
	return "as in " + strings.Join(c.l.Rule.Shape.dims(), ",") + ",limit,until,reason"
}

// head checks the names of the columns.
func (c *overrideReader) head(names []string) bool {
	dims := c.l.Rule.Shape.dims()
	known := append(slices.Clone(dims), "limit", "until", "reason")
	before := c.Mistakes()
	for i, name := range names {
		switch name = strings.TrimSpace(name); {
		case !slices.Contains(known, name):
			c.Fail(c.field(i), c.example(), "there is no column %q%s", scalar.Shortened(name), scalar.DidYouMean(name, known))
		case slices.Contains(c.columns[:i], name):
			c.Fail(c.field(i), "leave one of them out", "the column %s is there twice", name)
		}
		c.columns[i] = name
	}
	for _, name := range append(slices.Clone(dims), "limit") {
		if !slices.Contains(names, name) {
			c.Fail(c.at(1, 1), c.example(), "the column %s is missing", name)
		}
	}
	return c.Mistakes() == before
}

// override reads one row.
func (c *overrideReader) override(row []string) {
	if len(row) != len(c.columns) {
		c.Fail(c.field(0), "", "the row has %d values, and there are %d columns", len(row), len(c.columns))
		return
	}
	before := c.Mistakes()
	o := &Override{Until: event.NoTime}
	for i, text := range row {
		switch name, text := c.columns[i], strings.TrimSpace(text); name {
		case "limit":
			o.Limit = c.number(i, text)
		case "reason":
			o.Reason = text
		case "until":
			if text == "" {
				continue
			}
			at, err := event.ParseMicros(text)
			if err != nil {
				c.Fail(c.field(i), "as in 2026-12-01T00:00:00Z", "until: %q is not an RFC 3339 time", scalar.Shortened(text))
			}
			o.Until = at
			expires(c.compiler, c.field(i), "the override", at)
		default:
			d, err := event.NewDim(name, text)
			if err != nil {
				c.Fail(c.field(i), "", "%v", err)
			} else {
				c.knownDimValue(c.field(i), name, text)
			}
			o.Key = append(o.Key, d)
		}
	}
	slices.SortFunc(o.Key, func(a, b event.Dim) int { return strings.Compare(a.Name, b.Name) })
	if c.Mistakes() != before {
		return
	}
	key := event.FormatKey(o.Key)
	if line, twice := c.lines[key]; twice {
		c.Fail(c.field(0), "leave one of them out", "%s is on line %d already", scalar.Shortened(key), line)
		return
	}
	c.lines[key], _ = c.csv.FieldPos(0)
	c.l.overrides[key] = o
}

// number reads a limit; Unlimited may be a mistake.
func (c *overrideReader) number(i int, text string) event.Decimal {
	if text == "unlimited" {
		return Unlimited
	}
	n, problem, hint := scalar.ParseLimit(scalar.PlainNumber(text))
	strict := c.l.Rule.Strict != nil
	switch {
	case problem != "":
		c.Fail(c.field(i), hint, "limit: %s", problem)
	case c.l.Rule.Count != CountSum && !n.Whole():
		c.Fail(c.field(i), "only the limit of a sum may be a fraction", "limit: events are counted in whole numbers, not %s", text)
	case strict && n > MaxStrict:
		c.Fail(c.field(i), "count in a larger unit, as in GB instead of bytes", "a strict limit is at most %v, not %v", MaxStrict, n)
	default:
		return n
	}
	return Unlimited
}

// field is the place of a value in the row that was read last.
func (c *overrideReader) field(i int) *yaml.Node {
	line, column := c.csv.FieldPos(i)
	return c.at(line, column)
}

// at is a place in the file; column counts bytes.
func (c *overrideReader) at(line, column int) *yaml.Node {
	text := c.text[min(line, len(c.text))-1]
	return &yaml.Node{Line: line, Column: 1 + utf8.RuneCountInString(text[:min(max(column-1, 0), len(text))])}
}

// check reports a limit that cannot have overrides, or not such ones.
func (c overrideFile) check() {
	l := c.l
	n := c.o.Get("overrides")
	if n == nil {
		return
	}
	switch {
	case l.Window.Kind.HasRate():
		c.Fail(n, "write a rule for each rate, with `when`", "a %v has no `overrides`", l.Window.Kind)
	case len(l.Rule.Shape.dims()) == 0 && l.Rule.Scope == ScopeInstance: // else there is a mistake in the key
		c.Fail(n, "leave it out: there is one key", "a rule that counts all requests together has no `overrides`")
	case l.Rule.Count == CountDistinct:
		const exact = windows.ExactDistinct * event.One
		if base := c.largestBeside(); max(base, l.Candidate) <= exact && l.largest() > exact {
			c.Fail(n, "raise the rule's own limit, too", "an override above %d distinct values would make an estimate of every key's count", windows.ExactDistinct)
		}
	}
}

// largestBeside is the largest limit that keys without an override have.
func (c overrideFile) largestBeside() event.Decimal {
	l := c.l
	own := l.overrides
	l.overrides = nil
	base := l.largestLive()
	l.overrides = own
	return base
}

// warnPanes warns of an override for which the windows of all keys have panes.
func (c overrideFile) warnPanes() {
	l := c.l
	if n := c.o.Get("overrides"); n != nil && !l.Window.Exact && l.isExact(c.largestBeside()) {
		c.Warn(n, fmt.Sprintf("keep overrides up to %d, or write a shorter resolution, or window: hopping", windows.ExactLimit),
			"an override of %v is above %d, so that all keys' windows have panes: each blocks up to a pane too long", l.KeyLimits.largest(), windows.ExactLimit)
	}
}
