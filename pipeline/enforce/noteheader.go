package enforce

import (
	"errors"
	"fmt"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// NoteHeader is the field of a response by which a server behind a reverse proxy notes something for its
// request's event.
const NoteHeader = "Tallygate-Note"

// ParseNote reads the field's values: a dictionary of RFC 9651 with the keys outcome, cost, id and
// attrs.NAME, as in
//
//	Tallygate-Note: outcome=failure, cost=2, attrs.discounted=true, attrs.plan="pro"
//
// Names of attributes may have capital letters, too. ?1, true and a key alone are true, ?0 and false are
// false.
func ParseNote(values ...string) (notes []Noted, err error) {
	p := fieldReader{rest: strings.Join(values, ",")}
	for {
		p.skip(" \t")
		if p.rest == "" {
			return notes, nil
		}
		key, value, err := p.member()
		if err != nil {
			return nil, err
		}
		note, err := noteOf(key, value)
		if err != nil {
			return nil, err
		}
		notes = append(notes, note)
		p.skip(" \t")
		if p.rest == "" {
			return notes, nil
		}
		if !p.take(',') {
			return nil, fmt.Errorf("a comma is missing before %.20q", p.rest)
		}
		if p.skip(" \t"); p.rest == "" {
			return nil, errors.New("nothing follows the last comma")
		}
	}
}

func noteOf(key string, v event.Value) (Noted, error) {
	switch key {
	case "outcome", "id":
		if v.Kind == event.Bool {
			return Noted{}, fmt.Errorf("%s has no text", key)
		}
		if key == "id" {
			return EventID(v.Text), nil
		}
		return Outcome(v.Text), nil
	case "cost":
		cost, ok := v.Decimal()
		if !ok || cost < 0 {
			return Noted{}, errors.New("cost is a number that is not negative")
		}
		return Cost(cost), nil
	}
	if name, ok := strings.CutPrefix(key, "attrs."); ok && name != "" {
		return Attr(name, v), nil
	}
	return Noted{}, fmt.Errorf("unknown key %.40q: there are outcome, cost, id and attrs.NAME", key)
}

// fieldReader reads a structured field, as far as notes need it.
type fieldReader struct{ rest string }

func (p *fieldReader) skip(chars string) { p.rest = strings.TrimLeft(p.rest, chars) }

func (p *fieldReader) take(c byte) bool {
	if p.rest == "" || p.rest[0] != c {
		return false
	}
	p.rest = p.rest[1:]
	return true
}

// while takes the characters that are of a kind.
func (p *fieldReader) while(is func(c byte) bool) string {
	n := 0
	for n < len(p.rest) && is(p.rest[n]) {
		n++
	}
	taken := p.rest[:n]
	p.rest = p.rest[n:]
	return taken
}

// member reads a key and its value. Parameters are read, and mean nothing here.
func (p *fieldReader) member() (key string, v event.Value, err error) {
	if key = p.while(isKey); key == "" || !isAlpha(key[0]) && key[0] != '*' {
		return "", v, fmt.Errorf("a key begins with a letter, and none is at %.20q", key+p.rest)
	}
	v = event.BoolValue(true)
	if p.take('=') {
		if v, err = p.item(); err != nil {
			return "", v, fmt.Errorf("%s: %w", key, err)
		}
	}
	for p.take(';') {
		p.skip(" ")
		if name := p.while(isKey); name == "" {
			return "", v, fmt.Errorf("%s: a parameter has no name", key)
		}
		if p.take('=') {
			if _, err := p.item(); err != nil {
				return "", v, fmt.Errorf("%s: %w", key, err)
			}
		}
	}
	return key, v, nil
}

// item reads a string, a token, a number or a boolean.
func (p *fieldReader) item() (event.Value, error) {
	switch {
	case p.rest == "":
		return event.Value{}, errors.New("nothing follows the =")
	case p.take('"'):
		text, err := p.quoted()
		return event.StringValue(text), err
	case p.take('?'):
		if yes := p.take('1'); yes || p.take('0') {
			return event.BoolValue(yes), nil
		}
		return event.Value{}, errors.New("a boolean is ?0 or ?1")
	case isAlpha(p.rest[0]) || p.rest[0] == '*':
		text := p.while(isToken)
		if text == "true" || text == "false" {
			return event.BoolValue(text == "true"), nil
		}
		return event.StringValue(text), nil
	}
	text := p.while(func(c byte) bool { return isDigit(c) || c == '-' || c == '.' })
	whole, fraction, point := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	n, err := event.ParseDecimal(text)
	if err != nil || whole == "" || len(whole) > 15 || point && (fraction == "" || len(whole) > 12 || len(fraction) > 3) {
		return event.Value{}, fmt.Errorf("%.20q is neither a number nor a text; a text stands in double quotes", text+p.rest)
	}
	return event.NumberValue(n), nil
}

func (p *fieldReader) quoted() (string, error) {
	var text strings.Builder
	for p.rest != "" {
		c := p.rest[0]
		p.rest = p.rest[1:]
		switch {
		case c == '"':
			return text.String(), nil
		case c == '\\' && p.rest != "" && (p.rest[0] == '"' || p.rest[0] == '\\'):
			c, p.rest = p.rest[0], p.rest[1:]
		case c == '\\' || c < ' ' || c > '~':
			return "", errors.New("a string has ASCII characters only, and a backslash stands before a quote or another one")
		}
		text.WriteByte(c)
	}
	return "", errors.New("a string does not end")
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

func isKey(c byte) bool { return isAlpha(c) || isDigit(c) || strings.IndexByte("_-.*", c) >= 0 }

func isToken(c byte) bool {
	return isAlpha(c) || isDigit(c) || strings.IndexByte("!#$%&'*+-.^_`|~:/", c) >= 0
}
