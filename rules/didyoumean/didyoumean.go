// Package didyoumean finds the known word nearest to a misspelled one, in rule files, commands and options.
package didyoumean

import (
	"fmt"
	"strings"
)

// Hint returns `; did you mean "x"?` for the candidate that word is probably a slip
// of, or nothing.
func Hint(word string, candidates []string) string {
	if best := Closest(word, candidates); best != "" {
		return fmt.Sprintf("; did you mean %q?", best)
	}
	return ""
}

// Closest returns the candidate nearest to word by edit distance, unless all are too far
// away. Case, '-' and '_' don't count.
func Closest(word string, candidates []string) string {
	const longest = 64 // a longer word is no slip of the pen
	if len(word) > longest {
		return ""
	}
	w := Folded(word)
	best, bestDistance := "", 1+min(len(w)/3, 3)
	for _, candidate := range candidates {
		d := editDistance(w, Folded(candidate))
		if len(w) >= 3 && strings.HasPrefix(Folded(candidate), w) {
			d = min(d, 1) // an abbreviation
		}
		if d < bestDistance {
			best, bestDistance = candidate, d
		}
	}
	return best
}

// Folded is a word in lower case, without '-' and '_'.
func Folded(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '-' || r == '_' {
			return -1
		}
		return r
	}, strings.ToLower(s))
}

// editDistance counts the insertions, deletions, substitutions and swaps of neighbours
// between a and b (optimal string alignment).
func editDistance(a, b string) int {
	var before []int
	last, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := range len(a) {
		row[0] = i + 1
		for j := range len(b) {
			substitution := last[j]
			if a[i] != b[j] {
				substitution++
			}
			row[j+1] = min(last[j+1]+1, row[j]+1, substitution)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				row[j+1] = min(row[j+1], before[j-1]+1)
			}
		}
		before, last, row = last, row, make([]int, len(b)+1)
	}
	return last[len(b)]
}
