package event

import (
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads one JSON text. It takes exactly what encoding/json takes, and gives strings the
// same values: bytes that are no UTF-8 and halves of surrogate pairs become U+FFFD. (A refusal
// would let whoever controls one byte of an attribute keep an event from being counted.)
//
// It is the only scanner of JSON. verdict.Parse needs none: it compares a text with the one form that
// verdicts are written in, and leaves every other to encoding/json.
//
// Strings without escapes are pieces of the text itself; the others are built in buf.
type scanner struct {
	s     string
	i     int
	depth int    // containers around what comes next
	buf   []byte // unescaped strings and rewritten numbers, behind those of earlier texts

	failedAt int    // where a method returned false,
	failure  string // and why

	inObject [maxDepth/64 + 1]uint64 // skip's stack: a bit for each open container
}

// maxDepth is the greatest depth of encoding/json.
const maxDepth = 10_000

type tokenKind uint8

const (
	tokNull tokenKind = iota
	tokString
	tokNumber
	tokBool
	tokObject
	tokArray
)

// token is one JSON value. Of a container, text is all of it.
type token struct {
	kind  tokenKind
	plain bool // a string that is ASCII without escapes, or a number of digits only, without a leading zero
	text  string
	at    int
}

func (p *scanner) reset(s string) {
	p.s, p.i, p.depth, p.failure = s, 0, 0, ""
}

func (p *scanner) fail(at int, why string) bool {
	p.failedAt, p.failure = at, why
	return false
}

// special are the bytes that end or bend a string: quotes, escapes, controls, non-ASCII.
var special = func() (t [256]bool) {
	for c := range t {
		t[c] = c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf
	}
	return t
}()

// peek returns the next byte that is no white space, 0 at the end.
func (p *scanner) peek() byte {
	if p.i < len(p.s) && p.s[p.i] > ' ' {
		return p.s[p.i]
	}
	return p.peekSlow()
}

func (p *scanner) peekSlow() byte {
	for ; p.i < len(p.s); p.i++ {
		switch c := p.s[p.i]; c {
		case ' ', '\n', '\r', '\t':
		case 0:
			return 1 // no JSON begins with it, and it is not the end
		default:
			return c
		}
	}
	return 0
}

// name reads a member's name and its colon, and stops at its value.
func (p *scanner) name() (string, bool) {
	if p.peek() != '"' {
		return "", p.fail(p.i, "expected a field's name in double quotes")
	}
	name, _, ok := p.str()
	if !ok {
		return "", false
	}
	if p.peek() != ':' {
		return "", p.fail(p.i, "expected ':' behind a field's name")
	}
	p.i++
	p.peek()
	return name, true
}

// open enters the container whose bracket is next; more is false when it is empty.
func (p *scanner) open(end byte) (more, ok bool) {
	if p.depth++; p.depth > maxDepth {
		return false, p.fail(p.i, "nested too deep")
	}
	p.i++
	if p.peek() == end {
		p.i++
		p.depth--
		return false, true
	}
	return true, true
}

// next goes on behind a member or an element; more is false when the container ended.
func (p *scanner) next(end byte) (more, ok bool) {
	switch p.peek() {
	case ',':
		p.i++
		p.peek()
		return true, true
	case end:
		p.i++
		p.depth--
		return false, true
	}
	return false, p.fail(p.i, "expected ',' or the end of the object or array")
}

// value reads any value.
func (p *scanner) value(t *token) bool {
	switch c := p.peek(); {
	case c == '"':
		var ok bool
		t.kind, t.at = tokString, p.i
		t.text, t.plain, ok = p.str()
		return ok
	case c == '-' || c-'0' <= 9:
		t.kind, t.at = tokNumber, p.i
		return p.number(t)
	case c == '{' || c == '[':
		t.kind, t.at = tokObject, p.i
		if c == '[' {
			t.kind = tokArray
		}
		if !p.skip() {
			return false
		}
		t.text, t.plain = p.s[t.at:p.i], false
		return true
	case c == 't':
		return p.literal(t, tokBool, "true")
	case c == 'f':
		return p.literal(t, tokBool, "false")
	case c == 'n':
		return p.literal(t, tokNull, "null")
	}
	return p.fail(p.i, "expected a value")
}

func (p *scanner) literal(t *token, kind tokenKind, text string) bool {
	if len(p.s)-p.i < len(text) || p.s[p.i:p.i+len(text)] != text {
		return p.fail(p.i, "expected a value")
	}
	t.kind, t.plain, t.text, t.at = kind, false, text, p.i
	p.i += len(text)
	return true
}

func (p *scanner) number(t *token) bool {
	i := p.i + digits(p.s[p.i:])
	if i > p.i && (p.s[p.i] != '0' || i == p.i+1) && i < len(p.s) && (p.s[i] == ',' || p.s[i] == '}') {
		t.text, t.plain = p.s[p.i:i], true
		p.i = i
		return true
	}
	for i = p.i; i < len(p.s) && inNumber(p.s[i]); {
		i++
	}
	if _, ok := splitNumber(p.s[p.i:i]); !ok {
		return p.fail(p.i, "not a number as JSON writes it")
	}
	t.text, t.plain = p.s[p.i:i], false
	p.i = i
	return true
}

func inNumber(c byte) bool {
	return c-'0' <= 9 || c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E'
}

// skip passes a container, without recursion: how deep a record nests is its sender's choice.
func (p *scanner) skip() bool {
	base := p.depth
	var t token
	for {
		object := p.s[p.i] == '{'
		end := byte(']')
		if object {
			end = '}'
		}
		more, ok := p.open(end)
		if !ok {
			return false
		}
		if more {
			p.remember(object)
		}
		for descend := false; !descend; {
			if !more {
				if p.depth == base {
					return true
				}
				object, end = p.recall()
			} else {
				if object {
					if _, ok := p.name(); !ok {
						return false
					}
				}
				if c := p.peek(); c == '{' || c == '[' {
					descend = true
					continue
				}
				if !p.value(&t) {
					return false
				}
			}
			if more, ok = p.next(end); !ok {
				return false
			}
		}
	}
}

func (p *scanner) remember(object bool) {
	k := p.depth - 1
	p.inObject[k/64] &^= 1 << (k % 64)
	if object {
		p.inObject[k/64] |= 1 << (k % 64)
	}
}

func (p *scanner) recall() (object bool, end byte) {
	k := p.depth - 1
	if p.inObject[k/64]>>(k%64)&1 == 1 {
		return true, '}'
	}
	return false, ']'
}

// str reads the string whose quote is next. plain tells that it is ASCII, and was written without escapes.
func (p *scanner) str() (text string, plain, ok bool) {
	s, start := p.s, p.i+1
	i := start
	for ; len(s)-i >= 8; i += 8 {
		if n := firstSpecial(s[i : i+8]); n < 8 {
			i += n
			break
		}
	}
	for ; i < len(s); i++ {
		if !special[s[i]] {
			continue
		}
		if s[i] == '"' {
			p.i = i + 1
			return s[start:i], true, true
		}
		text, ok = p.bentString(start, i)
		return text, false, ok
	}
	return "", false, p.fail(p.i, "the string does not end")
}

// firstSpecial is the place of the first special byte of eight, 8 when there is none. Of each byte x the
// highest bit is set: of x-1 &^ x where x was 0, of x-0x20 &^ x where it was less than 0x20. A borrow
// may set the bits of bytes behind the first that it is right about, so only that one counts (Mycroft, 1987).
func firstSpecial(s string) int {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	_ = s[7]
	x := uint64(s[0]) | uint64(s[1])<<8 | uint64(s[2])<<16 | uint64(s[3])<<24 |
		uint64(s[4])<<32 | uint64(s[5])<<40 | uint64(s[6])<<48 | uint64(s[7])<<56
	quote, slash := x^ones*'"', x^ones*'\\'
	found := (quote-ones)&^quote | (slash-ones)&^slash | (x-ones*' ')&^x | x
	return bits.TrailingZeros64(found&high) / 8
}

// bentString goes on at i in a string that began at start.
func (p *scanner) bentString(start, i int) (string, bool) {
	copied := start     // p.s[copied:i] is not in buf yet
	begin := len(p.buf) // of this string in buf
	for i < len(p.s) {
		c := p.s[i]
		switch {
		case c == '"':
			p.i = i + 1
			if len(p.buf) == begin && copied == start {
				return p.s[start:i], true
			}
			p.buf = append(p.buf, p.s[copied:i]...)
			return sharedString(p.buf[begin:]), true
		case c < ' ':
			return "", p.fail(i, "a control character in a string: write it as \\u00XX")
		case c == '\\':
			p.buf = append(p.buf, p.s[copied:i]...)
			n := p.escape(i)
			if n == 0 {
				return "", p.fail(i, "not an escape of JSON")
			}
			i += n
			copied = i
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRuneInString(p.s[i:])
			if r == utf8.RuneError && size == 1 {
				p.buf = append(append(p.buf, p.s[copied:i]...), "\uFFFD"...)
				copied = i + 1
			}
			i += size
		}
	}
	return "", p.fail(start-1, "the string does not end")
}

// escape appends what the escape at i stands for to buf, and returns its length; 0 when it is none.
func (p *scanner) escape(i int) int {
	if i+1 >= len(p.s) {
		return 0
	}
	switch c := p.s[i+1]; c {
	case '"', '\\', '/':
		p.buf = append(p.buf, c)
	case 'b':
		p.buf = append(p.buf, '\b')
	case 'f':
		p.buf = append(p.buf, '\f')
	case 'n':
		p.buf = append(p.buf, '\n')
	case 'r':
		p.buf = append(p.buf, '\r')
	case 't':
		p.buf = append(p.buf, '\t')
	case 'u':
		r := p.hex4(i)
		if r < 0 {
			return 0
		}
		if !utf16.IsSurrogate(r) {
			p.buf = utf8.AppendRune(p.buf, r)
			return 6
		}
		if low := p.hex4(i + 6); low >= 0 {
			if both := utf16.DecodeRune(r, low); both != utf8.RuneError {
				p.buf = utf8.AppendRune(p.buf, both)
				return 12
			}
		}
		p.buf = utf8.AppendRune(p.buf, utf8.RuneError)
		return 6
	default:
		return 0
	}
	return 2
}

// hex4 reads the \uXXXX at i; -1 when it is none.
func (p *scanner) hex4(i int) (r rune) {
	if i+6 > len(p.s) || p.s[i] != '\\' || p.s[i+1] != 'u' {
		return -1
	}
	for _, c := range []byte(p.s[i+2 : i+6]) {
		d := unhex(c)
		if d > 15 {
			return -1
		}
		r = r<<4 | rune(d)
	}
	return r
}
