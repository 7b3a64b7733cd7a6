package vocabulary

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

// compared holds the contradictions to the vocabulary of a rule file.
type compared struct {
	set   *rules.Set
	check *rules.VocabularyCheck
	found map[rules.Mismatch]*contradiction
	names map[string]int   // in found, by what is wrong
	list  []rules.Mismatch // of one event
}

// contradiction is a mismatch, with its events.
type contradiction struct {
	What    string `json:"what"`
	Name    string `json:"name"`
	Events  uint64 `json:"events"`
	First   string `json:"first"` // where
	Problem string `json:"problem"`
}

func newCompared(set *rules.Set) *compared {
	c := &compared{set: set, check: set.Vocabulary().NewCheck(), found: map[rules.Mismatch]*contradiction{}, names: map[string]int{}}
	c.check.AllNames = true
	return c
}

func (c *compared) event(rec *replay.Record, where func() string) {
	c.list = c.check.Event(c.list[:0], &rec.Event)
	for _, m := range c.list {
		found := c.found[m]
		if found == nil && c.names[m.What] >= rules.MaxMismatchNames {
			m.Name = rules.OtherNames
			found = c.found[m]
		}
		if found == nil {
			m.Name = strings.Clone(m.Name)
			c.names[m.What]++
			found = &contradiction{What: m.What, Name: m.Name, First: where(), Problem: c.problem(m, rec)}
			c.found[m] = found
		}
		found.Events++
	}
}

// short is a name as tables have it.
func short(name string) string {
	if text := []rune(name); len(text) > maxValue {
		return string(text[:maxValue]) + "…"
	}
	return name
}

// problem describes a mismatch without the value: nobody knows whom it names.
func (c *compared) problem(m rules.Mismatch, rec *replay.Record) string {
	if m.Name == rules.OtherNames {
		return fmt.Sprintf("names beyond the first %d", rules.MaxMismatchNames)
	}
	if m.What == rules.MismatchValue {
		return "attrs." + short(m.Name) + " is " + c.set.Vocabulary().Attr(m.Name) + ", and here it is another"
	}
	problem, _ := c.set.Vocabulary().Explain(m, &rec.Event)
	return problem
}

func (c *compared) write(out io.Writer, read summary, asJSON bool) error {
	list := slices.SortedFunc(maps.Values(c.found), func(a, b *contradiction) int {
		return cmp.Or(cmp.Compare(a.What, b.What), cmp.Compare(b.Events, a.Events), cmp.Compare(a.Name, b.Name))
	})
	if asJSON {
		object := struct {
			summary
			Contradictions []*contradiction `json:"contradictions"`
		}{read, list}
		if object.Contradictions == nil {
			object.Contradictions = []*contradiction{}
		}
		if err := json.NewEncoder(out).Encode(object); err != nil {
			return err
		}
	} else {
		c.table(out, read, list)
	}
	if len(list) > 0 {
		return fmt.Errorf("events contradict what %s declares", c.set.Name)
	}
	return nil
}

func (c *compared) table(out io.Writer, read summary, list []*contradiction) {
	interrupted := ""
	if read.Interrupted {
		interrupted = " (reading was interrupted)"
	}
	if len(list) == 0 {
		fmt.Fprintf(out, "%s%s: none contradicts what %s declares\n", events(uint64(read.Events)), interrupted, c.set.Name)
		return
	}
	fmt.Fprintf(out, "%s%s. What contradicts the declarations of %s:\n\n", events(uint64(read.Events)), interrupted, c.set.Name)
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "WHAT\tNAME\tEVENTS\tFIRST\tPROBLEM")
	for _, x := range list {
		fmt.Fprintf(w, "%s\t%s\t%d\t%s\t%s\n", x.What, quoted(short(x.Name)), x.Events, x.First, x.Problem)
	}
	_ = w.Flush() // to a buffer
}
