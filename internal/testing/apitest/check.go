package apitest

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"

	apidocs "github.com/tallygate/tallygate/docs/api"
)

// general are header fields that any answer may have.
var general = []string{"Cache-Control", "Connection", "Content-Length", "Content-Type", "Date", "Transfer-Encoding", "X-Content-Type-Options"}

// Check returns what of a request and its answer is not as described. What a server accepted has to
// be what the document accepts.
func (d *Document) Check(r *http.Request, asked []byte, status int, header http.Header, answer []byte) error {
	o, known := d.find(r)
	switch {
	case !known && status >= 300 && status < 400: // a path that is not clean
		return nil
	case !known:
		return d.notThere(http.StatusNotFound, status, header, answer)
	case o == nil && status == http.StatusNotFound && d.mayBeOff(r):
		return d.problem(header, answer)
	case o == nil:
		return errors.Join(d.notThere(http.StatusMethodNotAllowed, status, header, answer), d.allow(r, header))
	}
	err := d.answer(o, r, status, header, answer)
	if passedOn := r.Header.Get("X-Tallygate-Forwarded") != ""; status < 300 && !passedOn { // instances tell each other more
		err = errors.Join(err, d.request(o, r, asked))
	}
	return err
}

// notThere checks the answer of a path or method that is not described.
func (d *Document) notThere(want, status int, header http.Header, answer []byte) error {
	if status != want {
		return fmt.Errorf("the answer is %d: the document does not have the operation, want %d", status, want)
	}
	return d.problem(header, answer)
}

func (d *Document) problem(header http.Header, answer []byte) error {
	if kind := header.Get("Content-Type"); kind != "application/problem+json" {
		return fmt.Errorf("the answer is %q, want a problem", kind)
	}
	s, err := problem()
	if err != nil || len(answer) == 0 { // of HEAD
		return err
	}
	return s.Validate(answer)
}

var problem = sync.OnceValues(func() (*Schema, error) { return CompileClosed(apidocs.Problem) })

// mayBeOff reports whether a server may be told not to serve a path: then it has no method.
func (d *Document) mayBeOff(r *http.Request) bool {
	for _, o := range d.paths[r.URL.Path] {
		if slices.Contains(o.Statuses(), "404") {
			return true
		}
	}
	return false
}

// allow compares the methods that a server has with those that the document has.
func (d *Document) allow(r *http.Request, header http.Header) error {
	var want []string
	for method := range d.paths[r.URL.Path] {
		want = append(want, strings.ToUpper(method))
		if method == "get" {
			want = append(want, http.MethodHead)
		}
	}
	slices.Sort(want)
	got := strings.Split(header.Get("Allow"), ", ")
	slices.Sort(got)
	if !slices.Equal(got, want) {
		return fmt.Errorf("the server allows %v, the document %v", got, want)
	}
	return nil
}

// answer checks an answer of an operation.
func (d *Document) answer(o *Operation, r *http.Request, status int, header http.Header, body []byte) error {
	name := strconv.Itoa(status)
	responses := object(o.node, "responses")
	if responses[name] == nil {
		name = name[:1] + "XX"
	}
	response, at := d.resolve(responses[name], append(slices.Clone(o.at), "responses", name))
	if response == nil {
		return fmt.Errorf("the status %d is not described", status)
	}
	d.mu.Lock()
	d.seen[o.Method+" "+o.Path+" "+name] = struct{}{}
	d.mu.Unlock()
	err := d.headers(response, at, header)
	content := object(response, "content")
	if content == nil {
		if len(body) > 0 {
			err = errors.Join(err, errors.New("the answer has a body, and none is described"))
		}
		return err
	}
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	if content[kind] == nil {
		return errors.Join(err, fmt.Errorf("the content type %q is not described", kind))
	}
	if r.Method == http.MethodHead {
		return err
	}
	s, wrong := d.schema(append(slices.Clone(at), "content", kind, "schema"))
	if wrong != nil {
		return errors.Join(err, wrong)
	}
	if !strings.HasSuffix(kind, "json") {
		return errors.Join(err, s.ValidateValue(string(body)))
	}
	if wrong := s.Validate(body); wrong != nil {
		err = errors.Join(err, fmt.Errorf("the answer's body: %w", wrong))
	}
	return err
}

