package layers

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

// The repository is read, listed and type-checked once; the tests of this package share it.

const (
	root   = "../../.."
	module = "github.com/tallygate/tallygate"
)

// notOurs are folders that builds and tests leave behind.
var notOurs = []string{".git", ".run", ".site", "bin", "node_modules", "target"}

// textFile is a file of the repository; its path is relative to the root.
type textFile struct {
	path    string
	content []byte
}

var textFiles = sync.OnceValues(func() (all []textFile, err error) {
	err = filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || slices.Contains(notOurs, d.Name())) {
			return filepath.SkipDir
		}
		if !d.Type().IsRegular() || d.Name() == ".git" { // a file in a second work tree
			return nil
		}
		content, err := os.ReadFile(path)
		if err == nil && !bytes.ContainsRune(content, 0) {
			path, _ = filepath.Rel(root, path)
			all = append(all, textFile{path, content})
		}
		return err
	})
	return all, err
})

// eachFile calls do for each text file of the repository, except test data and build output.
func eachFile(t *testing.T, do func(path string, content []byte)) {
	t.Helper()
	for _, f := range must(textFiles())(t) {
		do(f.path, f.content)
	}
}

// pkg is a package in the terms of go list. Export and Dir are empty unless they were asked for.
type pkg struct {
	ImportPath, Name, Export, Dir      string
	Standard                           bool
	GoFiles                            []string
	Imports, TestImports, XTestImports []string
	Deps                               []string
}

// list returns the module's packages, tests included, and all that they need, by import path.
func list(t *testing.T) map[string]pkg {
	t.Helper()
	return must(listed())(t)
}

var listed = sync.OnceValues(func() (map[string]pkg, error) {
	packages, err := goList("-e", "-deps", "-test", "-json=ImportPath,Name,Standard,Imports,TestImports,XTestImports,Deps", "./...")
	all := map[string]pkg{}
	for _, p := range packages {
		if !strings.Contains(p.ImportPath, " [") && !strings.HasSuffix(p.ImportPath, ".test") {
			all[p.ImportPath] = p
		}
	}
	return all, err
})

func goList(args ...string) (all []pkg, err error) {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir, cmd.Stderr = root, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, errors.New("go list knows no package")
	}
	return all, nil
}

// typed holds this module's packages with their types, tests excepted.
type typed struct {
	fset     *token.FileSet
	imports  types.Importer // of what the compiler exported
	packages []typedPackage
}

type typedPackage struct {
	folder string // relative to the root
	files  []*ast.File
	types  *types.Package
	info   *types.Info
}

// checked returns this module, type-checked.
func checked(t *testing.T) *typed {
	t.Helper()
	return must(typeCheck())(t)
}

func newInfo() *types.Info {
	return &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
}

var typeCheck = sync.OnceValues(func() (*typed, error) {
	packages, err := goList("-export", "-deps", "-json=ImportPath,Export,Dir,GoFiles", "./...")
	if err != nil {
		return nil, err
	}
	exports := map[string]string{}
	for _, p := range packages {
		exports[p.ImportPath] = p.Export
	}
	all := &typed{fset: token.NewFileSet()}
	all.imports = importer.ForCompiler(all.fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
	for _, p := range packages {
		if p.ImportPath != module && !strings.HasPrefix(p.ImportPath, module+"/") {
			continue
		}
		own := typedPackage{folder: cmp.Or(strings.TrimPrefix(strings.TrimPrefix(p.ImportPath, module), "/"), "."), info: newInfo()}
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(all.fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			own.files = append(own.files, f)
		}
		if own.types, err = (&types.Config{Importer: all.imports}).Check(p.ImportPath, all.fset, own.files, own.info); err != nil {
			return nil, fmt.Errorf("%s: %w", p.ImportPath, err)
		}
		all.packages = append(all.packages, own)
	}
	return all, nil
})

// must returns the value, or fails the test that asks for it.
func must[V any](v V, err error) func(t *testing.T) V {
	return func(t *testing.T) V {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}
