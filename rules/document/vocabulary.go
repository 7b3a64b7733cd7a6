package document

import "slices"

// Vocabulary lists the words of one language's Files, for guesses at what was meant.
type Vocabulary struct {
	Empty      string // the message for a file without a document
	EmptyHint  string
	SecondHint string                      // for a second document
	Foreign    func(lines []string) string // says what a file is that is no YAML; "" when it is not known

	Fields   []string                     // the names of all fields, in any place
	Places   map[string]string            // where a field belongs that stands elsewhere
	Examples map[string]string            // how a mapping is written
	Synonyms map[string]Synonym           // fields that people write, folded
	Values   map[string]map[string]string // values that people write, folded, by field, and what they are here
}

// Synonym is a field of another language, and what it is here.
type Synonym struct {
	Fields []string // what it may be, by what stands where it was written
	Write  string   // how to write it
}

// here is the field that a synonym is among those that may stand in one place; "" when none of them
// may.
func (s Synonym) here(known []string) string {
	for _, field := range s.Fields {
		if slices.Contains(known, field) {
			return field
		}
	}
	return ""
}
