// Package scalar reads what rule files write as one value: durations, numbers, names of APIs and of time
// zones. For one that it can't read it guesses what was meant.
package scalar

import (
	"strings"

	"github.com/tallygate/tallygate/rules/didyoumean"
)

// DidYouMean returns `; did you mean "x"?` for the candidate that word is probably a slip
// of, or nothing.
func DidYouMean(word string, candidates []string) string { return didyoumean.Hint(word, candidates) }

// Closest returns the candidate nearest to word, unless all are too far away.
func Closest(word string, candidates []string) string { return didyoumean.Closest(word, candidates) }

// Folded is a word in lower case, without '-' and '_'.
func Folded(s string) string { return didyoumean.Folded(s) }

// Words reads pairs of a word that people write, folded, and what it is here.
func Words(pairs ...string) map[string]string {
	out := map[string]string{}
	for _, pair := range pairs {
		word, ours, _ := strings.Cut(pair, " ")
		out[word] = ours
	}
	return out
}
