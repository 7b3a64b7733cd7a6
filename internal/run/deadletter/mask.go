package deadletter

import (
	"regexp"
	"strings"
	"unicode"
)

const (
	maxShape = 240 // characters of a value that are shown
	maxName  = 40  // of a field's name
)

// Shape is a value as it may be shown to everybody: what kind of text it is, and its fields' names, without what
// they say. Only the values of api and outcome stay.
func (l *Letter) Shape() string {
	text := string(l.Value64)
	if l.Value != nil {
		text = *l.Value
	}
	m := masking{in: []rune(text)}
	for m.at < len(m.in) && m.shown < maxShape {
		m.next()
	}
	if m.at < len(m.in) || l.CutFrom != 0 {
		m.put("…")
	}
	return m.out.String()
}

// masking hides what is in JSON, or in what was to be JSON.
type masking struct {
	in    []rune
	at    int
	out   strings.Builder
	shown int
	field string // the name before the value
}

func (m *masking) put(text string) {
	m.out.WriteString(text)
	m.shown += len(text)
}

func (m *masking) next() {
	switch r := m.in[m.at]; {
	case r == '"' || r == '\'':
		m.quoted(r)
	case unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r > unicode.MaxASCII:
		m.word()
	case r == ',' || r == '{' || r == '}' || r == '[' || r == ']':
		m.field = ""
		m.put(string(r))
		m.at++
	case unicode.IsControl(r):
		m.put(" ")
		m.at++
	default:
		m.put(string(r))
		m.at++
	}
}

// quoted shows a name, and hides a value.
func (m *masking) quoted(quote rune) {
	end := m.at + 1
	for end < len(m.in) && m.in[end] != quote {
		if m.in[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(m.in))
	text := string(m.in[m.at+1 : end])
	m.at = min(end+1, len(m.in))
	behind := m.at
	for behind < len(m.in) && unicode.IsSpace(m.in[behind]) {
		behind++
	}
	isName := behind < len(m.in) && m.in[behind] == ':' && m.field == ""
	said := m.field == "api" || m.field == "outcome"
	if isName {
		m.field = text
	}
	if !(isName || said) || len(text) > maxName || strings.ContainsFunc(text, func(r rune) bool { return !named(r) }) {
		text = "•••"
	}
	m.put(`"` + text + `"`)
}

// named reports whether a character is of those that names have.
func named(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/ ", r)
}

// word shows what JSON has without quotes, and hides everything else.
func (m *masking) word() {
	from := m.at
	for m.at < len(m.in) && (unicode.IsLetter(m.in[m.at]) || unicode.IsDigit(m.in[m.at]) || strings.ContainsRune("_.+-", m.in[m.at]) || m.in[m.at] > unicode.MaxASCII) {
		m.at++
	}
	switch text := string(m.in[from:m.at]); text {
	case "true", "false", "null":
		m.put(text)
	default:
		m.put("•••")
	}
}

var said = regexp.MustCompile("\"(?:[^\"\\\\]|\\\\.)*\"|'[^']*'|`[^`]*`|[0-9]{4,}")

// About is the detail without what it cites.
func (l *Letter) About() string { return said.ReplaceAllString(l.Detail, "•••") }
