package document

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// isInvisible reports characters that nobody sees in a file, and that make a name another one.
func isInvisible(r rune) bool {
	switch r {
	case '\u034f', '\u115f', '\u1160', '\u3164', '\uffa0': // a joiner and fillers, which Unicode counts among marks and letters
		return true
	}
	return r > unicode.MaxASCII && (unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Zs, r))
}

// describeInvisible names the character, and suggests a remedy.
func describeInvisible(r rune) (message, hint string) {
	switch {
	case r == '\u00a0' || r == '\u202f':
		return fmt.Sprintf("a no-break space (%U), which looks like a blank and is none", r), "type a blank in its place"
	case unicode.Is(unicode.Zs, r):
		return fmt.Sprintf("a blank of another kind (%U)", r), "type a blank in its place"
	case r == '\u200b':
		return fmt.Sprintf("an invisible character (%U, zero-width space)", r), "remove it"
	}
	return fmt.Sprintf("an invisible character (%U)", r), `remove it; where it is meant, write it as "\u` + strings.ToLower(fmt.Sprintf("%04x", r)) + `" in double quotes`
}

// invisible reports what nobody sees in names and values, and, to mend them, takes it out of them,
// so that it is told once. What is written as an escape is meant; reasons and comments are for
// people.
func (s *source) invisible(n *yaml.Node, mend bool) (found []*Error) {
	switch n.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(n.Content); i += 2 {
			found = append(found, s.invisible(n.Content[i], mend)...)
			if n.Content[i].Value != "reason" {
				found = append(found, s.invisible(n.Content[i+1], mend)...)
			}
		}
	case yaml.SequenceNode:
		for _, item := range n.Content {
			found = append(found, s.invisible(item, mend)...)
		}
	case yaml.ScalarNode:
		i := strings.IndexFunc(n.Value, isInvisible)
		if i < 0 {
			break
		}
		r := []rune(n.Value[i:])[0]
		line, column := s.find(n, r)
		if line == 0 {
			break
		}
		message, hint := describeInvisible(r)
		found = append(found, s.errorAt(line, column, message, hint))
		if !mend {
			break
		}
		n.Value = strings.TrimSpace(strings.Map(func(r rune) rune {
			switch {
			case !isInvisible(r):
				return r
			case unicode.Is(unicode.Zs, r):
				return ' '
			}
			return -1
		}, n.Value))
	}
	return found
}

// find looks for a character in the lines that a scalar takes; 0 when it is there as an escape.
func (s *source) find(n *yaml.Node, r rune) (line, column int) {
	last := n.Line + strings.Count(n.Value, "\n") + 1
	for line := n.Line; line <= min(last, len(s.lines)); line++ {
		text := []rune(s.line(line))
		from := 0
		if line == n.Line {
			from = min(max(n.Column-1, 0), len(text))
		}
		if i := slices.Index(text[from:], r); i >= 0 {
			return line, from + i + 1
		}
	}
	return 0, 0
}

var gluedLine = regexp.MustCompile(`^(\s*(?:- +)*(?:\{ *)?)([A-Za-z_]+):([^\s:/].*)$`)

// behindSyntax looks for what YAML reports at another line, or as something else: characters that
// nobody sees, and colons without a blank behind them. nil when there is neither.
func (s *source) behindSyntax(before int, words *Vocabulary) *Error {
	for i, line := range s.lines {
		if before > 0 && i >= before {
			break
		}
		code := line
		if at := strings.Index(" "+line, " #"); at >= 0 {
			code = line[:at]
		}
		column := 0
		for _, r := range code {
			column++
			if isInvisible(r) && !strings.Contains(code, "reason:") {
				message, hint := describeInvisible(r)
				return s.errorAt(i+1, column, message, hint)
			}
		}
		if m := gluedLine.FindStringSubmatch(code); m != nil && slices.Contains(words.Fields, m[2]) {
			return s.errorAt(i+1, len([]rune(m[1]))+len(m[2])+1, gluedMessage, fmt.Sprintf("write %s: %s", m[2], scalar.Shortened(strings.TrimSpace(m[3]))))
		}
	}
	return nil
}

const gluedMessage = "there is no blank behind the colon, so that YAML sees no field here"
