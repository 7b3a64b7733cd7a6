package rules

import (
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/document"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// count reads what a rule counts.
func (c *ruleReader) count(n *yaml.Node, in *place[*ruleReader]) {
	if n.Kind == yaml.ScalarNode {
		hint := "leave count out to count events, or write count: {sum: attrs.NAME} or count: {distinct: attrs.NAME}"
		c.Fail(n, hint, "count is a mapping, not %s", document.Describe(n))
		return
	}
	o, ok := in.object(c.File, n)
	if !ok {
		return
	}
	sum, distinct := o.Get("sum"), o.Get("distinct")
	switch {
	case sum != nil && distinct != nil:
		c.Fail(distinct, "write a rule for each", "count has `sum` or `distinct`, not both")
	case sum == nil && distinct == nil && o.Sound():
		c.Fail(o.Node, "write {sum: attrs.NAME}, {sum: cost} or {distinct: attrs.NAME}", "count needs `sum` or `distinct`")
	default:
		in.read(c, o)
	}
}

func (c *ruleReader) sum(n *yaml.Node) {
	what, ok := c.Text(n, "sum")
	name, attr := strings.CutPrefix(what, "attrs.")
	switch {
	case !ok:
	case what == "cost":
		c.r.Count = CountSum
	case attr && name != "":
		c.r.Count, c.r.Attr = CountSum, name
		wordReader{c.compiler}.attrName(n, name)
		c.numberAttr(n, name)
	default:
		c.Fail(n, "what can be summed is cost, and an attribute as attrs.NAME", "%q can't be summed", scalar.Shortened(what))
	}
}

func (c *ruleReader) distinct(n *yaml.Node) {
	what, ok := c.Text(n, "distinct")
	name, attr := strings.CutPrefix(what, "attrs.")
	switch {
	case !ok:
	case attr && name != "":
		c.r.Count, c.r.Attr = CountDistinct, name
		wordReader{c.compiler}.attrName(n, name)
		c.knownAttr(n, name)
	case slices.Contains(distinctFields, what):
		c.r.Count, c.r.Field = CountDistinct, what
	default:
		c.Fail(n, "what can be told apart is api, ip, uid, and an attribute as attrs.NAME", "distinct values of %q can't be counted%s",
			scalar.Shortened(what), scalar.DidYouMean(what, distinctFields))
	}
	if ok && slices.Contains(c.r.Shape.dims(), what) {
		c.Fail(n, "", "%s is a dimension of the key: it has one value for each key", what)
	}
}

// distinctFields can be counted besides attributes.
var distinctFields = []string{"api", "ip", "uid"}

// refunds reads whether a rule remembers its events.
func (c *ruleReader) refunds(n *yaml.Node) {
	c.r.Refunds = c.Bool(n, "refunds")
	if c.r.Refunds && c.r.Count == CountDistinct {
		c.Fail(n, "only counts and sums can be taken back: leave `refunds` out", "distinct values have no refunds")
	}
}
