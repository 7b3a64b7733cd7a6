package verdict

import (
	"strconv"
	"strings"

	"github.com/tallygate/tallygate/event"
)

// parseKnown reads what AppendJSON writes, byte for byte, ten times as fast as encoding/json. It
// gives up on anything else, be it white space, an escape, another order or a mistake: parseAny
// then reads it, or says what is wrong. Snapshots are long, and nearly all of their verdicts are
// our own.
func parseKnown(text string) (v Verdict, ok bool) {
	c := cursor{rest: text, ok: true}
	c.skip(`{"rule":"`)
	v.Rule = c.plain()
	if c.is(`,"public":"`) {
		v.Public = c.plain()
	}
	c.skip(`,"key":{`)
	v.Key = c.dims()
	c.skip(`,"state":"`)
	v.State = State(c.name(stateNames[:]))
	c.skip(`,"mode":"`)
	v.Mode = Mode(c.name(modeNames[:]))
	c.skip(`,"action":"`)
	v.Action = Action(c.name(actionNames[:]))
	c.skip(`,"apis":[`)
	v.APIs = c.list()
	c.skip(`,"count":`)
	v.Count = c.decimal()
	c.skip(`,"limit":`)
	v.Limit = c.decimal()
	if c.is(`,"per":`) {
		v.Per = event.Micros(c.decimal())
		c.ok = c.ok && v.Per >= 0
	}
	c.skip(`,"since":"`)
	v.Since = c.moment()
	c.skip(`,"until":"`)
	v.Until = c.moment()
	c.skip(`,"seq":`)
	v.Seq = c.integer(64)
	if c.is(`,"step":"`) {
		v.Step = c.plain()
	}
	c.skip(`,"cause":{`)
	if c.is(`"id":"`) {
		v.Cause.ID = c.plain()
		c.skip(",")
	}
	c.skip(`"partition":`)
	v.Cause.Partition = int32(c.integer(32))
	c.skip(`,"offset":`)
	v.Cause.Offset = c.integer(64)
	c.skip("}")
	if c.is(`,"trace":"`) {
		v.Trace, _ = event.ParseTrace(c.plain())
	}
	c.skip("}")
	return v, c.ok && c.rest == "" && v.Rule != "" && len(v.Key) > 0
}

// cursor goes through a text as long as it is what is expected.
type cursor struct {
	rest string
	ok   bool
}

// is goes past text, if it is next.
func (c *cursor) is(text string) bool {
	rest, found := strings.CutPrefix(c.rest, text)
	if found {
		c.rest = rest
	}
	return found
}

func (c *cursor) skip(text string) { c.ok = c.is(text) && c.ok }

// plain reads a string of printable ASCII without escapes, up to and past its closing quote.
func (c *cursor) plain() string {
	for i := range len(c.rest) {
		switch b := c.rest[i]; {
		case b == '"':
			text := c.rest[:i]
			c.rest = c.rest[i+1:]
			return text
		case b < ' ' || b == '\\' || b >= 0x7f:
			c.ok = false
			return ""
		}
	}
	c.ok = false
	return ""
}

// dims reads a key's dimensions, which stand in the order of their names.
func (c *cursor) dims() (key []event.Dim) {
	for c.ok && !c.is("}") {
		if len(key) > 0 {
			c.skip(",")
		}
		c.skip(`"`)
		name := c.plain()
		c.skip(`:"`)
		value := c.plain()
		if name == "" || value == "" || len(key) > 0 && key[len(key)-1].Name >= name {
			c.ok = false
		}
		key = append(key, event.Dim{Name: name, Value: value})
	}
	return key
}

func (c *cursor) list() []string {
	list := make([]string, 0, 4)
	for c.ok && !c.is("]") {
		if len(list) > 0 {
			c.skip(",")
		}
		c.skip(`"`)
		list = append(list, c.plain())
	}
	return list
}

func (c *cursor) name(names []string) int {
	text := c.plain()
	for i, n := range names {
		if n == text {
			return i
		}
	}
	c.ok = false
	return 0
}

func (c *cursor) moment() event.Micros {
	m, err := event.ParseMicros(c.plain())
	c.ok = c.ok && err == nil
	return m
}

func (c *cursor) decimal() event.Decimal {
	d, err := event.ParseDecimal(c.number())
	c.ok = c.ok && err == nil
	return d
}

func (c *cursor) integer(bits int) int64 {
	text := c.number()
	n, err := strconv.ParseInt(text, 10, bits)
	c.ok = c.ok && err == nil && (len(text) < 2 || text[0] != '0') && !strings.HasPrefix(text, "-0")
	return n
}

func (c *cursor) number() string {
	i := 0
	for i < len(c.rest) && (c.rest[i] >= '0' && c.rest[i] <= '9' || c.rest[i] == '.' || c.rest[i] == '-') {
		i++
	}
	text := c.rest[:i]
	c.rest = c.rest[i:]
	return text
}
