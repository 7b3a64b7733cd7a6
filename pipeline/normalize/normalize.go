// Package normalize gives one form to keys that people type: coupon codes, mail addresses, names.
//
// It is a package of its own, so that emit links no tables of characters.
package normalize

import (
	"strings"
	"unicode"

	"golang.org/x/text/unicode/norm"
)

// Key returns text without the white space around it, in lower case, and in Unicode's form NFC: " Spring10 " is
// spring10. Use it for a value both where it is emitted and where it is checked: a limit on what was typed would else be
// one for each way to type it. Characters that only look alike stay different.
//
// Each character is lowered by itself, in no language's way, as the clients for Python, Node and Java do it:
// testdata/vectors/keys.json has what all of them answer.
func Key(text string) string {
	text = strings.Map(unicode.ToLower, norm.NFC.String(text))
	return strings.TrimSpace(norm.NFC.String(text)) // what was lowered may compose anew
}
