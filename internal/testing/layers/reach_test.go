package layers

import (
	"go/ast"
	"go/parser"
	"go/types"
	"testing"
)

// A reader of a method has to know all that it may call on its receiver: the type's own methods, and those of what the
// type embeds, if they are its package's.
var reach = measure{name: "reach", bar: 60, slack: 3, mend: "hold parts in fields and name them; embedding brings all of their methods"}

func TestFewMethodsAreWithinReach(t *testing.T) {
	methods := map[string]int{}
	for _, p := range checked(t).packages {
		for _, name := range p.types.Scope().Names() {
			if of, ok := p.types.Scope().Lookup(name).(*types.TypeName); ok && !of.IsAlias() && !types.IsInterface(of.Type()) {
				methods[p.folder+"."+name] = withinReach(p.types, of.Type())
			}
		}
	}
	reach.hold(t, methods)
}

func withinReach(in *types.Package, of types.Type) (n int) {
	for m := range types.NewMethodSet(types.NewPointer(of)).Methods() {
		if m.Obj().Pkg() == in {
			n++
		}
	}
	return n
}

func TestEmbeddingReaches(t *testing.T) {
	src := `package p
		import "sync"
		type top struct { *middle; sync.Mutex }
		type middle struct { bottom; held other }
		type bottom struct{}
		type other struct{}
		func (top) a() {}
		func (*middle) b() {}
		func (middle) a() {}
		func (*bottom) c() {}
		func (other) d() {}`
	all := checked(t)
	f, err := parser.ParseFile(all.fset, "p.go", src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	p, err := (&types.Config{Importer: all.imports}).Check("p", all.fset, []*ast.File{f}, nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"top": 3, "middle": 3, "bottom": 1, "other": 1} {
		if got := withinReach(p, p.Scope().Lookup(name).Type()); got != want {
			t.Errorf("%s: %d methods, want %d", name, got, want)
		}
	}
}
