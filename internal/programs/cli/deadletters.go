package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/deadletter"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

const deadLettersUsage = `
tallygate dead-letters lists the records that are malformed, or that contain malformed events, and
says why. With --send it has an aggregator send corrected ones again: FILE has the objects that --json
wrote, with a corrected value, or with corrected headers if the record was a CloudEvent. Where the
API asks for credentials, this needs the role admin. --direct sends straight to Kafka, if you may
write there.

  tallygate dead-letters
  tallygate dead-letters --from 7d --reason no-api
  tallygate dead-letters --json > letters.ndjson     then correct each value in the file, and
  tallygate dead-letters --send letters.ndjson

Of an array only the elements that index names are sent: the others were valid, and have counted.
Leave those in their places; or remove index, and the whole value is sent. A value that was cut is
not sent: insert the whole value, and remove cut_from. Events older than an aggregator's max_lateness
(1h by default) are counted only with --now. An event that is sent twice counts once while its key
remembers its id (by default 64 ids, for 10 minutes); one without an id gets its record's place as its
id. So after an error send again the lines that it names, not the whole file.
`

// recordOf is the place of a letter's record, for a terminal.
func recordOf(p deadletter.Place) string {
	return fmt.Sprintf("%s/%d@%d", cell(p.Topic, 249), p.Partition, p.Offset)
}

// deadLetters is `tallygate dead-letters`.
func deadLetters(ctx context.Context, c *call) error {
	o := c.options(deadLettersUsage)
	kafka := kafkaconn.NewOptions(o)
	prefix := o.String("prefix", "tallygate", "`name` that all topics begin with")
	var from moment
	o.Var(&from, "from", "the first `moment`: a time, a date, or a span back (default 24h)")
	reason := o.String("reason", "", "only those with this `reason`, such as not-json")
	asJSON := o.Bool("json", false, "write JSON, an object a line; with --send the summary")
	send := o.String("send", "", "send fixed letters: `FILE` with objects as --json writes them, - for standard input")
	r := resend{stdout: c.stdout, stderr: c.stderr}
	o.BoolVar(&r.now, "now", false, "with --send: without their own time, so that they count when they arrive")
	direct := o.Bool("direct", false, "with --send: straight to Kafka, which needs the right to write there, and is not in the audit")
	by := o.String("by", operator(), "with --send: who sends, for the audit; where you show a token or a certificate, for whom; a `name`")
	at := apiclient.NewOptions(o)
	err := o.ParseOnly(c.args)
	switch {
	case err != nil:
		return err
	case *send == "" && (r.now || *direct):
		return &ops.UsageError{Err: errors.New("--now and --direct go with --send")}
	case *send != "" && (*reason != "" || !from.IsZero()):
		return &ops.UsageError{Err: errors.New("--send takes all of its file: --from and --reason are for the list")}
	}
	if err := unusedOption(o, *send != "", *direct); err != nil {
		return &ops.UsageError{Err: err}
	}
	if *send != "" {
		r.json = *asJSON
		if *direct {
			r.to, err = newDirect(kafka, *prefix, &r)
		} else {
			r.to, err = newAsked(at, *by, &r)
		}
		if err != nil {
			return err
		}
		return r.file(ctx, *send, c.stdin)
	}
	if from.IsZero() {
		from.Time = time.Now().Add(-defaultSpan).UTC()
	}
	k, err := kafka.Build()
	if err != nil {
		return &ops.UsageError{Err: err}
	}
	return listDeadLetters(ctx, k, *prefix+".dead-letters", from.Time, *reason, *asJSON, c.stdout, c.stderr)
}

// unusedOption is an error for an option of the command line that would have no effect. Whoever names
// a Kafka or an aggregator means that one, and not the default of the other.
func unusedOption(o *ops.Options, send, direct bool) (err error) {
	o.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "aggregator", "token-file", "ca", "cert", "key", "by":
			if !send || direct {
				err = fmt.Errorf("--%s is for --send without --direct: only that asks an aggregator", f.Name)
			}
		default:
			if send && !direct && (f.Name == "prefix" || strings.HasPrefix(f.Name, "kafka")) {
				err = fmt.Errorf("--%s is for the list, or for --send --direct: with --send alone, the aggregator that --aggregator names sends to its own Kafka", f.Name)
			}
		}
	})
	return err
}

func listDeadLetters(ctx context.Context, k *kafkaconn.Kafka, topic string, from time.Time, reason string, asJSON bool, stdout, stderr io.Writer) error {
	log, err := kafkalog.OpenMerge(ctx, clients.Log(k, "tallygate-dead-letters"), topic, from, time.Time{})
	if err != nil {
		return err
	}
	defer log.Close()
	out := bufio.NewWriterSize(stdout, 64<<10)
	write := deadLetterTable(out)
	if asJSON {
		enc := json.NewEncoder(out)
		enc.SetEscapeHTML(false)
		write = func(d *deadletter.Letter) error { return enc.Encode(d) }
	}
	seen := map[deadletter.Place]bool{}
	for err == nil {
		var rec *kafkalog.Record
		if _, rec, err = log.Next(ctx); err != nil {
			break
		}
		d := deadletter.Read(rec)
		if reason != "" && d.Reason != reason || d.Topic != "" && seen[d.Place] {
			continue
		}
		seen[d.Place] = true
		err = write(&d)
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if !asJSON {
		err = errors.Join(err, write(nil))
	}
	err = errors.Join(err, out.Flush())
	if err == nil && len(seen) == 0 && !asJSON {
		fmt.Fprintln(stderr, nothingSince("dead letter", from))
	}
	return err
}

// deadLetterTable returns a function that writes a row, or flushes the table if the letter is nil.
func deadLetterTable(out io.Writer) func(*deadletter.Letter) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	rows := 0
	return func(d *deadletter.Letter) error {
		if d == nil {
			return w.Flush()
		}
		if rows == 0 {
			fmt.Fprintln(w, "TIME\tREASON\tRECORD\tVALUE\tDETAIL")
		}
		value := string(d.Value64)
		if d.Value != nil {
			value = *d.Value
		}
		_, err := fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", clock(d.At), orDash(cell(d.Reason, 64)), recordOf(d.Place), orDash(cell(value, 60)), orDash(cell(d.Detail, 300)))
		if rows++; err == nil && rows%tableRows == 0 {
			err = w.Flush()
		}
		return err
	}
}
