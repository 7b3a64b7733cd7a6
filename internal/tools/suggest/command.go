package suggest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/internal/tools/replay"
	"github.com/tallygate/tallygate/rules"
)

const usage = `
Usage: tallygate suggest --rules DRAFT [options] FILE…|-|kafka:TOPIC

Finds numbers for limits that have none yet. In the draft, a rule file, they are written as limit:
suggest, or of a bucket as burst: suggest. Past events are counted by its rules; nobody is denied, and
nothing is written anywhere. Shown are how high the keys' counts get, which limits would hit 1%, 0.1%
and 0.01% of the keys, or of the events, and whom; and the rules with the numbers for --share, rounded
up.

The input is that of tallygate replay: access logs or files of events (one JSON object per line),
compressed or not, in the given order; standard input for -; or a Kafka topic up to its current end.

  tallygate suggest --rules draft.yaml access.log.1.gz
  tallygate suggest --rules draft.yaml --share 0.01% kafka:tallygate.events
  tallygate suggest --rules draft.yaml --json events.ndjson | jq -r .rules`

// options are the parsed command line.
type options struct {
	draft   *rules.Draft
	wish    Wish
	kafka   *kafkaconn.Kafka
	lines   accesslog.Lines
	json    bool
	maxKeys int
	names   []string
}

// defaultMaxKeys takes about a gigabyte. To go on with some keys only would be no fair sample: the first ones are the
// busiest.
const defaultMaxKeys = 1_000_000

// Command is `tallygate suggest`. It returns the exit status: 0 if there are numbers for all limits, 2 for wrong
// options or rules, 1 for other errors.
func Command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	o, err := parse(args, stdout, getenv)
	if err == nil {
		err = o.run(ctx, stdin, stdout, stderr)
	}
	return ops.Exit(stderr, "tallygate suggest", err)
}

// parse reports all mistakes of the command line and of the draft together.
func parse(args []string, stdout io.Writer, getenv func(string) string) (*options, error) {
	var o options
	flags := ops.NewOptions("tallygate suggest", usage, stdout, getenv)
	kafka := kafkaconn.NewOptions(flags)
	file := flags.String("rules", "", "the `DRAFT`: a rule file with limit: suggest")
	flags.StringVar(&o.wish.Share, "share", DefaultWish.Share, "how much the suggested limits may hit: a percentage")
	by := flags.String("of", ofKeys, "what --share is a share of: `keys` or events")
	flags.IntVar(&o.maxKeys, "max-keys", defaultMaxKeys, "stop reading when there are so many keys, each of which takes about a kilobyte of memory")
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
	if _, err = ParseShare(o.wish.Share); err != nil {
		errs = append(errs, err)
	}
	if o.wish.Events = *by == ofEvents; *by != ofKeys && *by != ofEvents {
		errs = append(errs, fmt.Errorf("--of: keys or events, not %q", *by))
	}
	if o.maxKeys < 1 {
		errs = append(errs, errors.New("--max-keys: at least 1"))
	}
	if *file == "" {
		errs = append(errs, errors.New("name the draft: --rules FILE"))
	} else if o.draft, err = compile(*file); err != nil {
		errs = append(errs, err)
	}
	if err := replay.CheckInputs(o.names, "read"); err != nil {
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return &o, nil
}

func compile(file string) (*rules.Draft, error) {
	src, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("load rules: %w", err)
	}
	return rules.CompileDraft(file, src, input.Beside(file), nil)
}

// errEnough ends reading when there are too many keys.
var errEnough = errors.New("suggest: enough keys")

// maxBad bounds the malformed events that are listed one by one.
const maxBad = 20

// run reads all of the source once. What was read until an interrupt, or until there were too many keys, is a result,
// too: whoever has waited for an hour is not told nothing.
func (o *options) run(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (err error) {
	var say *input.Progress
	o.lines.Warn = func(text string) { say.Line("%s", text) }
	src, err := replay.Open(ctx, o.kafka, o.names, stdin, o.lines)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	replay.TellUnread(src, o.lines.Warn)
	total, bytes := src.Total()
	if o.json {
		total = 0
	}
	say = input.NewProgress(stderr, "suggest", total, bytes, src.Done)
	s := New(o.draft)
	s.OnBad = func(err *replay.BadRecord) {
		if s.Bad() <= maxBad {
			say.Line("%v", err)
		}
	}
	s.OnEvent = func() error {
		if s.Keys() > o.maxKeys {
			return errEnough
		}
		return nil
	}
	started := time.Now()
	err = s.Read(ctx, src)
	if more := s.Bad() - maxBad; more > 0 {
		say.Line("%d more malformed events", more)
	}
	say.Finish()
	stopped := ""
	switch {
	case errors.Is(err, errEnough):
		stopped = fmt.Sprintf("at %s, as there are more than %s keys (--max-keys)", src.Where(), replay.Number(o.maxKeys))
	case err != nil:
		return err
	case ctx.Err() != nil:
		stopped = "by an interrupt"
	}
	return o.write(s, stdout, stopped, time.Since(started))
}

func (o *options) write(s *Study, stdout io.Writer, stopped string, took time.Duration) error {
	r, err := s.Result(o.wish)
	if err != nil {
		return err
	}
	r.Stopped, r.Seconds = stopped, took.Seconds()
	out := bufio.NewWriterSize(stdout, 64<<10)
	if o.json {
		err = json.NewEncoder(out).Encode(r)
	} else {
		err = r.Write(out)
	}
	if err = errors.Join(err, out.Flush()); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	if r.Events == 0 && r.Bad > 0 && stopped == "" {
		return errors.New("no valid event: check --format; --help shows the formats")
	}
	return nil
}
