package event

// CanonicalNumber returns the text by which keys compare a JSON number, as Value has it: 42
// for 42.0. It is false for what is no number, or one beyond all bounds.
func CanonicalNumber(s string) (text string, ok bool) {
	text, _, ok = canonicalNumber(s, nil)
	return text, ok
}
