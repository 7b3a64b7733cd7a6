// Package diff compares two versions of a group's rules: line by line, and by meaning.
package diff

import (
	"strconv"
	"strings"

	"github.com/rogpeppe/go-internal/diff"
)

// Kind is a line's change.
type Kind string

// What becomes of lines. They are names of CSS classes, too.
const (
	Same    Kind = "same"
	Added   Kind = "added"
	Removed Kind = "removed"
	Left    Kind = "left-out" // lines that are the same, and are not shown
)

// Line is a line of a unified diff.
type Line struct {
	Kind     Kind
	Old, New int // its number in the old and the new text, from 1; 0 where it is not
	Text     string
}

// Pair is a row of two texts side by side: a side without a line has the number 0.
type Pair struct {
	Old, New Line
}

// Unified returns the changed lines between two texts, with some lines around them. It is empty when the texts
// are the same.
func Unified(old, now string) (lines []Line) {
	text := string(diff.Diff("old", ended(old), "new", ended(now)))
	oldAt, newAt := 0, 0
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		switch {
		case oldAt == 0 && !strings.HasPrefix(line, "@@"): // the head
		case strings.HasPrefix(line, "@@"):
			o, n := places(line)
			if lines == nil && o > 1 || lines != nil {
				lines = append(lines, Line{Kind: Left})
			}
			oldAt, newAt = o, n
		case strings.HasPrefix(line, "+"):
			lines = append(lines, Line{Kind: Added, New: newAt, Text: line[1:]})
			newAt++
		case strings.HasPrefix(line, "-"):
			lines = append(lines, Line{Kind: Removed, Old: oldAt, Text: line[1:]})
			oldAt++
		default:
			lines = append(lines, Line{Kind: Same, Old: oldAt, New: newAt, Text: strings.TrimPrefix(line, " ")})
			oldAt, newAt = oldAt+1, newAt+1
		}
	}
	return lines
}

// ended ends the last line, so that no note about its end is in the diff.
func ended(text string) []byte {
	if text != "" && !strings.HasSuffix(text, "\n") {
		text += "\n"
	}
	return []byte(text)
}

// places are the first lines of a hunk: @@ -OLD,n +NEW,n @@. A side without lines counts from 0.
func places(head string) (old, now int) {
	for _, part := range strings.Fields(head) {
		first, _, _ := strings.Cut(strings.TrimLeft(part, "+-"), ",")
		n, err := strconv.Atoi(first)
		switch {
		case err != nil:
		case part[0] == '-':
			old = max(n, 1)
		case part[0] == '+':
			now = max(n, 1)
		}
	}
	return old, now
}

// SideBySide puts removed lines beside those that stand in their place.
func SideBySide(lines []Line) (pairs []Pair) {
	for i := 0; i < len(lines); {
		if k := lines[i].Kind; k == Same || k == Left {
			pairs = append(pairs, Pair{lines[i], lines[i]})
			i++
			continue
		}
		var gone, come []Line
		for ; i < len(lines) && lines[i].Kind == Removed; i++ {
			gone = append(gone, lines[i])
		}
		for ; i < len(lines) && lines[i].Kind == Added; i++ {
			come = append(come, lines[i])
		}
		for n := range max(len(gone), len(come)) {
			var p Pair
			if n < len(gone) {
				p.Old = gone[n]
			}
			if n < len(come) {
				p.New = come[n]
			}
			pairs = append(pairs, p)
		}
	}
	return pairs
}

// Count counts the lines added and removed.
func Count(lines []Line) (added, removed int) {
	for _, l := range lines {
		switch l.Kind {
		case Added:
			added++
		case Removed:
			removed++
		case Same, Left:
		}
	}
	return added, removed
}