// headers checks those of an answer, described and others.
func (d *Document) headers(response map[string]any, at []string, header http.Header) error {
	var errs []error
	described := map[string]bool{}
	for name, node := range object(response, "headers") {
		h, where := d.resolve(node, append(slices.Clone(at), "headers", name))
		name = http.CanonicalHeaderKey(name)
		described[name] = true
		values, there := header[name]
		if !there {
			if h["required"] == true {
				errs = append(errs, fmt.Errorf("the answer has no %s", name))
			}
			continue
		}
		s, err := d.schema(append(slices.Clone(where), "schema"))
		if err == nil {
			err = s.ValidateValue(strings.Join(values, ", "))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	for name := range header {
		if !described[name] && !slices.Contains(general, name) {
			errs = append(errs, fmt.Errorf("the header %s is not described", name))
		}
	}
	return errors.Join(errs...)
}

// request checks a request that was accepted.
func (d *Document) request(o *Operation, r *http.Request, body []byte) error {
	errs := []error{d.query(o, r.URL.Query())}
	node := object(o.node, "requestBody")
	if node == nil {
		return errors.Join(errs...)
	}
	about, at := d.resolve(node, append(slices.Clone(o.at), "requestBody"))
	media := object(object(about, "content"), "application/json")
	s, err := d.schema(append(slices.Clone(at), "content", "application/json", "schema"))
	if err != nil || media["x-refused-one-by-one"] == true {
		return errors.Join(append(errs, err)...)
	}
	if err := s.Validate(body); err != nil {
		errs = append(errs, fmt.Errorf("a request's body that is accepted: %w", err))
	}
	return errors.Join(errs...)
}

// query checks the parameters of a request. Those that no parameter names are fields of the one that
// is an object.
func (d *Document) query(o *Operation, q url.Values) error {
	var errs []error
	named := map[string][]string{}
	var rest []string
	list, _ := o.node["parameters"].([]any)
	for i, node := range list {
		p, at := d.resolve(node, append(slices.Clone(o.at), "parameters", strconv.Itoa(i)))
		at = append(slices.Clone(at), "schema")
		switch {
		case p["in"] != "query":
		case object(p, "schema")["type"] == "object":
			rest = at
		default:
			named[p["name"].(string)] = at
			if p["required"] == true && !q.Has(p["name"].(string)) {
				errs = append(errs, fmt.Errorf("%s is missing in a request that is accepted", p["name"]))
			}
		}
	}
	others := map[string]any{}
	for name, values := range q {
		at, ok := named[name]
		if !ok {
			others[name] = values[0]
			continue
		}
		s, err := d.schema(at)
		if err == nil {
			err = s.ValidateValue(typed(s, values[0]))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("the parameter %s that is accepted: %w", name, err))
		}
	}
	switch {
	case len(others) == 0:
	case rest == nil:
		errs = append(errs, fmt.Errorf("parameters are accepted, and not described: %v", others))
	default:
		s, err := d.schema(rest)
		if err == nil {
			err = s.ValidateValue(others)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// typed is a parameter's text as a value of its schema's type.
func typed(s *Schema, text string) any {
	types := s.compiled.Types
	for ref := s.compiled.Ref; types == nil && ref != nil; ref = ref.Ref {
		types = ref.Types
	}
	if types == nil {
		return text
	}
	switch names := types.ToStrings(); {
	case slices.Contains(names, "integer"):
		if _, err := strconv.Atoi(text); err == nil {
			return json.Number(text)
		}
	case slices.Contains(names, "boolean"):
		if is, err := strconv.ParseBool(text); err == nil {
			return is
		}
	}
	return text
}
