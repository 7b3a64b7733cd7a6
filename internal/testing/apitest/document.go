package apitest

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// Document is an OpenAPI document that a server's answers are held against. Make it with Open.
type Document struct {
	name  string
	root  map[string]any
	paths map[string]map[string]*Operation // by path and lower-case method

	mu      sync.Mutex
	schemas map[string]*Schema  // by pointer
	seen    map[string]struct{} // METHOD /path STATUS
}

// Operation is a path's method.
type Operation struct {
	Path, Method string
	node         map[string]any
	at           []string // where node is in the document
}

// Open returns a document, each of whose schemas compiles. It is one and the same for all tests of a
// package.
func Open(t testing.TB, name string) *Document {
	t.Helper()
	d, err := opened(name)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

var (
	openMu sync.Mutex
	isOpen = map[string]*Document{}
)

func opened(name string) (d *Document, err error) {
	openMu.Lock()
	defer openMu.Unlock()
	if d = isOpen[name]; d == nil {
		if d, err = open(name); err == nil {
			isOpen[name] = d
		}
	}
	return d, err
}

func open(name string) (*Document, error) {
	doc, err := Load(name)
	if err != nil {
		return nil, err
	}
	d := &Document{name: name, root: doc.(map[string]any), paths: map[string]map[string]*Operation{}, schemas: map[string]*Schema{}, seen: map[string]struct{}{}}
	for path, item := range object(d.root, "paths") {
		d.paths[path] = map[string]*Operation{}
		for method, node := range item.(map[string]any) {
			d.paths[path][method] = &Operation{path, strings.ToUpper(method), node.(map[string]any), []string{"paths", path, method}}
		}
	}
	return d, d.compileAll(d.root, nil)
}

// compileAll compiles what stands under the name schema.
func (d *Document) compileAll(node any, at []string) error {
	switch node := node.(type) {
	case map[string]any:
		for name, v := range node {
			here := append(slices.Clone(at), name)
			if name == "schema" || len(here) == 3 && here[0] == "components" && here[1] == "schemas" {
				if _, err := d.schema(here); err != nil {
					return err
				}
				continue
			}
			if err := d.compileAll(v, here); err != nil {
				return err
			}
		}
	case []any:
		for i, v := range node {
			if err := d.compileAll(v, append(slices.Clone(at), fmt.Sprint(i))); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *Document) schema(at []string) (*Schema, error) {
	p := pointer(at...)
	d.mu.Lock()
	defer d.mu.Unlock()
	if s := d.schemas[p]; s != nil {
		return s, nil
	}
	s, err := CompileClosed(d.name + "#" + p)
	if err == nil {
		d.schemas[p] = s
	}
	return s, err
}

// Operations are all of them, sorted by path and method.
func (d *Document) Operations() (all []*Operation) {
	for _, path := range slices.Sorted(maps.Keys(d.paths)) {
		for _, method := range slices.Sorted(maps.Keys(d.paths[path])) {
			all = append(all, d.paths[path][method])
		}
	}
	return all
}

// AnyMethod reports whether every method does the same: OpenAPI can only list them.
func (o *Operation) AnyMethod() bool { return o.node["x-any-method"] == true }

// Role is the role that the operation needs where credentials are needed; "" is none.
func (o *Operation) Role() string {
	list, _ := o.node["security"].([]any)
	for _, one := range list {
		if roles, ok := one.(map[string]any)["token"].([]any); ok {
			return roles[0].(string)
		}
	}
	return ""
}

// Statuses are those of its answers, such as 200 and 4XX.
func (o *Operation) Statuses() []string { return slices.Sorted(maps.Keys(object(o.node, "responses"))) }

// find returns the operation that answers a request; known is whether its path is described.
func (d *Document) find(r *http.Request) (o *Operation, known bool) {
	methods := d.paths[r.URL.Path]
	for path, m := range d.paths {
		if before, _, ok := strings.Cut(path, "{"); ok && strings.HasPrefix(r.URL.EscapedPath(), before) {
			methods = m
		}
	}
	if methods == nil {
		return nil, false
	}
	method := strings.ToLower(r.Method)
	if get := methods["get"]; get != nil && (method == "head" || get.AnyMethod()) {
		method = "get"
	}
	return methods[method], true
}

// resolve follows references within the document, and returns where it got.
func (d *Document) resolve(node any, at []string) (map[string]any, []string) {
	m, _ := node.(map[string]any)
	for m != nil {
		ref, ok := m["$ref"].(string)
		if !ok || !strings.HasPrefix(ref, "#/") {
			break
		}
		at = strings.Split(ref[2:], "/")
		m = d.root
		for _, name := range at {
			m, _ = m[name].(map[string]any)
		}
	}
	return m, at
}

func object(node map[string]any, name string) map[string]any {
	m, _ := node[name].(map[string]any)
	return m
}

// Unseen are the answers that are described, and were not given: METHOD /path STATUS.
func (d *Document) Unseen() (all []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, o := range d.Operations() {
		for _, status := range o.Statuses() {
			name := o.Method + " " + o.Path + " " + status
			if _, ok := d.seen[name]; !ok {
				all = append(all, name)
			}
		}
	}
	return all
}
