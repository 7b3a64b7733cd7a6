package vocabulary

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

// An attribute has a list of values when each was seen a few times, and they are few and short. Others are
// text: their values may say who somebody is.
const (
	maxValues   = 12
	maxValue    = 64 // bytes
	minSeen     = 3
	maxAttrs    = 1000   // as many as a rule file may declare
	maxAPIs     = 10_000 // the same
	valueColumn = 36     // where comments stand
)

// learned sums the words of events.
type learned struct {
	apis    apiNode
	unnamed uint64 // events of APIs that no rule file can name
	attrs   map[string]*attr
	dropped uint64 // attributes of events, beyond maxAttrs names
}

// attr sums the values of an attribute.
type attr struct {
	events uint64
	kinds  [3]uint64         // by event.Kind
	values map[string]uint64 // of texts; nil: they are no list
}

func newLearned() *learned { return &learned{attrs: map[string]*attr{}} }

func (l *learned) event(rec *replay.Record, _ func() string) {
	if strings.Contains(rec.API, "*") || rules.APIMistake(rec.API) != "" {
		l.unnamed++
	} else {
		l.apis.add(rec.API, 1)
	}
	for i := range rec.Attrs {
		l.attr(&rec.Event, rec.Attrs[i].Name, rec.Attrs[i].Value)
	}
}

func (l *learned) attr(e *event.Event, name string, v event.Value) {
	if v.Text == "" || name == "" {
		return
	}
	a := l.attrs[name]
	if a == nil {
		if len(l.attrs) == maxAttrs {
			l.dropped++
			return
		}
		a = &attr{values: map[string]uint64{}}
		l.attrs[strings.Clone(name)] = a
	}
	a.events++
	a.kinds[v.Kind]++
	if v.Kind != event.String || a.values == nil {
		return
	}
	if _, known := a.values[v.Text]; !known && (len(a.values) == maxValues || len(v.Text) > maxValue) || v.Text == e.UID {
		a.values = nil
		return
	}
	a.values[strings.Clone(v.Text)]++
}

// learnedAttr is an attribute as it is written.
type learnedAttr struct {
	Name   string   `json:"name"`
	Type   string   `json:"type"` // text, number, boolean, any, or values
	Values []string `json:"values,omitempty"`
	Events uint64   `json:"events"`
}

func (a *attr) declare(name string) learnedAttr {
	out := learnedAttr{Name: name, Type: "any", Events: a.events}
	for kind, word := range map[event.Kind]string{event.String: "text", event.Number: "number", event.Bool: "boolean"} {
		if a.kinds[kind] == a.events {
			out.Type = word
		}
	}
	seldom := func(value string) bool { return a.values[value] < minSeen }
	values := slices.Sorted(maps.Keys(a.values))
	if out.Type == "text" && len(values) > 0 && !slices.ContainsFunc(values, seldom) {
		out.Type, out.Values = "values", values
	}
	return out
}

// object is the output of --json.
type object struct {
	summary
	APIs    []api         `json:"apis"`
	Attrs   []learnedAttr `json:"attrs"`
	Unnamed uint64        `json:"unnamed_events,omitempty"`
}

func (l *learned) write(out io.Writer, read summary, asJSON bool) error {
	o := object{summary: read, APIs: l.apis.list([]api{}, false), Attrs: []learnedAttr{}, Unnamed: l.unnamed}
	for _, name := range slices.Sorted(maps.Keys(l.attrs)) {
		o.Attrs = append(o.Attrs, l.attrs[name].declare(name))
	}
	if asJSON {
		return json.NewEncoder(out).Encode(o)
	}
	fmt.Fprintf(out, "# What %s say. What has not happened yet is missing, and slips that have are in it.\n", events(uint64(read.Events)))
	if read.Interrupted {
		fmt.Fprintln(out, "# Reading was interrupted.")
	}
	if len(o.APIs) > maxAPIs {
		fmt.Fprintf(out, "# A rule file may declare %d APIs: replace some of these by patterns.\n", maxAPIs)
	}
	if l.unnamed > 0 {
		fmt.Fprintf(out, "# Left out: %s of APIs that no rule file can name, for their blanks, commas or other such characters.\n", events(l.unnamed))
	}
	if l.dropped > 0 {
		fmt.Fprintf(out, "# There are more than %d attributes: some are left out.\n", maxAttrs)
	}
	if len(o.APIs)+len(o.Attrs) > 0 {
		fmt.Fprintln(out, "spec:")
	}
	if len(o.APIs) > 0 {
		fmt.Fprintln(out, "  apis:")
	}
	for _, a := range o.APIs {
		many := ""
		if a.Many {
			many = fmt.Sprintf(", more than %d names", maxNames)
		}
		fmt.Fprintf(out, "%-*s # %s%s\n", valueColumn, "    - "+quoted(a.API), events(a.Events), many)
	}
	if len(o.Attrs) > 0 {
		fmt.Fprintln(out, "  attrs:")
	}
	for _, a := range o.Attrs {
		what := a.Type
		if a.Values != nil {
			var values []string
			for _, v := range a.Values {
				values = append(values, quoted(v))
			}
			what = "[" + strings.Join(values, ", ") + "]"
		}
		fmt.Fprintf(out, "%-*s # %s\n", valueColumn, "    "+quoted(a.Name)+": "+what, events(a.Events))
	}
	return nil
}

func events(n uint64) string {
	if n == 1 {
		return "1 event"
	}
	return fmt.Sprintf("%d events", n)
}

// plain matches texts that YAML reads as they are, and words lists those that it does not.
var (
	plain = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_./*-]*$`)
	words = regexp.MustCompile(`^(?i:y|n|yes|no|on|off|true|false|null|nan|inf)$`)
)

// quoted is a text as YAML has it.
func quoted(s string) string {
	if plain.MatchString(s) && !words.MatchString(s) {
		return s
	}
	text, _ := json.Marshal(s) // text always has a form
	return string(text)
}
