package console

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

func auditExport() page {
	return page{name: "audit-export", path: "/audit/export.ndjson", title: "Export of the audit", under: "audit", least: access.Operator, raw: exportAudit}
}

// exportWithin bounds an export. A longer span is exported in parts, or by `tallygate audit --json`.
const exportWithin = 10 * time.Minute

// exportAudit writes the entries of a filter as the topic has them, a line each, the oldest first. It is in the
// audit before the first line is sent. A file that ends early ends with a line of the type error.
func exportAudit(r *request, w http.ResponseWriter) error {
	k, err := r.keys()
	if err != nil {
		return err
	}
	f, err := r.auditFilter(k)
	if err != nil {
		return err
	}
	if f.To.IsZero() {
		f.To = r.Now
	}
	if err := r.recordRead(f.Key, "export-audit", f.From.UTC().Format(time.RFC3339)+" to "+f.To.UTC().Format(time.RFC3339)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(r.ctx(), exportWithin)
	defer cancel()
	log, err := auditlog.Open(ctx, k.log, k.topic, f.From, f.To)
	if err != nil {
		return &Problem{Status: http.StatusBadGateway, Title: "The audit topic cannot be read", Detail: err.Error(), Do: "The overview says whether Kafka answers.", Link: "/audit"}
	}
	defer log.Close()
	download(w, "application/x-ndjson", "audit-"+r.Now.UTC().Format("20060102-150405")+".ndjson")
	scan := auditlog.Scan{Filter: f, Each: func(rec *auditlog.Record) error {
		var line bytes.Buffer
		if err := json.Compact(&line, rec.Raw); err != nil {
			return err
		}
		line.WriteByte('\n')
		_, err := w.Write(line.Bytes())
		return err
	}}
	if err := scan.Run(ctx, log); err != nil {
		_ = json.NewEncoder(w).Encode(map[string]string{"type": "error", "detail": "the export ends here: " + err.Error()}) // the reader may have gone
	}
	return nil
}
