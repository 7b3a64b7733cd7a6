package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/tallygate/tallygate/internal/deadletter"
	"github.com/tallygate/tallygate/internal/kafkaconn"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
)

const deadLettersUsage = `
tallygate dead-letters lists the records that are no events, or of which some elements are none, and
why. With --send it has an aggregator send what has been mended: it takes the objects that --json wrote, with their
value mended, or the headers that made the record a CloudEvent. Where the API asks for credentials this needs
the role admin. --direct sends straight to Kafka, for who may write there.

  tallygate dead-letters
  tallygate dead-letters --from 7d --reason no-api
  tallygate dead-letters --json > letters.ndjson     then mend each value in the file, and
  tallygate dead-letters --send letters.ndjson

Of an array only the elements that were bad are sent, those that index names: the good ones have counted.
Leave the others in their places; or take index out, and all of the value is sent. A value that was
cut is not sent: put the whole one there, and take cut_from out. Events that are older than an
aggregator's max_lateness (1h by default) count nowhere: --now lets them count when they arrive.
An event that is sent twice counts once while its key remembers its id (64 of them, for 10 minutes, by default);
one without an id gets its record's place as its id. So send again what an error names, not all of the file.
`

// recordOf is where a letter's record was, for a terminal.
func recordOf(p deadletter.Place) string {
	return fmt.Sprintf("%s/%d@%d", cell(p.Topic, 249), p.Partition, p.Offset)
}

// DeadLetters is `tallygate dead-letters`.
func DeadLetters(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	o := ops.NewOptions("tallygate dead-letters", deadLettersUsage, stdout, getenv)
	kafka := kafkaconn.NewOptions(o)
	prefix := o.String("prefix", "tallygate", "`name` that all topics begin with")
	var from moment
	o.Var(&from, "from", "the first `moment`: a time, a date, or a span back (default 24h)")
	reason := o.String("reason", "", "only those with this `reason`, such as not-json")
	asJSON := o.Bool("json", false, "write JSON, an object a line; with --send the summary")
	send := o.String("send", "", "send what has been mended: `FILE` with objects as --json writes them, - for standard input")
	r := resend{stdout: stdout, stderr: stderr}
	o.BoolVar(&r.now, "now", false, "with --send: without their own time, so that they count when they arrive")
	direct := o.Bool("direct", false, "with --send: straight to Kafka, which needs the right to write there, and is not in the audit")
	by := o.String("by", operator(), "with --send: who sends, for the audit; where you show a token or a certificate, for whom; a `name`")
	at := addAPI(o)
	err := o.ParseOnly(args)
	switch {
	case err != nil:
	case *send == "" && (r.now || *direct):
		err = &ops.UsageError{Err: errors.New("--now and --direct go with --send")}
	case *send != "" && (*reason != "" || !from.IsZero()):
		err = &ops.UsageError{Err: errors.New("--send takes all of its file: --from and --reason are for the list")}
	case passedOver(o, *send != "", *direct) != nil:
		err = &ops.UsageError{Err: passedOver(o, *send != "", *direct)}
	case *send != "":
		r.json = *asJSON
		if *direct {
			r.to, err = newDirect(kafka, *prefix, &r)
		} else {
			r.to, err = newAsked(at, *by, &r)
		}
		if err == nil {
			err = r.file(ctx, *send, stdin)
		}
	default:
		if from.IsZero() {
			from.Time = time.Now().Add(-defaultSpan).UTC()
		}
		var k *kafkaconn.Kafka
		if k, err = kafka.Build(); err != nil {
			err = &ops.UsageError{Err: err}
		} else {
			err = listDeadLetters(ctx, k, *prefix+".dead-letters", from.Time, *reason, *asJSON, stdout, stderr)
		}
	}
	return ops.Exit(stderr, "tallygate dead-letters", err)
}

// passedOver is an error for an option of the command line that would change nothing: who names a Kafka or an aggregator
// means that one, and not another one that happens to be the default.
func passedOver(o *ops.Options, send, direct bool) (err error) {
	o.Visit(func(f *flag.Flag) {
		switch f.Name {
		case "aggregator", "token-file", "ca", "cert", "key", "by":
			if !send || direct {
				err = fmt.Errorf("--%s is for --send without --direct: nothing else asks an aggregator", f.Name)
			}
		default:
			if send && !direct && (f.Name == "prefix" || strings.HasPrefix(f.Name, "kafka")) {
				err = fmt.Errorf("--%s is for the list, or goes with --send --direct: an aggregator, which --aggregator names, sends to its own Kafka", f.Name)
			}
		}
	})
	return err
}

func listDeadLetters(ctx context.Context, k *kafkaconn.Kafka, topic string, from time.Time, reason string, asJSON bool, stdout, stderr io.Writer) error {
	log, err := kafkalog.OpenMerge(ctx, k.Log("tallygate-dead-letters"), topic, from, time.Time{})
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
		d := readDeadLetter(rec)
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
		fmt.Fprintln(stderr, nothingSince("such dead letter", from))
	}
	return err
}

// readDeadLetter takes what the headers say; numbers that are none stay 0.
func readDeadLetter(rec *kafkalog.Record) deadletter.Letter {
	d := deadletter.Letter{At: event.FromTime(rec.Time())}
	for headers := rec.Headers; ; {
		name, value, more := headers.Next()
		if !more {
			break
		}
		text := string(value)
		n, _ := strconv.ParseInt(text, 10, 64)
		switch string(name) {
		case "reason":
			d.Reason = text
		case "detail":
			d.Detail = text
		case "topic":
			d.Topic = text
		case "partition":
			d.Partition = int32(n)
		case "offset":
			d.Offset = n
		case "index":
			d.Index = append(d.Index, int(n))
		case "cut-from":
			if int(n) > len(rec.Value) { // else only the key was cut
				d.CutFrom = int(n)
			}
		case "headers-cut":
			d.HeadersCut = int(n)
		default:
			if key, own := strings.CutPrefix(string(name), "header:"); own {
				header := deadletter.Header{Key: key}
				header.Value, header.Value64 = textOrBytes(value)
				d.Headers = append(d.Headers, header)
			}
		}
	}
	d.Value, d.Value64 = textOrBytes(rec.Value)
	return d
}

// textOrBytes is how JSON has a value: as a string, if it is UTF-8.
func textOrBytes(value []byte) (text *string, raw []byte) {
	if !utf8.Valid(value) {
		return nil, value
	}
	s := string(value)
	return &s, nil
}

// deadLetterTable returns what writes a row, and for nil the rest of the table.
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
