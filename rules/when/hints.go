package when

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/expr-lang/expr/file"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// words are words of other languages, in lower case, and how predicates write them.
var words = map[string]string{
	"and": "and", "or": "or", "not": "not", "in": "in", "xor": "!=", "null": "nil", "none": "nil", "undefined": "nil", "nan": "nil",
	"true": "true", "false": "false", "yes": "true", "no": "false", "is": "==", "eq": "==", "equals": "==", "ne": "!=", "gt": ">", "gte": ">=", "lt": "<", "lte": "<=",
	"like": "contains, startsWith, endsWith or matches", "matches": "matches", "regex": "matches", "regexp": "matches", "rlike": "matches", "contains": "contains",
	"includes": "contains", "startswith": "startsWith", "endswith": "endsWith", "between": ">= and <=", "then": "? and :", "else": "? and :",
	"user": "uid", "user_id": "uid", "userid": "uid", "client_ip": "ip", "remote_addr": "ip", "addr": "ip", "address": "ip", "endpoint": "api", "route": "api",
	"action": "api", "result": "outcome", "success": `outcome == "success"`, "amount": "cost", "weight": "cost", "timestamp": "time", "ts": "time", "date": "time",
	"attributes": "attrs", "attr": "attrs", "labels": "attrs", "tags": "attrs",
	"innetwork": inNetwork, "in_network": inNetwork, "innetworks": inNetwork, "ipinrange": inNetwork, "ip_in_range": inNetwork, "inrange": inNetwork, "ipinnetwork": inNetwork,
	"insubnet": inNetwork, "in_subnet": inNetwork, "subnet": inNetwork, "cidr": inNetwork, "cidrmatch": inNetwork, "cidr_match": inNetwork, "incidr": inNetwork, "in_cidr": inNetwork,
}

// operators are operators of other languages.
var operators = []struct{ other, ours string }{
	{"===", "=="}, {"!==", "!="}, {"<>", "!="}, {"=~", "matches"}, {"!~", "not matches"}, {"=", "=="}, {"&", "and"}, {"|", "or"}, {"~", "matches"},
}

var firstWord, lastWord = regexp.MustCompile(`^[A-Za-z_]+`), regexp.MustCompile(`[A-Za-z_]+\s*$`)

// mistakeOf takes expr's error apart: what it says, at which character of source, and what may have been meant.
func mistakeOf(err error, source string) (message string, at int, hint string) {
	var mistake *file.Error
	if !errors.As(err, &mistake) {
		return err.Error(), 0, "a predicate says yes or no, as in cost > 10"
	}
	message, at = mistake.Message, mistake.From
	if name, unknown := strings.CutPrefix(message, "unknown name "); unknown {
		behind := ""
		if text := []rune(source); at+len(name) <= len(text) {
			behind = strings.TrimSpace(string(text[at+len(name):]))
		}
		guess, hint := unknownName(name, behind)
		return message + guess, at, hint
	}
	if strings.Contains(message, "mismatched types") {
		return message, at, mismatchHint(message)
	}
	if strings.HasPrefix(message, "unexpected token") || strings.HasPrefix(message, "Unexpected") || strings.HasPrefix(message, "unrecognized character") {
		hint = foreignWord(source, at)
	}
	return message, at, hint
}

// unknownName guesses what was meant by a name that there is not. What is compared with something stands
// before the operator, and is rather an attribute than text without quotes.
func unknownName(name, behind string) (guess, hint string) {
	names := slices.Sorted(maps.Keys(variables))
	there := "there are " + strings.Join(names, ", ")
	if ours := words[strings.ToLower(name)]; ours == inNetwork {
		return fmt.Sprintf("; did you mean %s?", ours), howToAsk
	} else if ours != "" {
		return fmt.Sprintf("; did you mean %s?", ours), there + "; an attribute is attrs." + name
	}
	if guess := scalar.DidYouMean(name, names); guess != "" || strings.ContainsAny(behind[:min(len(behind), 1)], "=!<>") {
		return guess, there + "; an attribute is attrs." + name
	}
	return "", "text stands in quotes: " + strconv.Quote(name) + "; an attribute is attrs." + name + "; else " + there
}

func mismatchHint(message string) string {
	switch {
	case strings.Contains(message, "time.Weekday"):
		return "write int(time.Weekday()), as a number: Sunday is 0"
	case strings.Contains(message, "time.Month"):
		return "write int(time.Month()), as a number: January is 1"
	case strings.Contains(message, "time.Duration"):
		return `a duration is duration("1h30m")`
	case strings.Contains(message, "time.Time"):
		return `a time is date("2026-11-21T10:00:00Z")`
	}
	return "cost is a number; id, uid, ip, api and outcome are text, which stands in quotes; attrs are what the event has"
}

// foreignWord finds the word of another language at a character of a predicate, or before it.
func foreignWord(source string, at int) string {
	text := []rune(source)
	at = min(max(at, 0), len(text))
	before, after := string(text[:at]), string(text[at:])
	for _, word := range []string{firstWord.FindString(after), strings.TrimSpace(lastWord.FindString(before))} {
		ours := words[strings.ToLower(word)]
		switch {
		case ours == "" || ours == word:
		case strings.EqualFold(ours, word):
			return "it is written " + ours
		default:
			return "instead of " + word + " write " + ours
		}
	}
	from := len(strings.TrimRight(before, "=!<>~&|"))
	operator := source[from:]
	for _, o := range operators {
		if strings.HasPrefix(operator, o.other) {
			if o.other == "=" {
				return "equality is =="
			}
			return "instead of " + o.other + " write " + o.ours
		}
	}
	return ""
}
