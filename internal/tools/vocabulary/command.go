// Package vocabulary implements `tallygate vocabulary`, which learns from events what they say, or compares
// them with what a rule file declares.
package vocabulary

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

const usage = `
Usage: tallygate vocabulary [--rules FILE] [options] FILE…|-|kafka:TOPIC

Reads past events and writes what they say, as spec.apis and spec.attrs of a rule file: the APIs, and
the attributes with their types. Read it before you paste it: what has not happened yet is missing,
and slips that have are in it.

With --rules, it lists instead what contradicts the declarations of that file, and where it is seen
first. The exit status is then 1 if anything does.

The input is access logs or files of events (one JSON object per line), compressed or not; standard
input for -; or a Kafka topic up to its current end. The output has no uid. It has the values of an
attribute only if they are few.

  tallygate vocabulary kafka:tallygate.events
  tallygate vocabulary --rules rules.yaml access.log.1.gz
  tallygate vocabulary --json events.ndjson | jq .apis`

// options are the parsed command line.
type options struct {
	kafka *kafkaconn.Kafka
	rules *rules.Set // nil: the vocabulary is learned
	lines accesslog.Lines
	json  bool
	names []string
}

// Command is `tallygate vocabulary`. It returns the exit status: 0 if everything was read, 2 for wrong
// options or rules, 1 for other errors, and for events that contradict the rules.
func Command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	o, err := parse(args, stdout, getenv)
	if err == nil {
		err = o.run(ctx, stdin, stdout, stderr)
	}
	return ops.Exit(stderr, "tallygate vocabulary", err)
}

func parse(args []string, stdout io.Writer, getenv func(string) string) (*options, error) {
	var o options
	flags := ops.NewOptions("tallygate vocabulary", usage, stdout, getenv)
	kafka := kafkaconn.NewOptions(flags)
	file := flags.String("rules", "", "the rule `FILE` whose declarations the events are compared with")
	lines := accesslog.NewOptions(flags)
	flags.BoolVar(&o.json, "json", false, "write one JSON object")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	o.names = flags.Args()
	var errs []error
	var err error
	if o.kafka, err = kafka.Build(); err != nil {
		errs = append(errs, err)
	}
	if o.lines, err = lines.Lines(); err != nil {
		errs = append(errs, err)
	}
	if *file != "" {
		if o.rules, err = compile(*file); err != nil {
			errs = append(errs, err)
		}
	}
	if err := replay.CheckInputs(o.names, "read"); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return &o, nil
}

// compile returns rules that declare something.
func compile(file string) (*rules.Set, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	set, err := rules.CompileWith(file, src, input.Beside(file))
	if err == nil && set.Vocabulary() == nil {
		return nil, fmt.Errorf("%s declares neither spec.apis nor spec.attrs: without --rules, tallygate vocabulary writes them", file)
	}
	return set, err
}

// reader takes events in, and writes what it has found.
type reader interface {
	event(rec *replay.Record, where func() string)
	write(out io.Writer, read summary, asJSON bool) error
}

// summary counts the events that were read.
type summary struct {
	Events      int  `json:"events"`
	Bad         int  `json:"bad"`
	Interrupted bool `json:"interrupted,omitempty"`
}

func (o *options) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	src, err := replay.Open(ctx, o.kafka, o.names, stdin, o.lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	var to reader = newLearned()
	if o.rules != nil {
		to = newCompared(o.rules)
	}
	total, bytes := src.Total()
	if o.json {
		total = 0
	}
	say := input.NewProgress(stderr, "vocabulary", total, bytes, src.Done)
	read, err := readAll(ctx, src, say, to)
	say.Finish()
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(stdout, 64<<10)
	found := to.write(out, read, o.json)
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write the vocabulary: %w", err)
	}
	if read.Events == 0 && read.Bad > 0 && !read.Interrupted {
		return errors.New("no valid event: check --format; --help shows the formats")
	}
	return found
}

// maxBad bounds the malformed events that are listed one by one.
const maxBad = 20

// readAll hands on all events until the source or the context ends.
func readAll(ctx context.Context, src replay.Source, say *input.Progress, to reader) (read summary, err error) {
	for ctx.Err() == nil {
		rec, err := src.Next(ctx)
		if _, ok := errors.AsType[*replay.BadRecord](err); ok {
			if read.Bad++; read.Bad <= maxBad {
				say.Line("%v", err)
			}
			continue
		}
		if errors.Is(err, io.EOF) || ctx.Err() != nil {
			break
		}
		if err != nil {
			return read, err
		}
		read.Events++
		to.event(rec, src.Where)
	}
	if more := read.Bad - maxBad; more > 0 {
		say.Line("%d more malformed events", more)
	}
	read.Interrupted = ctx.Err() != nil
	return read, nil
}
