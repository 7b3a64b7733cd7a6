package scalar

import (
	"fmt"
	"regexp"
	"strings"
)

var (
	comparison  = regexp.MustCompile(`^[\s!]*(<=|>=|==|!=|=~|<|>)`)
	statusClass = regexp.MustCompile(`^[1-5][xX*]{2}$`)
	alternation = regexp.MustCompile(`^[^|]+(\|[^|]+)+$`)
)

// AttrNameDoubt says of an attribute's name what an event hardly calls one so: an expression, or several names.
// sure is false where only a blank is odd.
func AttrNameDoubt(name string) (problem, hint string, sure bool) {
	switch {
	case strings.ContainsAny(name, "!<>*+|(),"):
		return fmt.Sprintf("%q is one attribute's name here, and no expression", Shortened("attrs."+name)), exprHint(name), true
	case strings.Contains(name, "attrs."):
		return fmt.Sprintf("%q is one attribute's name here, and no expression", Shortened("attrs."+name)), exprHint(name), true
	case strings.ContainsAny(name, " \t\n"):
		return fmt.Sprintf("%q has a blank in its name", Shortened("attrs."+name)), "several attributes are a list; conditions are written in `when`", false
	}
	return "", "", false
}

func exprHint(name string) string {
	switch {
	case strings.ContainsAny(name, "!<>"):
		return "conditions on an attribute are written in `when`, as in when: attrs.plan != \"free\""
	case strings.ContainsAny(name, "|,"):
		return "several are a list: [attrs.a, attrs.b]"
	case strings.Contains(name, "(") || strings.ContainsAny(name, "+*") && strings.Contains(name, " "):
		return "what is computed of several attributes is emitted as one of its own"
	}
	return "an attribute has no pattern: name one"
}

// ValueDoubt says of a value that is compared as text what looks like a condition on it. field is where the
// value stands, as `when` names it. sure is false where a value may well be so.
func ValueDoubt(field, value string) (problem, hint string, sure bool) {
	quoted := fmt.Sprintf("%q", Shortened(value))
	literal := field + " " + quoted + " is no pattern: it matches only this very text"
	switch {
	case len(value) > 1 && value[0] == '!' && value[1] != '=':
		rest := strings.TrimSpace(strings.Trim(value, "! "))
		return field + " " + quoted + " is compared as text, and nothing is left out by it", fmt.Sprintf("write when: %s != %q", field, rest), true
	case strings.HasPrefix(value, "not ") && !strings.Contains(value[4:], " "):
		return literal, fmt.Sprintf("write when: %s != %q", field, value[4:]), false
	case comparison.MatchString(value) && strings.TrimLeft(value, "!<>=~ ") != "":
		return literal, fmt.Sprintf("write when: %s %s", field, value), true
	case value == "*":
		return literal, fmt.Sprintf("to match any, write when: %s != nil", field), false
	case statusClass.MatchString(value):
		return literal, "list the values, or write when: " + field + " startsWith \"" + value[:1] + "\"", false
	case alternation.MatchString(value) && !strings.Contains(value, " "):
		return literal, "several are a list: [" + strings.Join(strings.Split(value, "|"), ", ") + "]", false
	case len(value) > 2 && value[0] == '/' && value[len(value)-1] == '/' && strings.ContainsAny(value, `^$*+\[`),
		len(value) > 1 && value[0] == '^', strings.HasSuffix(value, ".*"):
		return literal, fmt.Sprintf("write when: %s matches %q", field, strings.Trim(value, "/")), false
	case strings.HasSuffix(value, "*") && !strings.Contains(value, "/"):
		return literal, fmt.Sprintf("write when: %s startsWith %q", field, strings.TrimRight(value, "*")), false
	case strings.HasPrefix(value, "*") && !strings.Contains(value, "/"):
		return literal, fmt.Sprintf("write when: %s endsWith %q", field, strings.TrimLeft(value, "*")), false
	}
	return "", "", false
}
