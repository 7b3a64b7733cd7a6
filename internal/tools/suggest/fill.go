package suggest

import (
	"errors"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/windows"
)

const (
	maxExact = windows.ExactDistinct * event.One
	word     = "suggest"
)

// fill returns the draft's rules with the suggested numbers in the place of the words, as they are written. A limit
// for which there is no number keeps the word.
func fill(d *rules.Draft, limits []Limit) (string, error) {
	lines := strings.Split(string(d.Source), "\n")
	places := slices.Clone(d.Sought)
	slices.SortFunc(places, func(a, b rules.Sought) int { // from the right: what is replaced moves nothing that comes
		if a.Line != b.Line {
			return b.Line - a.Line
		}
		return b.Column - a.Column
	})
	begins := []int{}
	for _, s := range places {
		i := slices.IndexFunc(limits, func(l Limit) bool { return l.Rule == s.Limit })
		if i < 0 || s.Line > len(lines) {
			return "", errors.New("fill in the numbers: the draft has no such place")
		}
		if limits[i].Suggest > 0 {
			lines[s.Line-1] = replaced(lines[s.Line-1], s.Column, written(limits[i].Suggest))
		}
		begins = append(begins, s.Rule)
	}
	slices.Sort(begins)
	var out strings.Builder
	for _, begin := range slices.Compact(begins) {
		for _, line := range lines[begin-1 : end(lines, begin)] {
			out.WriteString(line + "\n")
		}
	}
	return out.String(), nil
}

// replaced writes a number in the place of the word that stands at a column, with its quotes, or behind an anchor.
func replaced(line string, column int, number string) string {
	at := len(string([]rune(line)[:min(column-1, len([]rune(line)))]))
	i := strings.Index(line[at:], word)
	if i < 0 {
		return line
	}
	from, to := at+i, at+i+len(word)
	if from > at && to < len(line) && strings.ContainsRune(`"'`, rune(line[from-1])) && line[from-1] == line[to] {
		from, to = from-1, to+1
	}
	return line[:from] + number + line[to:]
}

// end is the last line of a rule that begins on a line: what follows is not indented deeper. Comments and blank lines
// between two rules belong to the second one.
func end(lines []string, begin int) int {
	deep := indent(lines[begin-1])
	last := begin
	for i := begin; i < len(lines); i++ {
		text := strings.TrimSpace(lines[i])
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		if indent(lines[i]) <= deep {
			break
		}
		last = i + 1
	}
	return last
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " ")) }

// spanText writes a span of time with its two largest units.
func spanText(span event.Micros) string { return words.Span(span.Duration()) }
