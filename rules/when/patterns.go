package when

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"

	"github.com/expr-lang/expr"
	"github.com/expr-lang/expr/ast"
	"github.com/expr-lang/expr/parser"
)

// Bounds on regular expressions, in instructions of their programs. A repeat multiplies what it repeats, so
// that a few hundred bytes may compile to gigabytes, and run for seconds.
const (
	maxPattern     = 10_000  // of one
	maxPatterns    = 100_000 // of all in a file
	maxTextPattern = 1_000   // of one that an event brings: it is compiled at each event
)

// Patterns is the budget of a file's regular expressions. The zero value is a whole one.
type Patterns struct {
	// Accept is for a file that an older program accepted: what is too large is told, and compiled.
	Accept bool

	used int
}

// bound looks at a predicate's regular expressions before any of them is compiled.
func (p *Patterns) bound(source string) (mistakes []Mistake) {
	tree, err := parser.Parse(source)
	if err != nil {
		return nil // it will be told, and nothing is compiled
	}
	found := &patternFinder{}
	ast.Walk(&tree.Node, found)
	for _, n := range found.at {
		text, _ := constantPattern(n.Right)
		size := patternSize(text)
		message := ""
		switch {
		case size > maxPattern:
			message = fmt.Sprintf("when: the regular expression is too large: it needs %s steps, and may have %d", atLeast(size), maxPattern)
		case p.used+size > maxPatterns:
			message = fmt.Sprintf("when: the file's regular expressions are too large together: they may have %d steps", maxPatterns)
		default:
			p.used += size
			continue
		}
		mistakes = append(mistakes, Mistake{At: n.Right.Location().From, Message: message, Severity: p.severity(),
			Hint: "a repeat counts so often as it repeats, and repeats in repeats multiply: write x* for x{0,1000}, or bound the text by len(…)"})
	}
	return mistakes
}

func (p *Patterns) severity() Severity {
	if p.Accept {
		return Never
	}
	return Refused
}

func atLeast(size int) string {
	if size > maxPatterns {
		return fmt.Sprintf("more than %d", maxPatterns)
	}
	return fmt.Sprint(size)
}

// patternFinder finds comparisons with a regular expression that is known beforehand.
type patternFinder struct{ at []*ast.BinaryNode }

// Visit implements ast.Visitor.
func (v *patternFinder) Visit(node *ast.Node) {
	n, ok := (*node).(*ast.BinaryNode)
	if !ok || n.Operator != "matches" {
		return
	}
	if _, constant := constantPattern(n.Right); constant {
		v.at = append(v.at, n)
	}
}

// constantPattern is a text that is known beforehand: one, or several with + between them.
func constantPattern(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.BinaryNode:
		left, ok := constantPattern(n.Left)
		right, also := constantPattern(n.Right)
		return left + right, ok && also && n.Operator == "+"
	}
	return "", false
}

// patternSize is about how many instructions the program of a regular expression has, without compiling it.
// One that is none has none.
func patternSize(pattern string) int {
	re, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return programSize(re)
}

// programSize adds up a parsed expression, in which repeats are not yet multiplied out. It stops counting
// beyond every bound, so that no product overflows.
func programSize(re *syntax.Regexp) int {
	const (
		enough       = 1 << 30
		perClassRune = 10 // bounds of a class take so much of an instruction
	)
	size := 0
	for _, sub := range re.Sub {
		size = min(size+programSize(sub), enough)
	}
	switch re.Op {
	case syntax.OpLiteral:
		return len(re.Rune)
	case syntax.OpCharClass:
		return 1 + len(re.Rune)/perClassRune
	case syntax.OpConcat:
		return size
	case syntax.OpCapture, syntax.OpAlternate:
		return size + 1 + len(re.Sub)
	case syntax.OpRepeat:
		if re.Min != re.Max {
			size++
		}
		return min(size*max(re.Min, re.Max, 1), enough)
	}
	return size + 1
}

// matchesText replaces `matches` where its regular expression is no constant. No predicate can spell it.
const matchesText = "matches a text"

var errPattern = errors.New("matches: the regular expression is too large")

// matchesFunction bounds a regular expression that an event brings before it is compiled. As with any other,
// nil matches nothing.
var matchesFunction = expr.Function(matchesText, func(args ...any) (any, error) {
	if args[0] == nil || args[1] == nil {
		return false, nil
	}
	text, ok := args[0].(string)
	pattern, also := args[1].(string)
	if !ok || !also {
		return nil, errors.New("matches: it takes texts")
	}
	if len(pattern) > maxSource || patternSize(pattern) > maxTextPattern {
		return nil, errPattern
	}
	return regexp.MatchString(pattern, text)
}, new(func(any, any) bool))

// pattern puts in a regular expression that is known beforehand, and bounds any other when it is known.
func (v *restriction) pattern(node *ast.Node, n *ast.BinaryNode) {
	if n.Operator != "matches" || !v.inline {
		return
	}
	if text, ok := constantPattern(n.Right); ok {
		ast.Patch(&n.Right, &ast.StringNode{Value: text})
		return
	}
	ast.Patch(node, &ast.CallNode{Callee: &ast.IdentifierNode{Value: matchesText}, Arguments: []ast.Node{n.Left, n.Right}})
}
