package rules

import (
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// count reads what a rule counts.
func (c *compiler) count(n *yaml.Node, r *Rule) {
	if n.Kind == yaml.ScalarNode {
		hint := "leave count out to count events, or write count: {sum: attrs.NAME} or count: {distinct: attrs.NAME}"
		c.fail(n, hint, "count is a mapping, not %s", describe(n))
		return
	}
	o, ok := c.object(n, "count", "sum", "distinct")
	if !ok {
		return
	}
	sum, distinct := o.get("sum"), o.get("distinct")
	switch {
	case sum != nil && distinct != nil:
		c.fail(distinct, "write a rule for each", "count has `sum` or `distinct`, not both")
	case distinct != nil:
		c.distinct(distinct, r)
	case sum != nil:
		c.sum(sum, r)
	case len(o.spoilt) == 0 && !o.merged:
		c.fail(o.node, "write {sum: attrs.NAME}, {sum: cost} or {distinct: attrs.NAME}", "count needs `sum` or `distinct`")
	}
}

func (c *compiler) sum(n *yaml.Node, r *Rule) {
	what, ok := c.text(n, "sum")
	name, attr := strings.CutPrefix(what, "attrs.")
	switch {
	case !ok:
	case what == "cost":
		r.Count = CountSum
	case attr && name != "":
		r.Count, r.Attr = CountSum, name
	default:
		c.fail(n, "what can be summed is cost, and an attribute as attrs.NAME", "%q can't be summed", scalar.Shortened(what))
	}
}

func (c *compiler) distinct(n *yaml.Node, r *Rule) {
	what, ok := c.text(n, "distinct")
	name, attr := strings.CutPrefix(what, "attrs.")
	switch {
	case !ok:
	case attr && name != "":
		r.Count, r.Attr = CountDistinct, name
	case slices.Contains(distinctFields, what):
		r.Count, r.Field = CountDistinct, what
	default:
		c.fail(n, "what can be told apart is api, ip, uid, and an attribute as attrs.NAME", "distinct values of %q can't be counted%s",
			scalar.Shortened(what), scalar.DidYouMean(what, distinctFields))
	}
	if ok && slices.Contains(r.Shape.dims(), what) {
		c.fail(n, "", "%s is a dimension of the key: it has one value for each key", what)
	}
}

// distinctFields are what can be counted besides attributes.
var distinctFields = []string{"api", "ip", "uid"}

func (k *KeyShape) dims() []string {
	if k == nil {
		return nil
	}
	return k.Dims
}

// refunds reads whether a rule remembers its events.
func (c *compiler) refunds(o *object, r *Rule) {
	n := o.get("refunds")
	if n == nil {
		return
	}
	r.Refunds = c.boolean(n, "refunds")
	if r.Refunds && r.Count == CountDistinct {
		c.fail(n, "only counts and sums can be taken back: leave `refunds` out", "distinct values have no refunds")
	}
}

// boolean reads true or false.
func (c *compiler) boolean(n *yaml.Node, what string) bool {
	s, ok := c.text(n, what)
	if ok && n.ShortTag() != "!!bool" {
		hint := fmt.Sprintf("write %s: true", what)
		if n.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
			hint += ", without quotes"
		}
		c.fail(n, hint, "%s is true or false, not %s", what, describe(n))
		return false
	}
	return ok && strings.EqualFold(s, "true")
}
