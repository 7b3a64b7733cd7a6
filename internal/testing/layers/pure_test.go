package layers

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pure are the folders whose packages take time as an argument, and do no I/O.
var pure = []string{"windows", "rules", "pipeline/aggregate/shard", "pipeline/enforce/gate"}

// lockless are pure ones that keep state: who calls them sees to it that one goroutine does at a time.
var lockless = []string{"pipeline/aggregate/shard"}

// impure are the functions of package time that read the clock or wait for it.
var impure = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer", "Sleep"}

// ioPackages do I/O, or depend on the machine. net/netip is about addresses only.
func ioPackage(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	switch first {
	case "os", "syscall", "log", "database", "io":
		return path != "io"
	case "net":
		return path != "net/netip"
	case "math":
		return strings.HasPrefix(path, "math/rand")
	case "crypto":
		return path == "crypto/rand"
	}
	return false
}

func TestPurePackages(t *testing.T) {
	for _, folder := range pure {
		for _, file := range goFiles(t, folder) {
			for _, fault := range impurities(t, file, nil) {
				t.Errorf("%s is pure, but %s", folder, fault)
			}
		}
	}
}

func TestLocklessPackages(t *testing.T) {
	for _, folder := range lockless {
		files := goFiles(t, folder)
		if len(files) == 0 {
			t.Errorf("there is no %s", folder)
		}
		for _, file := range files {
			f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
			if err != nil {
				t.Fatal(err)
			}
			for _, spec := range f.Imports {
				if path, _ := strconv.Unquote(spec.Path.Value); path == "context" || path == "sync" || path == "sync/atomic" {
					t.Errorf("%s imports %s", file, path)
				}
			}
		}
	}
}

func TestImpuritiesAreFound(t *testing.T) {
	faults := impurities(t, "example.go", `package example
import ("net"; "net/netip"; clock "time")
var _ net.Addr
var _ netip.Addr
var _ = clock.Now
var _ clock.Duration
func f() { go f() }`)
	want := []string{
		"example.go:2:9 imports net",
		"example.go:5:9 uses time.Now",
		"example.go:7:12 starts a goroutine",
	}
	if !slices.Equal(faults, want) {
		t.Errorf("found %q, want %q", faults, want)
	}
}

// impurities lists a source file's breaches of purity.
func impurities(t *testing.T, name string, src any) []string {
	t.Helper()
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, name, src, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	var faults []string
	clock := ""
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if ioPackage(path) {
			faults = append(faults, set.Position(spec.Path.Pos()).String()+" imports "+path)
		}
		if path == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			faults = append(faults, set.Position(n.Pos()).String()+" starts a goroutine")
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && x.Name == clock && slices.Contains(impure, n.Sel.Name) {
				faults = append(faults, set.Position(n.Pos()).String()+" uses time."+n.Sel.Name)
			}
		}
		return true
	})
	return faults
}

// goFiles returns the source files under a folder, tests excepted.
func goFiles(t *testing.T, folder string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(filepath.Join(root, folder), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == "testdata" {
			return filepath.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			out = append(out, path)
		}
		return nil
	})
	if err != nil {
		t.Logf("there is no %s: %v", folder, err)
	}
	return out
}
