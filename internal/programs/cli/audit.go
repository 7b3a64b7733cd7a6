package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/auditlog"
)

const auditUsage = `
tallygate audit lists past verdicts, commands, changes of the rules, blown fuses, kill switches, dead
letters that were sent again, and reads of personal data: who, when and why, in the order of their
times. KEY selects those that concern keys with these dimensions; an entry that names no key concerns
all. --rule selects those that name the rule. A time is RFC 3339, a date (its start in UTC), or a span
back from now: 90m, 36h, 7d.

  tallygate audit uid=42
  tallygate audit uid=42 --from 2d --to 24h
  tallygate audit --rule search-combined --from 2026-11-21T10:00:00Z --json
`

const defaultSpan = 24 * time.Hour

// audit is one run of the command.
type audit struct {
	wanted auditlog.Filter // To: zero is now
	out    *bufio.Writer
	table  *tabwriter.Writer // nil: JSON
	shown  int
	bad    int
}

// listAudit is `tallygate audit`.
func listAudit(ctx context.Context, c *call) error {
	o := c.options(auditUsage)
	kafka := kafkaconn.NewOptions(o)
	prefix := o.String("prefix", "tallygate", "`name` that all topics begin with")
	a := audit{out: bufio.NewWriterSize(c.stdout, 64<<10)}
	from, to := moment{time.Now().Add(-defaultSpan).UTC()}, moment{}
	o.StringVar(&a.wanted.Rule, "rule", "", "only what concerns this `rule`, or one of its limits")
	o.Var(&from, "from", "the first `moment`: a time, a date, or a span back (default 24h)")
	o.Var(&to, "to", "the `moment` before which entries are shown; now by default")
	asJSON := o.Bool("json", false, "write the entries as the topic has them, one a line")
	if err := o.Parse(c.args); err != nil {
		return err
	}
	a.wanted.From, a.wanted.To = from.Time, to.Time
	var err error
	if len(o.Args()) > 0 {
		a.wanted.Key, err = parseKey(o.Args())
	}
	if !to.IsZero() && !from.Before(to.Time) {
		err = errors.Join(err, errors.New("--from is not before --to"))
	}
	k, kafkaErr := kafka.Build()
	if err = errors.Join(err, kafkaErr); err != nil {
		return &ops.UsageError{Err: err}
	}
	if !*asJSON {
		a.table = tabwriter.NewWriter(a.out, 0, 0, 2, ' ', 0)
	}
	return a.show(ctx, k, *prefix+".audit", c.stderr)
}

func (a *audit) show(ctx context.Context, k *kafkaconn.Kafka, topic string, stderr io.Writer) error {
	log, err := auditlog.Open(ctx, clients.Log(k, "tallygate-audit"), topic, a.wanted.From, a.wanted.To)
	if err != nil {
		return err
	}
	defer log.Close()
	scan := auditlog.Scan{Filter: a.wanted, Each: a.write, Bad: func(partition int32, offset int64, err error) {
		if a.bad++; a.bad <= maxShownBad {
			fmt.Fprintf(stderr, "%s/%d@%d: %v\n", topic, partition, offset, err)
		}
	}}
	err = scan.Run(ctx, log)
	if a.table != nil {
		err = errors.Join(err, a.table.Flush())
	}
	if err = errors.Join(err, a.out.Flush()); err != nil {
		return err
	}
	if a.bad > 0 {
		return fmt.Errorf("%s cannot be read", plural(a.bad, "record"))
	}
	if a.shown == 0 && a.table != nil {
		fmt.Fprintln(stderr, nothingSince("entry", a.wanted.From))
	}
	return nil
}

// tableRows is the number of rows that are aligned together: a table may have millions.
const tableRows = 1000

func (a *audit) write(r *auditlog.Record) error {
	a.shown++
	if a.table == nil {
		var line bytes.Buffer
		if err := json.Compact(&line, r.Raw); err != nil {
			return err
		}
		line.WriteByte('\n')
		_, err := a.out.Write(line.Bytes())
		return err
	}
	if a.shown == 1 {
		fmt.Fprintln(a.table, "TIME\tWHAT\tKEY\tRULE\tBY\tWHY")
	}
	d, _ := r.Describe(r.Raw)
	_, err := fmt.Fprintf(a.table, "%s\t%s\t%s\t%s\t%s\t%s\n", clock(r.At), d.What, orDash(keytext.Format(d.Key)), orDash(d.Rule), orDash(r.Who()), orDash(d.Why))
	if err == nil && a.shown%tableRows == 0 {
		err = a.table.Flush()
	}
	return err
}
