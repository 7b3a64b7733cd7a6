package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"
)

// upperBounds are the functions of tests that may fail because something took long, each with the reason. A machine
// under load takes any time for anything: tests wait for events, compare their order, or run in a bubble of
// testing/synctest, whose clock is their own.
var upperBounds = map[string]string{
	"clients.pythonEvents":                                        "an hour: an event's time is of now, in the right unit",
	"internal/console/workbench.TestHostileTextsAreRefused":       "20 s for what takes milliseconds: a YAML bomb, or what is quadratic, takes for ever",
	"internal/testing/e2e.follows":                                "patience, with the page in the message: what does not come by then never comes",
	"internal/testing/e2e.sees":                                   "as follows",
	"pipeline/aggregate/topics.TestAnyLivingBrokerTellsTheTopics": "a minute, which is what waiting for the broker that hangs would take",
	"pipeline/blocklist.run":                                      "a rate, and in a flood of minutes, which a person starts, the time until all are in step",
	"pipeline/enforce/shape.one":                                  "it is called in a bubble of synctest",
}

func TestNoTestHasAnUpperBoundOnTime(t *testing.T) {
	found := map[string]bool{}
	eachFile(t, func(path string, content []byte) {
		if !strings.HasSuffix(path, "_test.go") || strings.HasPrefix(path, "bench/") || !strings.Contains(string(content), "time.") {
			return
		}
		for place, in := range boundsIn(t, path, content) {
			name := filepath.ToSlash(filepath.Dir(path)) + "." + in
			found[name] = true
			if upperBounds[name] == "" {
				t.Errorf("%s: %s fails when the machine is slow: wait for an event, compare an order, or use synctest", place, name)
			}
		}
	})
	for name := range upperBounds {
		if !found[name] {
			t.Errorf("%s has no upper bound on time any more: take it out of upperBounds", name)
		}
	}
}

// boundsIn finds comparisons that change when more time has passed than expected, by their place, and the function
// that each is in: took > x, or x < took. took is time.Since, time.Now().Sub, or a variable set from them.
func boundsIn(t *testing.T, path string, content []byte) map[string]string {
	t.Helper()
	set, out := token.NewFileSet(), map[string]string{}
	file, err := parser.ParseFile(set, path, content, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range file.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Body == nil {
			continue
		}
		took := map[string]bool{} // variables that hold how long something took
		ast.Inspect(f.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				return !isCall(n, "synctest", "Test")
			case *ast.ReturnStmt: // of what a test waits for
				return false
			case *ast.AssignStmt:
				for i, name := range n.Lhs {
					if id, ok := name.(*ast.Ident); ok && len(n.Rhs) == len(n.Lhs) {
						took[id.Name] = elapsed(n.Rhs[i], nil)
					}
				}
			case *ast.BinaryExpr:
				late := n.X
				if n.Op == token.LSS || n.Op == token.LEQ {
					late = n.Y
				} else if n.Op != token.GTR && n.Op != token.GEQ {
					return true
				}
				if elapsed(late, took) {
					out[set.Position(n.Pos()).String()] = f.Name.Name
				}
			}
			return true
		})
	}
	return out
}

// elapsed reports whether an expression is of the time that has passed.
func elapsed(e ast.Expr, took map[string]bool) (is bool) {
	ast.Inspect(e, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			is = is || took[n.Name]
		case *ast.FuncLit:
			return false
		case *ast.CallExpr:
			sub, ok := n.Fun.(*ast.SelectorExpr)
			is = is || isCall(n, "time", "Since") || ok && sub.Sel.Name == "Sub" && isCall(sub.X, "time", "Now")
		}
		return !is
	})
	return is
}

// isCall reports whether an expression calls a function of a package.
func isCall(e ast.Expr, from, name string) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || f.Sel.Name != name {
		return false
	}
	x, ok := f.X.(*ast.Ident)
	return ok && x.Name == from
}

func TestUpperBoundsAreFound(t *testing.T) {
	for line, want := range map[string]int{
		`if time.Since(began) > time.Second { t.Fatal() }`:                                 1,
		`if took := time.Since(began); took >= most { t.Fatal() }`:                         1,
		`if d := time.Now().Sub(began); most < d { t.Fatal() }`:                            1,
		`took := time.Since(began).Round(time.Second); if n > 2 || took > most { fail() }`: 1,
		`if took := time.Since(began); took < least { t.Fatal() }`:                         0,
		`for time.Since(began) < length { work() }`:                                        0,
		`synctest.Test(t, func(t *testing.T) { if time.Since(began) > most { fail() } })`:  0,
		`if time.Since(began) != want { t.Fatal() }`:                                       0,
		`eventually(t, func() bool { return time.Since(began) > least })`:                  0,
		`if n > 5 { took := time.Since(began); t.Log(took) }`:                              0,
	} {
		if got := len(boundsIn(t, "p_test.go", []byte("package p\nfunc TestA(t *testing.T) {\n"+line+"\n}\n"))); got != want {
			t.Errorf("%s: %d are found, want %d", line, got, want)
		}
	}
}
