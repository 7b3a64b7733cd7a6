package document

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// Text returns a scalar's text as it is written, without quotes.
func (f *File) Text(n *yaml.Node, what string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || IsNull(n):
		f.Fail(n, "", "%s is one value, not %s", what, Describe(n))
		return "", false
	case !isCoreTag(n.ShortTag()):
		f.Fail(n, "", "the YAML tag %s is not supported", n.ShortTag())
		return "", false
	case n.ShortTag() == "!!float" && notFinite.MatchString(n.Value):
		f.Fail(n, "where it is text, put it into quotes: "+strconv.Quote(n.Value), "%s: %s is no number here", what, n.Value)
		return "", false
	}
	return n.Value, true
}

// notFinite matches numbers that YAML reads as infinity, or as no number at all.
var notFinite = regexp.MustCompile(`^[-+]?\.(inf|Inf|INF|nan|NaN|NAN)$`)

// Word returns a scalar that is one of the given words.
func (f *File) Word(n *yaml.Node, what string, words ...string) (string, bool) {
	s, ok := f.Text(n, what)
	if !ok {
		return "", false
	}
	if slices.Contains(words, s) {
		return s, true
	}
	hint := what + " is one of " + strings.Join(words, ", ")
	if len(words) == 1 {
		hint = "this version knows " + words[0]
	}
	guess := scalar.DidYouMean(s, words)
	if meant := f.words.Values[what][scalar.Folded(s)]; meant != "" {
		guess = fmt.Sprintf("; did you mean %q?", meant)
	}
	f.Fail(n, hint, "%s %q is not known%s", what, scalar.Shortened(s), guess)
	return "", false
}

func isCoreTag(tag string) bool {
	switch tag {
	case "!!str", "!!int", "!!float", "!!bool", "!!timestamp", "!!merge":
		return true
	}
	return false
}

// Bool reads true or false.
func (f *File) Bool(n *yaml.Node, what string) bool {
	s, ok := f.Text(n, what)
	if ok && n.ShortTag() != "!!bool" {
		hint := fmt.Sprintf("write %s: true", what)
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			hint += ", without quotes"
		}
		f.Fail(n, hint, "%s is true or false, not %s", what, Describe(n))
		return false
	}
	return ok && strings.EqualFold(s, "true")
}

// Span reads a duration as rules have it, also zero.
func (f *File) Span(n *yaml.Node, what string) (event.Micros, bool) {
	s, ok := f.Text(n, what)
	if !ok {
		return 0, false
	}
	span, err := scalar.ParseDuration(s)
	if err != nil {
		f.Fail(n, scalar.DurationHint(s), "%s: %v", what, err)
	}
	return span, err == nil
}

var leadingZero = regexp.MustCompile(`^[-+]?0[0-9_]`)

// PlainNumber refuses numbers that YAML reads otherwise than people do.
func (f *File) PlainNumber(n *yaml.Node, what string) bool {
	tag := n.ShortTag()
	if n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 || tag != "!!int" && tag != "!!float" || !leadingZero.MatchString(n.Value) {
		return true
	}
	as := ""
	if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil && tag == "!!int" {
		as = fmt.Sprintf(", as one in octal: %d", i)
	}
	return f.Refuse(f.At(n, "where it is text, put it into quotes: "+strconv.Quote(n.Value), fmt.Sprintf("%s: YAML reads %s as a number%s", what, n.Value, as)))
}

// AsWritten warns of a number that is not the text it is written as: 1.10 is 1.1, and 0xFF is 255.
func (f *File) AsWritten(n *yaml.Node, what string) {
	tag := n.ShortTag()
	if n.Kind != yaml.ScalarNode || n.Style&(yaml.SingleQuotedStyle|yaml.DoubleQuotedStyle) != 0 || tag != "!!int" && tag != "!!float" {
		return
	}
	if read := ValueText(n); read != n.Value && !leadingZero.MatchString(n.Value) {
		f.Warn(n, "where it is text, put it into quotes: "+strconv.Quote(n.Value)+"; the number is written "+read,
			"%s: YAML reads %s as the number %s, and %q is not matched", what, n.Value, read, n.Value)
	}
}

// ValueText is the text that event.Value holds for what a YAML scalar says: numbers in their
// shortest form.
func ValueText(n *yaml.Node) string {
	switch n.ShortTag() {
	case "!!bool":
		return strings.ToLower(n.Value)
	case "!!int":
		if i, err := strconv.ParseInt(n.Value, 0, 64); err == nil {
			return strconv.FormatInt(i, 10)
		}
	case "!!float":
		number := strings.ReplaceAll(strings.TrimPrefix(n.Value, "+"), "_", "")
		if strings.HasPrefix(number, ".") {
			number = "0" + number
		}
		if d, err := event.ParseDecimal(number); err == nil {
			return d.String()
		}
	}
	return n.Value
}

// Attrs returns attributes as an event has them.
func (f *File) Attrs(n *yaml.Node) (out []event.Attr) {
	pairs, _ := f.Pairs(n, "attrs")
	for _, p := range pairs {
		name := "attrs." + p.Key.Value
		if IsNull(p.Value) {
			continue // absent, as in an event
		}
		if p.Value.Kind == yaml.MappingNode || p.Value.Kind == yaml.SequenceNode {
			f.Fail(p.Value, "write it as several attributes", "%s: an attribute is a string, a number or a boolean, not %s", name, Describe(p.Value))
			continue
		}
		text, ok := f.Text(p.Value, name)
		if !ok || !f.PlainNumber(p.Value, name) {
			continue
		}
		value := event.Value{Kind: event.String, Text: text}
		switch p.Value.ShortTag() {
		case "!!bool":
			value.Kind, value.Text = event.Bool, ValueText(p.Value)
		case "!!int", "!!float":
			number, ok := event.CanonicalNumber(ValueText(p.Value))
			if !ok {
				f.Fail(p.Value, "", "%s: %s is no number that an event can have", name, text)
			}
			value.Kind, value.Text = event.Number, number
		}
		out = append(out, event.Attr{Name: p.Key.Value, Value: value})
	}
	return out
}
