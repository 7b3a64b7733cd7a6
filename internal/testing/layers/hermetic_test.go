package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"
)

// Tests of commands meet nothing else that runs on the machine, and none waits for ever. A test that left out --kafka
// found a tallygate dev at the default address, joined its group, and took half of its partitions.
func TestTestsMeetNothingElse(t *testing.T) {
	n := 0
	eachFile(t, func(path string, content []byte) {
		if !strings.HasSuffix(path, "_test.go") || otherModule(path) || path == "internal/run/ops/options_test.go" || path == "internal/testing/layers/hermetic_test.go" {
			return
		}
		n++
		for _, wrong := range meetsOthers(t, path, content) {
			t.Error(wrong)
		}
	})
	if n < 500 {
		t.Errorf("only %d files of tests were read", n)
	}
}

// otherModule reports whether the file cannot import what is internal to this module.
func otherModule(path string) bool {
	return strings.HasPrefix(path, "adapters/") || strings.HasPrefix(path, "bench/") || strings.HasPrefix(path, "deploy/mixin/") || strings.HasPrefix(path, "deploy/helm/")
}

// takesDefaults are the functions that read options. One with testrun.Getenv is a process of its own, which its test ends.
var takesDefaults = []string{"Command", "Main", "parse", "mustParse", "NewOptions"}

func meetsOthers(t *testing.T, path string, content []byte) (wrong []string) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, path, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(n ast.Node, text string) { wrong = append(wrong, set.Position(n.Pos()).String()+": "+text) }
	called := map[ast.Expr]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.CallExpr:
			called[n.Fun] = true
			if name := lastName(n.Fun); slices.Contains(takesDefaults, name) && len(n.Args) > 3 && endless(n.Args[0]) && lastName(n.Args[len(n.Args)-1]) != "Getenv" {
				tell(n, "a command gets testrun.Context(t), which ends")
			}
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == "os" && n.Sel.Name == "Getenv" && !called[n] {
				tell(n, "the environment of a command is testrun.Getenv")
			}
		case *ast.FuncLit:
			if environment(n.Type, n.Body) {
				tell(n, "the environment of a command is testrun.NoEnv or testrun.Env(…)")
			}
		case *ast.FuncDecl:
			if environment(n.Type, n.Body) && (n.Recv == nil || n.Name.Name == "get") {
				tell(n, "the environment of a command is testrun.NoEnv or testrun.Env(…)")
			}
		}
		return true
	})
	return wrong
}

func lastName(fun ast.Expr) string {
	switch f := fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	}
	return ""
}

// endless reports whether a context is a test's own, which does not end while the test waits, or the background's.
func endless(arg ast.Expr) bool {
	call, ok := arg.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return false
	}
	switch sel.Sel.Name {
	case "Context":
		x, ok := sel.X.(*ast.Ident)
		return !ok || x.Name != "testrun"
	case "WithoutCancel":
		return len(call.Args) == 1 && endless(call.Args[0])
	case "Background":
		return true
	}
	return false
}

// environment reports whether a function stands for os.Getenv: it returns nothing, or what a map has.
func environment(f *ast.FuncType, body *ast.BlockStmt) bool {
	if body == nil || len(body.List) != 1 || !onlyString(f.Params) || !onlyString(f.Results) {
		return false
	}
	ret, ok := body.List[0].(*ast.ReturnStmt)
	if !ok || len(ret.Results) != 1 {
		return false
	}
	switch r := ret.Results[0].(type) {
	case *ast.BasicLit:
		return r.Value == `""`
	case *ast.IndexExpr:
		return true
	}
	return false
}

func onlyString(list *ast.FieldList) bool {
	if list == nil || list.NumFields() != 1 {
		return false
	}
	is, ok := list.List[0].Type.(*ast.Ident)
	return ok && is.Name == "string"
}

func TestWhatMeetsOthersIsFound(t *testing.T) {
	const head = "package p\n\nfunc TestA(t *testing.T) {\n"
	for line, want := range map[string]int{
		`Command(t.Context(), args, out, out, testrun.NoEnv)`:                                1,
		`cli.Main(context.Background(), args, in, out, out, testrun.Env(nil))`:               1,
		`cli.Main(context.Background(), args, in, out, out, testrun.Getenv)`:                 0,
		`cli.Main(context.WithoutCancel(t.Context()), args, in, out, out, testrun.Env(env))`: 1,
		`Command(ctx, args, out, out, os.Getenv)`:                                            1,
		`Command(ctx, args, out, out, func(string) string { return "" })`:                    1,
		`Command(ctx, args, out, out, func(name string) string { return env[name] })`:        1,
		`none := func(string) string { return "" }`:                                          1,
		`Command(testrun.Context(t), args, out, out, testrun.NoEnv)`:                         0,
		`m.Command(t.Context(), aggregate.Command{})`:                                        0,
		`x := os.Getenv("HOME")`:                                                             0,
		`f := func(s string) string { return s + s }`:                                        0,
	} {
		if got := meetsOthers(t, "p_test.go", []byte(head+"\t"+line+"\n}\n")); len(got) != want {
			t.Errorf("%s: %q, want %d", line, got, want)
		}
	}
}
