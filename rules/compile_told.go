package rules

import (
	"strings"

	"github.com/cespare/xxhash/v2"
	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// toldReader reads a limit: a number, or which attribute tells it.
type toldReader struct{ *limitReader }

func (c toldReader) limit(n *yaml.Node, in *place[toldReader]) {
	if (draftReader{c.limitReader}).limit(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		c.l.Limit = c.numberAtMost(n, "limit", limitNumber)
		return
	}
	if len(n.Content) == 0 {
		c.Fail(n, in.missing, "limit is an empty mapping")
		return
	}
	c.l.Told = &Told{}
	o, ok := in.inside(c, c.File, n)
	if ok && c.l.Limit > c.l.Told.Most && c.l.Told.Most > 0 {
		c.Fail(o.At("else"), "`most` bounds what events tell; `else` holds where they tell nothing", "else, %v, is more than most, %v", c.l.Limit, c.l.Told.Most)
	}
}

// numberAtMost reads a number that the limit may have.
func (c toldReader) numberAtMost(n *yaml.Node, what string, read func(*compiler, *yaml.Node, string, *Rule) event.Decimal) event.Decimal {
	number := read(c.compiler, n, what, c.l.Rule)
	c.atMost(n, number)
	return number
}

func (c toldReader) from(n *yaml.Node) {
	what, ok := c.Text(n, "from")
	if !ok {
		return
	}
	name, attr := strings.CutPrefix(what, "attrs.")
	if !attr || name == "" {
		c.Fail(n, "as in from: attrs.quota", "a limit is told by an attribute, not by %q", scalar.Shortened(what))
		return
	}
	wordReader{c.compiler}.attrName(n, name)
	c.numberAttr(n, name)
	c.l.Told.Attr, c.l.Told.id = name, xxhash.Sum64String("from "+what)>>32|1
}
