package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/tallygate/tallygate/event"
	"github.com/tallygate/tallygate/internal/base/keytext"
	"github.com/tallygate/tallygate/internal/base/words"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/kafkaconn/clients"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/pipeline/kafkalog"
	"github.com/tallygate/tallygate/verdict"
)

const blocksUsage = `
tallygate blocks lists the verdicts in force, by this machine's clock: all of them, or those whose
key has these dimensions. uid=42 also finds keys with more dimensions. It reads the verdict topic,
which is authoritative, and asks neither Redis nor an aggregator. It lists no notices, and nothing
of what keys have left. Keys that only a strict limit denies have no verdict: explain shows them.

  tallygate blocks
  tallygate blocks uid=42
  tallygate blocks --rule search-combined --json
  tallygate blocks --count --shadow
`

// blocks is one run of the command.
type blocks struct {
	key    keyFilter
	rule   string
	shadow bool
	latest map[string]verdict.Verdict // by record key
	bad    int
}

// listBlocks is `tallygate blocks`.
func listBlocks(ctx context.Context, c *call) error {
	o := c.options(blocksUsage)
	kafka := kafkaconn.NewOptions(o)
	prefix := o.String("prefix", "tallygate", "`name` that all topics begin with")
	b := blocks{latest: map[string]verdict.Verdict{}}
	o.StringVar(&b.rule, "rule", "", "only verdicts of this `rule`, or of one of its limits")
	o.BoolVar(&b.shadow, "shadow", false, "those in shadow mode too, which deny nothing")
	count := o.Bool("count", false, "only how many there are, by rule")
	asJSON := o.Bool("json", false, "write JSON, an object a line: a verdict, or a rule's numbers")
	if err := o.Parse(c.args); err != nil {
		return err
	}
	var err error
	b.key, err = parseKeyFilter(o.Args())
	k, kafkaErr := kafka.Build()
	if err = errors.Join(err, kafkaErr); err != nil {
		return &ops.UsageError{Err: err}
	}
	if err = b.read(ctx, k, *prefix+".verdicts", c.stderr, *asJSON); err != nil {
		return err
	}
	return b.write(c.stdout, *count, *asJSON)
}

// read keeps the latest verdict of each record key.
func (b *blocks) read(ctx context.Context, k *kafkaconn.Kafka, topic string, stderr io.Writer, quiet bool) error {
	log, err := kafkalog.OpenMerge(ctx, clients.Log(k, "tallygate-blocks"), topic, time.Time{}, time.Time{})
	if err != nil {
		return err
	}
	defer log.Close()
	total := log.Total()
	if quiet {
		total = 0
	}
	say := input.NewProgress(stderr, "blocks", total, false, log.Done)
	defer say.Finish()
	now := event.FromTime(time.Now())
	for {
		partition, rec, err := log.Next(ctx)
		if errors.Is(err, io.EOF) {
			return nil
		}
		bad, unreadable := errors.AsType[*kafkalog.Unreadable](err)
		if err != nil && !unreadable {
			return err
		}
		var offset int64
		if unreadable {
			offset = bad.First
		} else {
			offset, err = rec.Offset, b.take(rec, now)
		}
		if err != nil {
			if b.bad++; b.bad <= maxShownBad {
				say.Line("%s/%d@%d: %s", topic, partition, offset, strings.ReplaceAll(err.Error(), "\n", "; "))
			}
		}
	}
}

// maxShownBad bounds the unreadable records that are listed one by one.
const maxShownBad = 20

// take keeps a verdict that may be in force. One that had ended when reading began is dropped.
func (b *blocks) take(m *kafkalog.Record, now event.Micros) error {
	if len(m.Key) == 0 || verdict.OwnRecord(m.Key) {
		return nil
	}
	key, err := verdict.ParseRecordKey(m.Key)
	if err != nil {
		return err
	}
	if key.Warn || key.Left || !ruleIs(key.Rule, b.rule) || !b.key.matches(key.Key) {
		return nil
	}
	if len(m.Value) == 0 {
		delete(b.latest, string(m.Key))
		return nil
	}
	v, err := verdict.Parse(m.Value)
	if err != nil {
		return err // the previous one stays: it is the last that can be read
	}
	if v.State == verdict.Block && v.Until > now {
		b.latest[string(m.Key)] = v
	} else {
		delete(b.latest, string(m.Key))
	}
	return nil
}

