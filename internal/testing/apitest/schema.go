// Package apitest holds what programs write and answer against the descriptions in docs/api. It is
// for tests.
package apitest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"go.yaml.in/yaml/v4"

	apidocs "github.com/tallygate/tallygate/docs/api"
)

// base is the supposed address of schemas, so that one refers to another by its file's name.
const base = "file:///docs/api/"

// Load reads a description as JSON has it.
func Load(name string) (any, error) {
	text, err := apidocs.Files.ReadFile(name)
	if err != nil {
		return nil, err
	}
	if path.Ext(name) == ".yaml" {
		var doc any
		if err := yaml.Unmarshal(text, &doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		if text, err = json.Marshal(doc); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return jsonschema.UnmarshalJSON(bytes.NewReader(text))
}

// files loads descriptions for a compiler. Closed ones have no fields but those that they name:
// programs write what is described, and nothing else, though readers have to ignore what they do not
// know.
type files struct{ closed bool }

func (f files) Load(url string) (any, error) {
	name := strings.TrimPrefix(url, base)
	doc, err := Load(name)
	if err == nil && f.closed && name != apidocs.Event {
		closeObjects(doc)
	}
	return doc, err
}

// closeObjects forbids other fields than the named ones in every schema of an object.
func closeObjects(doc any) {
	switch doc := doc.(type) {
	case map[string]any:
		_, named := doc["properties"]
		_, open := doc["additionalProperties"]
		if named && !open && doc["type"] == "object" {
			doc["additionalProperties"] = false
		}
		for _, v := range doc {
			closeObjects(v)
		}
	case []any:
		for _, v := range doc {
			closeObjects(v)
		}
	}
}

// Schema is a compiled schema.
type Schema struct{ compiled *jsonschema.Schema }

// Compile compiles a schema as it stands: a file's name, or such a name, # and a JSON pointer.
func Compile(name string) (*Schema, error) { return compile(name, false) }

// CompileClosed compiles a schema for what programs write: fields that it does not name are
// mistakes.
func CompileClosed(name string) (*Schema, error) { return compile(name, true) }

// compilers keep what they have read, and compiled.
var compilers = struct {
	sync.Mutex
	by map[bool]*jsonschema.Compiler // whether schemas are closed
}{by: map[bool]*jsonschema.Compiler{}}

func compile(name string, closed bool) (*Schema, error) {
	compilers.Lock()
	defer compilers.Unlock()
	c := compilers.by[closed]
	if c == nil {
		c = jsonschema.NewCompiler()
		c.DefaultDraft(jsonschema.Draft2020)
		c.AssertFormat()
		c.UseLoader(files{closed})
		compilers.by[closed] = c
	}
	s, err := c.Compile(base + name)
	if err != nil {
		return nil, err
	}
	return &Schema{s}, nil
}

// Validate returns what of a JSON text is not as described.
func (s *Schema) Validate(text []byte) error {
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return err
	}
	return s.ValidateValue(doc)
}

// ValidateValue is Validate of a decoded text, whose numbers are json.Numbers.
func (s *Schema) ValidateValue(doc any) error { return s.compiled.Validate(doc) }

// pointer is a JSON pointer to what these names lead to.
func pointer(names ...string) string {
	var b strings.Builder
	for _, name := range names {
		b.WriteByte('/')
		b.WriteString(strings.NewReplacer("~", "~0", "/", "~1", "%", "%25", "{", "%7B", "}", "%7D").Replace(name))
	}
	return b.String()
}
