package replay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/rules"
	"github.com/tallygate/tallygate/verdict"
)

const usage = `
Usage: tallygate replay --rules FILE [--against FILE|live] [options] FILE…|-|kafka:TOPIC

Counts past events by rules that are not live yet, and shows who would have been blocked. It goes by
the events' own times, as fast as it can, and writes nothing anywhere.

The input is access logs or files of events (one JSON object per line, optionally with broker_time),
compressed or not, in the given order; standard input for -; or a Kafka topic up to its current
end. With --against, the same events are also counted by other rules, to show first what differs: who
is newly blocked, and who no longer. --against live takes those that the group runs, from an aggregator.

  tallygate replay --rules new.yaml access.log.1.gz
  tallygate replay --rules new.yaml --against rules.yaml kafka:tallygate.events
  tallygate replay --rules new.yaml --against live --aggregator aggregator-1:8081 kafka:tallygate.events
  tallygate replay --rules new.yaml --json events.ndjson | jq 'select(.state == "block")'`

// options are the parsed command line.
type options struct {
	rules, against *rules.Set
	live           func() (Aggregator, error) // asks for against; nil without --against live
	kafka          *kafkaconn.Kafka
	lines          accesslog.Lines
	json, all      bool
	names          []string
}

// Command returns `tallygate replay`. Its exit status is 0 if everything was read, 2 for wrong options or
// rules, 1 for other errors.
func Command(live Aggregators) func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	return func(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
		o, err := parse(args, stdout, getenv, live)
		if err == nil {
			err = o.run(ctx, stdin, stdout, stderr)
		}
		return ops.Exit(stderr, "tallygate replay", err)
	}
}

func parse(args []string, stdout io.Writer, getenv func(string) string, live Aggregators) (*options, error) {
	var o options
	flags := ops.NewOptions("tallygate replay", usage, stdout, getenv)
	kafka := kafkaconn.NewOptions(flags)
	file := flags.String("rules", "", "the rule `FILE` to try")
	open := live(flags)
	against := flags.String("against", "", "a rule `FILE` to compare with; live: the rules that the group of --aggregator runs")
	flags.BoolVar(&o.all, "all", false, "with --against, show also the rules for which nothing differs")
	lines := accesslog.NewOptions(flags)
	flags.BoolVar(&o.json, "json", false, "write each verdict as a line of JSON, then the summary as one object")
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
	if *file == "" {
		errs = append(errs, errors.New("name the rules: --rules FILE"))
	} else if o.rules, err = compile(*file); err != nil {
		errs = append(errs, err)
	}
	if *against == Live {
		o.live = open
	} else if *against != "" {
		if o.against, err = compile(*against); err != nil {
			errs = append(errs, err)
		}
	}
	if err := CheckInputs(o.names, "replay"); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return &o, nil
}

// CheckInputs reports names of inputs that can't be read. what is to be done with them.
func CheckInputs(names []string, what string) error {
	var errs []error
	if len(names) == 0 {
		errs = append(errs, fmt.Errorf("name what to %s: a file, - for standard input, or kafka:TOPIC; --help shows more", what))
	}
	for _, name := range names {
		if name == "kafka:" {
			errs = append(errs, errors.New("name the topic. For example: kafka:tallygate.events"))
		}
		if strings.HasPrefix(name, "kafka:") && len(names) > 1 {
			errs = append(errs, errors.New("a topic cannot be combined with other inputs"))
			break
		}
	}
	return errors.Join(errs...)
}

func compile(file string) (*rules.Set, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	return rules.CompileWith(file, src, input.Beside(file))
}

// loadLive takes the rules to compare with from an aggregator.
func (o *options) loadLive(ctx context.Context) error {
	aggregator, err := o.live()
	if err != nil {
		return err
	}
	defer aggregator.Close()
	o.against, err = aggregator.Rules(ctx)
	return err
}

func (o *options) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	if o.live != nil {
		if err := o.loadLive(ctx); err != nil {
			return err
		}
	}
	var say *input.Progress
	o.lines.Warn = func(text string) { say.Line("%s", text) }
	src, err := Open(ctx, o.kafka, o.names, stdin, o.lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	TellUnread(src, o.lines.Warn)
	total, bytes := src.Total()
	if o.json {
		total = 0
	}
	say = input.NewProgress(stderr, "replay", total, bytes, src.Done)
	p := player{Comparison: Compare(o.rules, o.against), say: say, all: o.all, out: bufio.NewWriterSize(stdout, 64<<10)}
	if o.json {
		p.report = p.writeJSON
	}
	started := time.Now()
	err = p.play(ctx, src)
	say.Finish()
	if err != nil && !errors.Is(err, context.Canceled) {
		return err
	}
	return p.summary(ctx.Err() != nil, time.Since(started), o.json)
}

// player writes what a Comparison finds.
type player struct {
	*Comparison
	say    *input.Progress
	all    bool // write also what does not differ
	out    *bufio.Writer
	report func(*verdict.Verdict) error // nil: verdicts are only counted
	line   []byte
}

// maxBad bounds the malformed events that are listed one by one.
const maxBad = 20

// play returns at the end of the source, or when ctx ends.
func (p *player) play(ctx context.Context, src Source) error {
	p.OnBad = func(err *BadRecord) {
		if p.Bad() <= maxBad {
			p.say.Line("%v", err)
		}
	}
	if p.report != nil {
		p.OnChanges = func(changes []verdict.Verdict) error {
			for i := range changes {
				if err := p.report(&changes[i]); err != nil {
					return err
				}
			}
			return nil
		}
	}
	if err := p.Read(ctx, src); err != nil {
		return err
	}
	if more := p.Bad() - maxBad; more > 0 {
		p.say.Line("%d more malformed events", more)
	}
	return ctx.Err()
}

func (p *player) writeJSON(v *verdict.Verdict) error {
	p.line = append(verdict.AppendJSON(p.line[:0], v), '\n')
	_, err := p.out.Write(p.line)
	return err
}

func (p *player) summary(interrupted bool, took time.Duration, asJSON bool) error {
	s := p.Result()
	s.Seconds, s.Interrupted = took.Seconds(), interrupted
	var err error
	if asJSON {
		err = json.NewEncoder(p.out).Encode(s)
	} else {
		err = s.write(p.out, p.all)
	}
	if err = errors.Join(err, p.out.Flush()); err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	if s.Events == 0 && s.Bad > 0 && !interrupted {
		return errors.New("no valid event: check --format; --help shows the formats")
	}
	return nil
}