// inForce returns the verdicts in force, by key and rule.
func (b *blocks) inForce() []verdict.Verdict {
	now := event.FromTime(time.Now())
	var list []verdict.Verdict
	for _, record := range slices.Sorted(maps.Keys(b.latest)) {
		v := b.latest[record]
		if v.InForce(now) && (b.shadow || v.Mode == verdict.Enforce) {
			list = append(list, v)
		}
	}
	return list
}

func (b *blocks) write(stdout io.Writer, count, asJSON bool) error {
	out := bufio.NewWriterSize(stdout, 64<<10)
	list := b.inForce()
	var err error
	switch {
	case count:
		err = b.writeCount(out, list, asJSON)
	case asJSON:
		var line []byte
		for i := range list {
			line = append(verdict.AppendJSON(line[:0], &list[i]), '\n')
			if _, err = out.Write(line); err != nil {
				break
			}
		}
	default:
		err = b.writeTable(out, list)
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return fmt.Errorf("write the blocks: %w", err)
	}
	if b.bad > 0 {
		return fmt.Errorf("the list may be incomplete: %s cannot be read", plural(b.bad, "record"))
	}
	return nil
}

// writeTable cuts long fields: --json has them whole.
func (b *blocks) writeTable(out io.Writer, list []verdict.Verdict) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "nothing is in force")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tRULE\tACTION\tSINCE\tUNTIL\tCOUNT/LIMIT\tCAUSE")
	for i := range list {
		v := &list[i]
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s/%s\t%s\n", keytext.Format(v.Key), cell(v.Rule, 128), actionText(v), clock(v.Since), words.End(v.Until),
			v.Count, v.Limit, causeText(v))
	}
	return w.Flush()
}

func actionText(v *verdict.Verdict) string { return words.Action(v) }

func causeText(v *verdict.Verdict) string { return words.Cause(v) }

// ruleCount counts a rule's verdicts in force.
type ruleCount struct {
	Rule    string `json:"rule"`
	Enforce int    `json:"enforce"`
	Shadow  int    `json:"shadow"`
}

func (b *blocks) writeCount(out io.Writer, list []verdict.Verdict, asJSON bool) error {
	byRule := map[string]*ruleCount{}
	for i := range list {
		c := byRule[list[i].Rule]
		if c == nil {
			c = &ruleCount{Rule: list[i].Rule}
			byRule[c.Rule] = c
		}
		if list[i].Mode == verdict.Shadow {
			c.Shadow++
		} else {
			c.Enforce++
		}
	}
	counts := slices.SortedFunc(maps.Values(byRule), func(x, y *ruleCount) int {
		return cmp.Or(cmp.Compare(y.Enforce+y.Shadow, x.Enforce+x.Shadow), cmp.Compare(x.Rule, y.Rule))
	})
	if asJSON {
		enc := json.NewEncoder(out)
		for _, c := range counts {
			if err := enc.Encode(c); err != nil {
				return err
			}
		}
		return nil
	}
	if len(counts) == 0 {
		_, err := fmt.Fprintln(out, "nothing is in force")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(w, "RULE\tENFORCED")
	if b.shadow {
		fmt.Fprint(w, "\tSHADOW")
	}
	fmt.Fprintln(w)
	for _, c := range counts {
		fmt.Fprintf(w, "%s\t%d", cell(c.Rule, 128), c.Enforce)
		if b.shadow {
			fmt.Fprintf(w, "\t%d", c.Shadow)
		}
		fmt.Fprintln(w)
	}
	return w.Flush()
}
