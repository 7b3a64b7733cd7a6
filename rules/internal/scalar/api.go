package scalar

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

var (
	asRequest = regexp.MustCompile(`^([A-Za-z]+)\s+(?:https?://[^/]*)?(/\S*)$`)
	asRegexp  = regexp.MustCompile(`[\^|\\()\[\]?]|\$$|\.\+|^\.\*`)
)

// APIMistake explains why a text is no API's name and no pattern of names, and suggests a remedy; "" when it is one.
func APIMistake(s string) (problem, hint string) {
	switch {
	case strings.HasPrefix(s, "!") && strings.Trim(s, "! ") != "":
		return fmt.Sprintf("%q is the name of an API here, and leaves nothing out", s), withoutHint(strings.Trim(s, "! "))
	case strings.Contains(s, "**"):
		return fmt.Sprintf("the pattern %q has `**`", s), "one `*` as the last character takes all that follows, dots too"
	case asRequest.MatchString(s):
		part := asRequest.FindStringSubmatch(s)
		return fmt.Sprintf("an API's name has no blanks and commas: %q", s),
			"a request's name is its method and the first two segments of its path, in lower case: " + requestName(part[1], part[2])
	case strings.ContainsAny(s, " \t\n,"):
		return fmt.Sprintf("an API's name has no blanks and commas: %q", s), "several APIs are a list: [a.b, c.d]"
	case asRegexp.MatchString(s):
		return fmt.Sprintf("%q is a regular expression, and an API is a name or a pattern with `*`", s), regexpHint(s)
	}
	return "", ""
}

// withoutHint suggests how to leave an API out.
func withoutHint(s string) string {
	if head, rest, pattern := strings.Cut(s, "*"); pattern && rest == "" && head != "" {
		return fmt.Sprintf("write when: not (api startsWith %q)", head)
	}
	return fmt.Sprintf("write when: api != %q", s)
}

// requestName is the name that a method and a plain path have.
func requestName(method, path string) string {
	path, _, _ = strings.Cut(path, "?")
	out := []string{strings.ToLower(method)}
	if out[0] == "head" {
		out[0] = "get"
	}
	for segment := range strings.SplitSeq(path, "/") {
		if segment != "" && len(out) < 3 {
			out = append(out, strings.Trim(notInPattern.ReplaceAllString(strings.ToLower(segment), "-"), "-"))
		}
	}
	return strings.Join(out, ".")
}

var notInPattern = regexp.MustCompile(`[^a-z0-9*]`)

// regexpHint suggests a pattern in place of a regular expression.
func regexpHint(s string) string {
	plain := strings.NewReplacer(`\.`, ".", "[.]", ".").Replace(strings.TrimSuffix(strings.TrimPrefix(s, "^"), "$"))
	inner := strings.TrimSuffix(strings.TrimPrefix(plain, "("), ")")
	switch names := strings.Split(inner, "|"); {
	case len(names) > 1 && !slices.ContainsFunc(names, func(name string) bool { return name == "" || asRegexp.MatchString(name) }):
		return "several APIs are a list: [" + strings.Join(names, ", ") + "]"
	case plain == ".*" || plain == ".+":
		return `every API is "*"`
	case !asRegexp.MatchString(plain):
		return "write " + plain
	}
	return `a * stands for what is left of a segment, and as the last character for all that follows; when: api matches "…" takes a regular expression`
}

// methods are the first words of requests' names.
var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"}

// UnlikelyAPI says of a name that events may have, if someone gives it to them, what name was probably meant.
func UnlikelyAPI(s string) (problem, hint string) {
	first, _, _ := strings.Cut(s, ".")
	switch {
	case strings.HasPrefix(s, "/"):
		segments := strings.Split(strings.Trim(s, "/"), "/")
		if len(segments) == 2 && strings.Contains(segments[0], ".") {
			return fmt.Sprintf("%q is a path, and names of calls have dots", s), "did you mean " + strings.ToLower(strings.Join(segments, ".")) + "?"
		}
		return fmt.Sprintf("%q is a path, and a request's name has its method and dots", s), "did you mean " + requestName("get", s) + "?"
	case slices.Contains(methods, first):
		return fmt.Sprintf("%q: names of requests are in lower case", s), "did you mean " + strings.Replace(strings.ToLower(s), "head.", "get.", 1) + "?"
	}
	return "", ""
}
