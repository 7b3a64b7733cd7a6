package when

import (
	"net/netip"
	"strconv"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"

	"github.com/tallygate/tallygate/rules/internal/network"
	"github.com/tallygate/tallygate/rules/internal/scalar"
)

// inNetwork is the function that asks whether an address is in one of several networks.
const inNetwork = "inNetwork"

// addressVariable replaces ip where inNetwork asks for it: it is the address itself, so that no text is made of it
// and read again. No predicate can spell it.
const addressVariable = "ip as an address"

const howToAsk = `as in inNetwork(ip, "10.0.0.0/8", "2001:db8::/32")`

// networks are those that one call of inNetwork names.
type networks struct{ in []*network.Set }

func (n *networks) contain(addr netip.Addr) bool {
	for _, s := range n.in {
		if s.Contains(addr) {
			return true
		}
	}
	return false
}

// networkFunction is inNetwork. What is no address is in no network: it does not fail, since what attributes
// hold is up to those who send requests.
var networkFunction = expr.Function(inNetwork, func(args ...any) (any, error) {
	in, ok := args[len(args)-1].(*networks) // the restriction has put it there
	if !ok {
		return false, nil
	}
	switch of := args[0].(type) {
	case *netip.Addr:
		return in.contain(*of), nil
	case string:
		addr, err := netip.ParseAddr(of)
		return err == nil && in.contain(addr), nil
	}
	return false, nil
}, new(func(any, ...any) bool))

// network reads a call of inNetwork, and puts in what it names.
func (v *restriction) network(n *ast.CallNode) {
	if len(n.Arguments) < 2 {
		v.refuse(n, "inNetwork() takes an address and networks", howToAsk)
		return
	}
	in, own := &networks{}, []netip.Prefix(nil)
	for _, arg := range n.Arguments[1:] {
		text, ok := arg.(*ast.StringNode)
		if !ok {
			v.wrong(arg, "when: a network is a text in quotes, not "+scalar.Shortened(arg.String()), v.quoted(n, arg))
			continue
		}
		if network.IsListName(text.Value) {
			if set := v.names.Networks(text.Value); set != nil {
				in.in = append(in.in, set)
				continue
			}
			v.wrong(arg, "when: there is no list of networks "+strconv.Quote(scalar.Shortened(text.Value))+v.names.MeantNetworks(text.Value),
				"lists are named in spec.networks, as in networks: {office: [10.0.0.0/8]}")
			continue
		}
		p, problem, hint := network.Parse(text.Value)
		if problem != "" {
			v.wrong(arg, "when: "+problem, hint)
			continue
		}
		own = append(own, p)
	}
	if !v.inline {
		return
	}
	if len(own) > 0 {
		in.in = append(in.in, network.New(own))
	}
	n.Arguments = n.Arguments[:2]
	ast.Patch(&n.Arguments[1], &ast.ConstantNode{Value: in})
	if isVariable(n.Arguments[0], "ip") {
		ast.Patch(&n.Arguments[0], &ast.IdentifierNode{Value: addressVariable})
	}
}

// wrong reports a mistake that leaves no predicate, beside others like it.
func (v *restriction) wrong(n ast.Node, message, hint string) {
	v.refused = append(v.refused, Mistake{At: n.Location().From, Message: message, Hint: hint})
}

// quoted suggests quotes around a network.
func (v *restriction) quoted(call *ast.CallNode, arg ast.Node) string {
	switch arg := arg.(type) {
	case *ast.ArrayNode:
		return "networks stand side by side, without brackets: " + howToAsk
	case *ast.IdentifierNode:
		if _, isVariable := variables[arg.Value]; !isVariable {
			return "write " + strconv.Quote(arg.Value)
		}
	}
	if _, isText := call.Arguments[0].(*ast.StringNode); isText {
		return "the address stands first, " + howToAsk
	}
	return "the rule's networks are known before its events: " + howToAsk
}

// call refuses what never is an address.
func (v *typeCheck) call(n *ast.CallNode) {
	if !isVariable(n.Callee, inNetwork) || len(n.Arguments) == 0 {
		return
	}
	of := n.Arguments[0]
	switch k := v.of(of); {
	case k&isText == 0:
		v.fail(of, howToAsk, "inNetwork() takes an address, which is text, and "+written(of)+" is "+k.String())
	case isConstant(of):
		v.fail(of, "the address stands first, "+howToAsk, "inNetwork() asks for "+written(of)+", which is the same at each event")
	}
}
