// Package emitcmd implements `tallygate emit`, which sends access logs and files of events to Kafka.
package emitcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/internal/tools/input"
	"github.com/tallygate/tallygate/pipeline/emit"
)

const usage = `Usage: tallygate emit [options] FILE|-

Sends events to the topic that the aggregators count: one event per line of FILE, or of standard
input for -. Gzip-compressed files are read directly.

Formats (the first four are detected per line unless --format names one):
  combined, common   an access log of Apache, nginx and others. The uid is the authenticated
                     user, else the client's address; the api is the method and the path's
                     first two segments: "GET /Images/ks-logo.gif" is get.images.ks-logo-gif.
  vhost_combined     combined behind the virtual host, as Debian's Apache writes it.
  ndjson             one JSON object per line:
                     {"uid": "42", "api": "order.create", "outcome": "success"}
  json               a proxy's log with one JSON object per request, whose fields are time, uid,
                     ip, method, path, status, bytes and agent. It is not detected: name it. If
                     fields have other names: --format json:uid=user,path=request.uri
  caddy, traefik     the same with the fields of these proxies: --format caddy:uid=user

A client's address may have a port. Of a list of addresses, as X-Forwarded-For has it, the client's
is the last that is none of --trusted-proxies: give the enforcers' own. A line without an address in
front is not sent.

A malformed line is reported with its number, and skipped. No event is dropped: while Kafka is
slower than the file, the command waits. After an interrupt (Ctrl-C), it still sends what it has
read. The id of a log line's event is a hash of the line, so the events of a file that is sent again
within minutes are not counted twice.

With --follow each line is sent once, also through log rotation, copies, truncation, restarts and
crashes: a state file keeps how far Kafka has acknowledged the file. A file without a state yet is
followed from its end, because what happened before the first start must not block anyone.

An event keeps its own time. An aggregator does not count events that are older than its
max_lateness (1h by default) on arrival: send an old log with --now.

Examples:
  tallygate emit --now access.log.1.gz             an old log, as if it were new
  tallygate emit -f /var/log/nginx/access.log      new lines, through log rotation
  tallygate emit -f --format json /var/log/nginx/tallygate.log   behind a proxy: docs/proxies.md
  tallygate emit --rate 100 --now access.log       a hundred events a second
  echo '{"uid":"42","api":"login"}' | tallygate emit -
  tallygate emit --json events.ndjson | jq .events`

// options are those of the command line, the environment and the config file.
type options struct {
	kafka    *kafkaconn.Kafka
	prefix   string
	lines    accesslog.Lines
	follow   bool
	now      bool
	rate     float64
	json     bool
	patience time.Duration
	state    string // of --follow; "": the default
	from     string
	file     string
	getenv   func(string) string
	first    []string // what to tell before anything is sent
}

// Where a followed file begins that has no state yet.
const (
	fromEnd   = "end"
	fromStart = "start"
)

func (o *options) topic() string { return o.prefix + ".events" }

// Command is `tallygate emit`. It returns the exit status: 0 if all that was read is
// in Kafka (skipped lines aside), 2 for wrong options, 1 for other errors. When ctx ends it stops
// reading, and sends what it has read.
func Command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	o, err := parse(args, stdout, getenv)
	if err == nil {
		err = run(ctx, o, stdin, stdout, stderr)
	}
	return ops.Exit(stderr, "tallygate emit", err)
}

func parse(args []string, stdout io.Writer, getenv func(string) string) (*options, error) {
	o := options{getenv: getenv}
	flags := ops.NewOptions("tallygate emit", usage, stdout, getenv)
	kafka := kafkaconn.NewOptions(flags)
	flags.StringVar(&o.prefix, "prefix", "tallygate", "what all names of the installation begin with; events go to the topic `PREFIX`.events")
	lines := accesslog.NewOptions(flags)
	flags.BoolVar(&o.follow, "follow", false, "go on when the file ends, and wait for more, through log rotation; a restart goes on where it stopped")
	flags.BoolVar(&o.follow, "f", false, "the same as --follow")
	flags.StringVar(&o.state, "state", "", "`FILE` that keeps how far a followed file was sent (default: one for each file and topic in $STATE_DIRECTORY, $XDG_STATE_HOME/tallygate, ~/.local/state/tallygate, or for root /var/lib/tallygate)")
	flags.StringVar(&o.from, "from", fromEnd, "`start|end`: where a followed file begins that has no state yet; end: only what is written from now on counts")
	flags.BoolVar(&o.now, "now", false, "send events without their own time: they count when they arrive")
	flags.Float64Var(&o.rate, "rate", 0, "`EVENTS` per second at most; 0 is as fast as Kafka takes them")
	flags.BoolVar(&o.json, "json", false, "print the summary as JSON, and no progress")
	flags.DurationVar(&o.patience, "patience", 30*time.Second, "how long Kafka may acknowledge nothing before the command gives up; with --follow, only when it ends")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	files := flags.Args()
	var err error
	o.kafka, err = kafka.Build()
	errs := []error{err}
	if o.lines, err = lines.Lines(); err != nil {
		errs = append(errs, err)
	}
	switch {
	case len(files) == 0:
		errs = append(errs, errors.New("name the file, or - for standard input; --help shows more"))
	case len(files) > 1:
		errs = append(errs, fmt.Errorf("got %d files, want one: pipe several through `cat … | tallygate emit -`", len(files)))
	default:
		o.file = files[0]
	}
	if o.follow && strings.HasSuffix(o.file, ".gz") {
		errs = append(errs, errors.New("--follow cannot follow a compressed file"))
	}
	if o.from != fromStart && o.from != fromEnd {
		errs = append(errs, fmt.Errorf("--from %q: want start or end", o.from))
	}
	if o.state != "" && (!o.follow || o.file == "-") {
		errs = append(errs, errors.New("--state is for a file that is followed: give --follow, too"))
	}
	if o.rate < 0 {
		errs = append(errs, fmt.Errorf("--rate %v: want 0 or more", o.rate))
	}
	if o.patience <= 0 {
		errs = append(errs, fmt.Errorf("--patience %v: want more than 0", o.patience))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return &o, nil
}

func run(ctx context.Context, o *options, stdin io.Reader, stdout, stderr io.Writer) error {
	in, t, err := o.open(ctx, stdin)
	if err != nil {
		return err
	}
	defer in.Close()
	say := newReporter(o, in, stderr)
	for _, line := range o.first {
		say.Line("%s", line)
	}
	emitter, err := o.kafka.Emitter(emit.Config{
		Prefix: o.prefix, ClientID: "tallygate-emit-command", AsIs: true,
		OnDrop: say.drop, Instance: t.name(),
		Logger: slog.New(slog.DiscardHandler), // the command tells by itself
	})
	if err != nil {
		return err
	}
	o.lines.Warn = func(text string) { say.Line("%s", text) }
	started := time.Now()
	s := sender{options: o, emitter: emitter, say: say, reader: o.lines.Reader(in), tail: t}
	err = s.send(ctx)
	say.finish()
	return errors.Join(err, summarize(stdout, o, emitter.Stats(), s.skipped, time.Since(started)))
}

// open opens the file, or follows it.
func (o *options) open(ctx context.Context, stdin io.Reader) (*input.Input, *tail, error) {
	if !o.follow || o.file == "-" {
		in, err := input.Open(ctx, o.file, stdin)
		return in, nil, err
	}
	t, err := o.openTail(ctx)
	if err != nil {
		return nil, nil, err
	}
	return input.Of(o.file, t), t, nil
}
