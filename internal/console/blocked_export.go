package console

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strings"

	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/access"
)

func blockedExport() page {
	return page{name: "blocked-export", path: "/blocked/export.csv", title: "Export of who is blocked", under: "blocked", least: access.Operator, raw: exportBlocked}
}

// exportRows bounds the rows that are taken at once: the list is not locked in between.
const exportRows = 10_000

// exportBlocked writes the rows of a filter as CSV, unmasked. It is in the audit before the first row is sent.
func exportBlocked(r *request, w http.ResponseWriter) error {
	k, err := r.keys()
	if err != nil {
		return err
	}
	q, _, err := r.blockedQuery(k)
	if err != nil {
		return err
	}
	q.After, q.Limit = "", exportRows
	p, err := k.list.Page(q)
	if err != nil {
		return &Problem{Status: http.StatusBadRequest, Title: "The filter is not valid", Detail: err.Error(), Do: "Choose from the form.", Link: "/blocked"}
	}
	if err := r.recordRead(q.Key, "export-blocked", fmt.Sprintf("%d verdicts as CSV", p.Found)); err != nil {
		return err
	}
	download(w, "text/csv; charset=utf-8", "blocked-"+r.Now.UTC().Format("20060102-150405")+".csv")
	out := csv.NewWriter(w)
	_ = out.Write([]string{"key", "rule", "mode", "action", "since", "until", "count", "limit", "event", "partition", "offset"})
	for {
		for i := range p.Rows {
			v := &p.Rows[i]
			_ = out.Write(plainCells(keytext.Format(v.Key), v.Rule, modeCell(v).Text, actionOf(v), words.Clock(v.Since), words.Clock(v.Until), v.Count.String(), v.Limit.String(),
				v.Cause.ID, fmt.Sprint(v.Cause.Partition), fmt.Sprint(v.Cause.Offset)))
		}
		if out.Flush(); out.Error() != nil || p.Next == "" || r.ctx().Err() != nil {
			return nil // the reader has gone, or has it all
		}
		q.After = p.Next
		if p, err = k.list.Page(q); err != nil {
			return nil //nolint:nilerr // its own cursor is valid; and half a file has been sent
		}
	}
}

// plainCells keeps spreadsheets from taking a value that users chose for a formula.
func plainCells(cells ...string) []string {
	for i, text := range cells {
		if text != "" && strings.ContainsRune("=+-@\t\r", rune(text[0])) {
			cells[i] = "'" + text
		}
	}
	return cells
}

// download makes a response a file.
func download(w http.ResponseWriter, kind, name string) {
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Content-Disposition", `attachment; filename="`+name+`"`)
}
