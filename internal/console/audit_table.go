package console

import (
	"fmt"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

// auditTable has entries as rows, with keys as the reader sees them.
func (e *eyes) auditTable(list []*auditlog.Record) table {
	t := table{Head: []column{{Text: "Time"}, {Text: "Type"}, {Text: "What"}, {Text: "Key"}, {Text: "Rule"}, {Text: "By"}, {Text: "Why"}}}
	for _, r := range list {
		d, known := r.Describe(r.Raw)
		if !known {
			d.Why = "This version does not know the type. The export has the entry as it is."
		}
		what := cell{Text: d.What}
		if r.Type == auditlog.Rules {
			if what.Link = "/versions"; r.Version > 1 {
				what.Link = fmt.Sprintf("/versions/diff?from=%d&to=%d", r.Version-1, r.Version)
			}
		}
		rule := cell{Text: dash}
		if d.Rule != "" {
			rule = ruleCell(d.Rule)
		}
		t.Rows = append(t.Rows, row{Cells: []cell{
			{HTML: timeTag(r.At.Time(), r.At.Time().UTC().Format("2006-01-02 15:04:05.000")+" UTC")}, {Text: words.Cell(r.Type, 32), Tag: "plain"}, what, e.auditKey(r, d.Key), rule, textCell(r.Who()), textCell(d.Why),
		}})
	}
	return t
}

// auditKey is the key that an entry is about.
func (e *eyes) auditKey(r *auditlog.Record, key []event.Dim) cell {
	if len(key) > 0 {
		return cell{Text: e.text(key), Link: e.path(key), Code: true}
	}
	if len(r.Each) > 0 {
		return cell{Text: plural(len(r.Each), "key")}
	}
	return cell{Text: dash}
}
