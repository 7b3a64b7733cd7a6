// Package trace implements `tallygate trace`: what rules do with an event, and why they do not count it.
package trace

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

const name = "tallygate trace"

const usage = `
Usage: tallygate trace --rules FILE|--live [options] EVENT|FILE…|-|kafka:TOPIC [FIELD=VALUE…]
       tallygate trace --rules FILE|--live --follow [FIELD=VALUE…]

Says of each event what each rule does with it: the rule counts it, under which key, and how far the
count is; or it does not, and why not: which conditions of the rule the event does not meet. First
come the rules that count it, then those that it misses least; --all shows the others, too.

EVENT is an event as JSON. Several events of a file are counted one after the other, from zero, as
` + "`tallygate replay`" + ` does. With --live, rules and counts are those of the group, as an aggregator has them:
then it says what would happen if the event came now. --follow reads what comes in the event topic.
FIELD=VALUE shows only such events: uid, api (also a pattern), outcome, id, ip, attrs.NAME.

  tallygate trace --rules rules.yaml '{"uid": "42", "api": "login", "outcome": "denied"}'
  tallygate trace --live '{"uid": "42", "api": "login", "outcome": "denied"}'
  tallygate trace --rules rules.yaml kafka:tallygate.events uid=42
  tallygate trace --live --follow uid=42 api=login`

// options are the parsed command line.
type options struct {
	rules  *rules.Set // nil with --live
	open   func() (replay.Aggregator, error)
	kafka  *kafkaconn.Kafka
	topic  string // to follow; "" for none
	lines  accesslog.Lines
	names  []string
	event  string // JSON of the command line; "" for none
	filter filter
	all    bool
	json   bool
}

// Command returns `tallygate trace`. Its exit status is 0 if everything was read, 2 for wrong options or
// rules, 1 for other errors.
func Command(live replay.Aggregators) func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	return func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
		o, err := parse(args, stdout, getenv, live)
		if err == nil {
			err = o.run(ctx, stdin, stdout, stderr)
		}
		return ops.Exit(stderr, name, err)
	}
}

func parse(args []string, stdout io.Writer, getenv func(string) string, live replay.Aggregators) (*options, error) {
	var o options
	flags := ops.NewOptions(name, usage, stdout, getenv)
	kafka := kafkaconn.NewOptions(flags)
	open := live(flags)
	file := flags.String("rules", "", "the rule `FILE`")
	isLive := flags.Bool("live", false, "take the group's rules, and what they have counted, from --aggregator")
	follow := flags.Bool("follow", false, "read what comes in the event topic, from now on")
	prefix := flags.String("prefix", "tallygate", "`name` that the event topic begins with, for --follow")
	lines := accesslog.NewOptions(flags)
	flags.BoolVar(&o.all, "all", false, "show all rules, however many conditions an event does not meet")
	flags.BoolVar(&o.json, "json", false, "write one JSON object an event")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	var errs []error
	var err error
	if o.kafka, err = kafka.Build(); err != nil {
		errs = append(errs, err)
	}
	if o.lines, err = lines.Lines(); err != nil {
		errs = append(errs, err)
	}
	switch {
	case *isLive && *file != "":
		errs = append(errs, errors.New("--live takes the group's rules: leave --rules out"))
	case *isLive:
		o.open = open
	case *file == "":
		errs = append(errs, errors.New("name the rules: --rules FILE, or --live for those of the group"))
	default:
		if o.rules, err = compile(*file); err != nil {
			errs = append(errs, err)
		}
	}
	if *follow {
		o.topic = *prefix + ".events"
	}
	if err := o.arguments(flags.Args()); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return &o, nil
}

func compile(file string) (*rules.Set, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	return rules.CompileWith(file, src, input.Beside(file))
}

func (o *options) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	var counts counter
	if o.open == nil {
		counts = newReplayed(o.rules)
	} else {
		aggregator, err := o.open()
		if err != nil {
			return err
		}
		defer aggregator.Close()
		if o.rules, err = aggregator.Rules(ctx); err != nil {
			return err
		}
		counts = &asked{aggregator: aggregator, ongoing: o.topic != ""}
	}
	o.lines.Warn = func(text string) { fmt.Fprintln(stderr, text) }
	src, err := o.source(ctx, stdin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	replay.TellUnread(src, o.lines.Warn)
	out := bufio.NewWriterSize(stdout, 64<<10)
	t := &tracer{set: o.rules, why: o.rules.NewTracer(), counts: counts, all: o.all, live: o.open != nil}
	w := &writer{out: out, json: o.json, flush: o.topic != ""}
	err = o.each(ctx, src, t, w, stderr)
	if flushed := out.Flush(); err == nil && flushed != nil {
		err = fmt.Errorf("write the trace: %w", flushed)
	}
	return err
}

// each traces the events of the source, and writes those that are asked for.
func (o *options) each(ctx context.Context, src replay.Source, t *tracer, w *writer, stderr io.Writer) error {
	read, bad := 0, 0
	for ctx.Err() == nil {
		rec, err := src.Next(ctx)
		if _, ok := errors.AsType[*replay.BadRecord](err); ok {
			bad++
			fmt.Fprintln(stderr, o.blame(err))
			continue
		}
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		read++
		wanted := o.filter.matches(&rec.Event)
		found, err := t.trace(ctx, rec, wanted)
		if ctx.Err() != nil {
			break // it was stopped while it asked
		}
		if err != nil {
			return err
		}
		if !wanted {
			continue
		}
		if o.event == "" {
			found.Where = src.Where()
		}
		if err := w.write(found); err != nil {
			return fmt.Errorf("write the trace: %w", err)
		}
	}
	switch {
	case read == 0 && bad > 0 && ctx.Err() == nil:
		return errors.New("no valid event: they are malformed")
	case w.written == 0 && len(o.filter) > 0 && o.topic == "":
		return fmt.Errorf("none of %d events has %s", read, o.filter)
	}
	return nil
}

// blame adds to an error of an event its place, unless it is the one on the command line.
func (o *options) blame(err error) error {
	if bad, ok := errors.AsType[*replay.BadRecord](err); ok && o.event != "" {
		return fmt.Errorf("the event is malformed: %w", bad.Err)
	}
	return err
}
