package cli

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/tallygate/tallygate/internal/deadletter"
	"github.com/tallygate/tallygate/internal/kafkaconn"
	"github.com/tallygate/tallygate/internal/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/keytext"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

const auditUsage = `
tallygate audit lists past verdicts, commands, blown fuses and dead letters that were sent again: who,
when and why, in the order of their times. KEY selects those that concern keys with these
dimensions; an entry that names no key concerns all. --rule selects those that name the rule. A time is RFC 3339, a date (its start in UTC),
or a span back from now: 90m, 36h, 7d.

  tallygate audit uid=42
  tallygate audit uid=42 --from 2d --to 24h
  tallygate audit --rule search-combined --from 2026-11-21T10:00:00Z --json
`

const (
	defaultSpan = 24 * time.Hour

	// Records are found by the brokers' time, and entries have their own: an instance's clock may be
	// this much ahead of a broker's, and an entry may arrive this late.
	auditAhead = time.Minute
	auditLate  = 10 * time.Minute
)

// audit is one run of the command.
type audit struct {
	key      keyFilter
	rule     string
	from, to moment // to: zero is now
	out      *bufio.Writer
	table    *tabwriter.Writer // nil: JSON
	shown    int
	bad      int
	order    *inOrder
}

// entry is a line of the audit topic. Every type has type, at and by.
type entry struct {
	Type    string
	At      event.Micros // NoTime if absent
	By      string
	For     string           // on whose behalf, according to By
	Verdict *verdict.Verdict // of a verdict

	// Of a command. Entries of other types are found by their key and rule, too.
	Command, Rule, Reason string
	Key                   []event.Dim
	Until                 event.Micros
	Keys                  int // how many it concerned, if not Key alone
	Each                  [][]event.Dim
	ID                    string
}

// parseEntry is strict with verdicts only: an entry of another type is shown whatever its fields
// have.
func parseEntry(data []byte) (*entry, error) {
	var w struct {
		Type, At, By, Verdict, Command, Rule, Reason, Key, Until, Keys, ID json.RawMessage
		Each                                                               []json.RawMessage
		For                                                                json.RawMessage `json:"on_behalf_of"`
	}
	if err := json.Unmarshal(data, &w); err != nil {
		return nil, fmt.Errorf("parse the entry: %w", err)
	}
	e := &entry{At: event.NoTime, Until: event.NoTime, Key: parseEntryKey(w.Key)}
	for _, f := range []struct {
		from json.RawMessage
		to   any
	}{{w.Type, &e.Type}, {w.At, &e.At}, {w.By, &e.By}, {w.For, &e.For}, {w.Command, &e.Command}, {w.Rule, &e.Rule}, {w.Reason, &e.Reason}, {w.Until, &e.Until}, {w.Keys, &e.Keys}, {w.ID, &e.ID}} {
		if len(f.from) > 0 {
			_ = json.Unmarshal(f.from, f.to) // a field of another type counts as absent
		}
	}
	for _, key := range w.Each {
		e.Each = append(e.Each, parseEntryKey(key))
	}
	if e.Type == "verdict" {
		v, err := verdict.Parse(w.Verdict)
		if err != nil {
			return nil, err
		}
		e.Verdict, e.Key, e.Rule = &v, v.Key, v.Rule
	}
	return e, nil
}

// parseEntryKey parses a key, written as an object or as a record key's text. Nil is no key.
func parseEntryKey(data json.RawMessage) (key []event.Dim) {
	var text string
	var dims map[string]string
	switch {
	case len(data) == 0:
	case json.Unmarshal(data, &text) == nil:
		key, _ = event.ParseKey([]byte(text))
	case json.Unmarshal(data, &dims) == nil:
		for name, value := range dims {
			key = append(key, event.Dim{Name: name, Value: value})
		}
	}
	return key
}

// listAudit is `tallygate audit`.
func listAudit(ctx context.Context, c *call) error {
	o := c.options(auditUsage)
	kafka := kafkaconn.NewOptions(o)
	prefix := o.String("prefix", "tallygate", "`name` that all topics begin with")
	a := audit{from: moment{time.Now().Add(-defaultSpan).UTC()}, out: bufio.NewWriterSize(c.stdout, 64<<10)}
	o.StringVar(&a.rule, "rule", "", "only what concerns this `rule`, or one of its limits")
	o.Var(&a.from, "from", "the first `moment`: a time, a date, or a span back (default 24h)")
	o.Var(&a.to, "to", "the `moment` before which entries are shown; now by default")
	asJSON := o.Bool("json", false, "write the entries as the topic has them, one a line")
	if err := o.Parse(c.args); err != nil {
		return err
	}
	var err error
	a.key, err = parseKeyFilter(o.Args())
	if !a.to.IsZero() && !a.from.Before(a.to.Time) {
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
	var to time.Time
	if !a.to.IsZero() {
		to = a.to.Add(auditLate)
	}
	log, err := kafkalog.OpenMerge(ctx, clients.Log(k, "tallygate-audit"), topic, a.from.Add(-auditAhead), to)
	if err != nil {
		return err
	}
	defer log.Close()
	a.order = newInOrder(func(o *ordered) error {
		if !a.wants(o.entry) {
			return nil
		}
		return a.write(o.entry, o.raw)
	})
	err = a.copy(ctx, log, func(partition int32, offset int64, err error) {
		if a.bad++; a.bad <= maxShownBad {
			fmt.Fprintf(stderr, "%s/%d@%d: %v\n", topic, partition, offset, err)
		}
	})
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
		fmt.Fprintln(stderr, nothingSince("entry", a.from.Time))
	}
	return nil
}

