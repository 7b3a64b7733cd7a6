// Package logline checks lines of the programs' logs, strictly: encoding/json takes a name that is there twice. Tests use it.
package logline

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"
)

var nameOf = regexp.MustCompile(`^[a-z][a-z0-9_]*$|^_[a-z0-9_]*$`)

// Check returns what is wrong with lines of a log, by the schema in docs/reference/metrics.md; nil when nothing is.
func Check(log []byte) error {
	var errs []error
	for line := range bytes.Lines(log) {
		if _, err := Parse(line); err != nil {
			errs = append(errs, fmt.Errorf("%w in %s", err, bytes.TrimSpace(line)))
		}
	}
	return errors.Join(errs...)
}

// Parse returns a line's values by name.
func Parse(line []byte) (map[string]any, error) {
	if !bytes.HasSuffix(line, []byte("\n")) {
		return nil, errors.New("the line does not end")
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return nil, fmt.Errorf("no JSON object: %v %w", t, err)
	}
	values, names := map[string]any{}, []string(nil)
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name := t.(string) // of an object that the decoder has taken
		if _, twice := values[name]; twice {
			return nil, fmt.Errorf("%q is there twice", name)
		}
		var v any
		if err := dec.Decode(&v); err != nil {
			return nil, fmt.Errorf("%q: %w", name, err)
		}
		if err := checkValue(name, v); err != nil {
			return nil, err
		}
		values[name], names = v, append(names, name)
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something is behind the object")
	}
	return values, checkBeginning(names, values)
}

func checkBeginning(names []string, values map[string]any) error {
	if len(names) < 3 || !slices.Equal(names[:3], []string{"time", "level", "msg"}) {
		return fmt.Errorf("it begins with %v, want time, level, msg", names[:min(len(names), 3)])
	}
	at, _ := values["time"].(string)
	if _, err := time.Parse(time.RFC3339Nano, at); err != nil || !strings.HasSuffix(at, "Z") {
		return fmt.Errorf("time is %v, want RFC 3339 in UTC", values["time"])
	}
	if level, _ := values["level"].(string); !slices.Contains([]string{"DEBUG", "INFO", "WARN", "ERROR"}, level) {
		return fmt.Errorf("level is %v", values["level"])
	}
	if msg, _ := values["msg"].(string); msg == "" {
		return errors.New("msg is empty")
	}
	return nil
}

func checkValue(name string, v any) error {
	_, number := v.(float64)
	switch {
	case !nameOf.MatchString(name), name == "err":
		return fmt.Errorf("%q is no name", name)
	case strings.HasSuffix(name, "_seconds") && !number:
		return fmt.Errorf("%s is %v, want a number", name, v)
	case name == "error":
		if text, ok := v.(string); !ok || text == "" {
			return fmt.Errorf("error is %v, want text", v)
		}
	}
	switch v := v.(type) {
	case bool, float64:
		return nil
	case string:
		if strings.ContainsAny(v, "\r\n") {
			return fmt.Errorf("%s has several lines", name)
		}
		return nil
	case []any:
		for _, e := range v {
			if _, ok := e.(string); !ok {
				return fmt.Errorf("%s has %v in its list, want text", name, e)
			}
		}
		return nil
	}
	return fmt.Errorf("%s is %v: want text, a number, true or false, or a list of text", name, v)
}
