package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strings"
)

// A mutant is one small change of a source file.
type mutant struct {
	file, fn string // the file's path in the repository; the function around the change
	from, to int    // the bytes that text replaces
	text     string
	was, is  string // the change, for people: the smallest expression or statement around it
	line     int
	counted  token.Position // where go test counts it
	src      []byte
}

// key is what names a mutant in same.txt: lines move, so it has none.
func (m *mutant) key() string { return m.file + ": " + m.fn + ": `" + m.was + "` → `" + m.is + "`" }

var swaps = map[token.Token][]token.Token{
	token.LSS:  {token.LEQ, token.GEQ},
	token.LEQ:  {token.LSS, token.GTR},
	token.GTR:  {token.GEQ, token.LEQ},
	token.GEQ:  {token.GTR, token.LSS},
	token.EQL:  {token.NEQ},
	token.NEQ:  {token.EQL},
	token.ADD:  {token.SUB},
	token.SUB:  {token.ADD},
	token.MUL:  {token.QUO},
	token.QUO:  {token.MUL},
	token.REM:  {token.MUL},
	token.LAND: {token.LOR},
	token.LOR:  {token.LAND},
	token.AND:  {token.OR},
	token.OR:   {token.AND},
	token.SHL:  {token.SHR},
	token.SHR:  {token.SHL},
}

var words = map[string]string{"true": "false", "false": "true", "0": "1", "1": "0"}

// finder collects the mutants of one file.
type finder struct {
	fset   *token.FileSet
	src    []byte
	file   string
	fn     *ast.FuncDecl
	around []ast.Node // from the function's body inwards
	found  []*mutant
}

// mutantsOf returns the mutants in the bodies of a file's functions.
func mutantsOf(path, file string) ([]*mutant, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	f := &finder{fset: token.NewFileSet(), src: src, file: file}
	tree, err := parser.ParseFile(f.fset, path, src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	for _, d := range tree.Decls {
		if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil {
			f.fn = fn
			ast.Inspect(fn.Body, func(n ast.Node) bool {
				if n == nil {
					f.around = f.around[:len(f.around)-1]
					return false
				}
				f.visit(n)
				f.around = append(f.around, n)
				return true
			})
		}
	}
	slices.SortStableFunc(f.found, func(a, b *mutant) int { return a.from - b.from })
	seen := map[string]int{}
	for _, m := range f.found {
		key := m.key()
		if seen[key]++; seen[key] > 1 {
			m.fn += fmt.Sprintf("#%d", seen[key]) // the same change for the second time in a function
		}
	}
	return f.found, nil
}

func (f *finder) visit(n ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		for _, to := range swaps[n.Op] {
			f.replace(n.OpPos, len(n.Op.String()), to.String(), n)
		}
	case *ast.BasicLit:
		f.word(n, n.Value)
	case *ast.Ident:
		f.word(n, n.Name)
	case *ast.IncDecStmt:
		f.replace(n.TokPos, 2, map[token.Token]string{token.INC: "--", token.DEC: "++"}[n.Tok], n)
	case *ast.IfStmt:
		f.negate(n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.negate(n.Cond)
		}
	case *ast.BlockStmt:
		f.drop(n.List)
	case *ast.CaseClause:
		f.drop(n.Body)
	case *ast.CommClause:
		f.drop(n.Body)
	}
}

func (f *finder) word(n ast.Expr, text string) {
	to, known := words[text]
	if !known {
		return
	}
	// The change of a lone 0 says nothing to people. The innermost expression or statement around it does.
	shown := f.around[len(f.around)-1]
	if _, block := shown.(*ast.BlockStmt); block {
		shown = n
	}
	f.replace(n.Pos(), len(text), to, shown)
}

// negate negates a condition. One that compares has its operators swapped already.
func (f *finder) negate(cond ast.Expr) {
	if _, binary := cond.(*ast.BinaryExpr); !binary {
		text := string(f.src[f.at(cond.Pos()):f.at(cond.End())])
		f.replace(cond.Pos(), len(text), "!("+text+")", cond)
	}
}

// drop drops each call and each assignment of a list, unless it declares.
func (f *finder) drop(list []ast.Stmt) {
	for _, s := range list {
		switch s := s.(type) {
		case *ast.AssignStmt:
			if s.Tok == token.DEFINE {
				continue
			}
		case *ast.ExprStmt, *ast.DeferStmt, *ast.IncDecStmt:
		default:
			continue
		}
		f.replace(s.Pos(), int(s.End()-s.Pos()), "", s)
	}
}

func (f *finder) at(p token.Pos) int { return f.fset.Position(p).Offset }

func (f *finder) replace(pos token.Pos, length int, text string, shown ast.Node) {
	from, where := f.at(pos), f.fset.Position(pos)
	start, end := f.at(shown.Pos()), f.at(shown.End())
	is := string(f.src[start:from]) + text + string(f.src[from+length:end])
	m := &mutant{
		file: f.file, fn: f.fn.Name.Name, from: from, to: from + length, text: text, src: f.src,
		was: brief(string(f.src[start:end])), is: brief(is), line: where.Line, counted: where,
	}
	if r := f.fn.Recv; r != nil && len(r.List) == 1 {
		receiver := string(f.src[f.at(r.List[0].Type.Pos()):f.at(r.List[0].Type.End())])
		m.fn = strings.TrimPrefix(receiver, "*") + "." + m.fn
	}
	for i, n := range f.around { // go test does not count what stands in a case, so the switch stands for it
		if c, is := n.(*ast.CaseClause); is && pos < c.Colon {
			m.counted = f.fset.Position(f.around[i-2].Pos())
			break
		}
	}
	f.found = append(f.found, m)
}

// brief puts code on one line.
func brief(code string) string { return strings.Join(strings.Fields(code), " ") }

// in is whether the change is in a block of statements.
func (m *mutant) in(c cover) bool {
	at := m.counted
	after := at.Line > c.fromLine || at.Line == c.fromLine && at.Column >= c.fromCol
	before := at.Line < c.toLine || at.Line == c.toLine && at.Column < c.toCol
	return after && before
}

// mutated is the file with the change made.
func (m *mutant) mutated() []byte {
	return slices.Concat(m.src[:m.from], []byte(m.text), m.src[m.to:])
}