func (a *audit) copy(ctx context.Context, log *kafkalog.Merge, bad func(partition int32, offset int64, err error)) error {
	for {
		partition, rec, err := log.Next(ctx)
		if errors.Is(err, io.EOF) {
			return a.order.flush()
		}
		if u, ok := errors.AsType[*kafkalog.Unreadable](err); ok {
			bad(partition, u.First, err)
			continue
		}
		if err != nil {
			return err
		}
		e, err := parseEntry(rec.Value)
		if err != nil {
			bad(partition, rec.Offset, err)
			continue
		}
		if e.At == event.NoTime {
			e.At = event.FromTime(rec.Time())
		}
		if err := a.order.add(&ordered{entry: e, raw: rec.Value, record: string(rec.Key), partition: partition}, event.FromTime(rec.Time())); err != nil {
			return err
		}
	}
}

func (a *audit) wants(e *entry) bool {
	at := e.At.Time()
	if at.Before(a.from.Time) || !a.to.IsZero() && !at.Before(a.to.Time) {
		return false
	}
	return ruleIs(e.Rule, a.rule) && a.wantsKey(e)
}

// wantsKey reports whether an entry is about keys that are wanted: one that names none may be about all.
func (a *audit) wantsKey(e *entry) bool {
	return len(e.Key) == 0 && len(e.Each) == 0 || len(e.Key) > 0 && a.key.matches(e.Key) || slices.ContainsFunc(e.Each, a.key.matches)
}

// tableRows is how many rows are aligned together: a table may have millions.
const tableRows = 1000

func (a *audit) write(e *entry, raw []byte) error {
	a.shown++
	if a.table == nil {
		var line bytes.Buffer
		if err := json.Compact(&line, raw); err != nil {
			return err
		}
		line.WriteByte('\n')
		_, err := a.out.Write(line.Bytes())
		return err
	}
	if a.shown == 1 {
		fmt.Fprintln(a.table, "TIME\tWHAT\tKEY\tRULE\tBY\tWHY")
	}
	what, key, rule, why := e.describe(raw)
	_, err := fmt.Fprintf(a.table, "%s\t%s\t%s\t%s\t%s\t%s\n", clock(e.At), what, orDash(key), orDash(rule), orDash(e.who()), orDash(why))
	if err == nil && a.shown%tableRows == 0 {
		err = a.table.Flush()
	}
	return err
}

// describe puts an entry into words. One of an unknown type is shown as it is.
func (e *entry) describe(raw []byte) (what, key, rule, why string) {
	key, rule = keytext.Format(e.Key), cell(e.Rule, 128)
	if len(e.Key) == 0 && len(e.Each) == 1 {
		key = keytext.Format(e.Each[0])
	}
	switch e.Type {
	case "verdict":
		v := e.Verdict
		return verdictText(v), key, rule, fmt.Sprintf("%s of %s, by event %s", v.Count, v.Limit, causeText(v))
	case "command":
		if what = cell(e.Command, 64); what == "forget" {
			what = "erase" // as the command line calls it
		}
		switch {
		case e.Until != event.NoTime:
			what += " until " + clock(e.Until)
		case e.Command == "exempt":
			what += " ended"
		}
		if e.Keys > 1 {
			what += fmt.Sprintf(", %d keys", e.Keys)
		}
		return what, key, rule, cell(e.Reason, 400)
	case "fuse":
		return "fuse blown", key, rule, cell(e.Reason, 400)
	case "dead-letters":
		if what, why, ok := resentText(raw); ok {
			return what, key, rule, why
		}
	}
	return orDash(cell(e.Type, 64)), key, rule, cell(string(raw), 2000)
}

// resentText describes dead letters that were sent again: how many events, and of which records.
func resentText(raw []byte) (what, why string, ok bool) {
	var r struct {
		Letters, Events int
		Now             bool
		Records         []struct {
			Topic      string
			Partition  int32
			Offset     int64
			LastOffset int64 `json:"last_offset"`
		}
	}
	if json.Unmarshal(raw, &r) != nil {
		return "", "", false
	}
	why = plural(r.Events, "event")
	if r.Now {
		why += " without their times"
	}
	for i, at := range r.Records {
		if i == shownRecords {
			why += fmt.Sprintf(", and %d more", len(r.Records)-i)
			break
		}
		why += ", " + recordOf(deadletter.Place{Topic: at.Topic, Partition: at.Partition, Offset: at.Offset})
		if at.LastOffset > at.Offset {
			why += fmt.Sprintf(" to %d", at.LastOffset)
		}
	}
	return "send " + plural(r.Letters, "dead letter") + " again", why, true
}

// shownRecords is of how many partitions a table says which records were sent again.
const shownRecords = 8

// who says who gave a command, and for whom: the former was authenticated, the latter is a claim.
func (e *entry) who() string {
	who := cell(e.By, 128)
	if e.For != "" {
		who += " for " + cell(e.For, 128)
	}
	return who
}

func verdictText(v *verdict.Verdict) string {
	switch v.State {
	case verdict.Clear:
		return "clear"
	case verdict.Warn:
		return "warn " + cell(v.Step, 32)
	default:
		return actionText(v) + " until " + clock(v.Until)
	}
}
