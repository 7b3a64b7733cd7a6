package notify

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/tallygate/tallygate/internal/notify/config"
	"github.com/tallygate/tallygate/internal/notify/note"
	"github.com/tallygate/tallygate/internal/notify/receive"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
)

var usage = `
tallygate notify tells people what happens: by ` + receive.Titles() + `. It reads the
audit, asks an aggregator for the cluster, and looks into Redis for enforcers and blocks. docs/notify.md
describes its file.

  tallygate notify --notify notify.yaml --kafka kafka:9092 --aggregator aggregator:8081 --redis redis:6379
  tallygate notify --notify notify.yaml --check
  tallygate notify --notify notify.yaml --test chat
  tallygate notify --notify notify.yaml --dry-run
`

// Command is `tallygate notify`: it returns the exit status.
func Command(ctx context.Context, args []string, _ io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	c, err := parse(args, stdout, stderr, getenv)
	if err == nil && c.once != nil {
		err = c.once(ctx)
	}
	if err != nil || c.once != nil {
		return ops.Exit(stderr, "tallygate notify", err)
	}
	about := []any{"file", c.File, "kafka", c.Kafka.Brokers, "prefix", c.Prefix}
	about = append(about, ops.Listening(map[string]net.Listener{"metrics_listen": c.Metrics})...)
	return ops.Live(ctx, c.Log, "notify", about, func(ctx context.Context) error {
		err := c.Run(ctx)
		if c.Redis != nil {
			err = errors.Join(err, c.Redis.Close())
		}
		return err
	})
}

// command is the program, or what it does once.
type command struct {
	Program
	once func(context.Context) error // nil: it runs
}

func parse(args []string, stdout, stderr io.Writer, getenv func(string) string) (*command, error) {
	o := ops.NewOptions("tallygate notify", usage, stdout, getenv)
	kafka, rds, api, logs := kafkaconn.NewOptions(o), redisconn.NewOptions(o), apiclient.NewOptions(o), o.Log()
	c := &command{Program: Program{Getenv: getenv, Settings: o.Settings}}
	o.StringVar(&c.File, "notify", "", "`FILE` in YAML with receivers and routes; reloaded when it changes")
	o.StringVar(&c.Prefix, "prefix", "tallygate", "`name` that all topics and Redis keys begin with")
	listen := o.String("metrics-listen", "127.0.0.1:9094", "Prometheus metrics on `HOST:PORT`, and /v1/status, /healthz, /readyz; none turns it off; keep it private")
	check := o.Bool("check", false, "check the file, and end")
	test := o.String("test", "", "send one test message to this `RECEIVER`, and end")
	dry := o.Bool("dry-run", false, "print messages instead of sending them; nothing is remembered")
	if err := o.ParseOnly(args); err != nil {
		return nil, err
	}
	if c.File == "" {
		return nil, &ops.UsageError{Err: errors.New("--notify FILE is missing: docs/notify.md shows one")}
	}
	var logErr, kafkaErr, redisErr error
	c.Log, logErr = logs.Build(stderr)
	c.Kafka, kafkaErr = kafka.Build()
	if rds.Given() {
		c.Redis, redisErr = rds.Build()
		c.RedisAccess = rds
	}
	if err := errors.Join(logErr, kafkaErr, redisErr); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	var err error
	if c.API, err = api.Open(); err != nil {
		return nil, err
	}
	switch {
	case *check:
		c.once = func(context.Context) error { return c.check(stdout) }
	case *test != "":
		c.once = func(ctx context.Context) error { return c.test(ctx, *test, stdout) }
	default:
		if *dry {
			c.DryRun = stdout
		}
		return c, c.open(*listen)
	}
	return c, nil
}

func (c *command) open(listen string) (err error) {
	redisconn.LogTo(c.Log)
	c.Registry = ops.NewRegistry("notify")
	if _, err := c.Load(); err != nil { // before there is a log
		return err
	}
	if listen != "none" {
		c.Metrics, err = ops.Listen("metrics-listen", listen)
	}
	return err
}

// check describes a valid file.
func (c *command) check(out io.Writer) error {
	is, err := c.Load()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s: valid: %d receivers, %d routes\n", c.File, len(is.Receivers), len(is.Routes))
	for _, r := range is.Receivers {
		var on []string
		for _, route := range is.RoutesTo(r.Name) {
			for _, kind := range route.On {
				on = append(on, string(kind))
			}
		}
		told := "no route leads to it"
		if len(on) > 0 {
			told = "is told of " + strings.Join(on, ", ")
		}
		fmt.Fprintf(out, "  %s (%s) %s\n", r.Name, r.Type, told)
	}
	return nil
}

// test sends one message, in one attempt.
func (c *command) test(ctx context.Context, name string, out io.Writer) error {
	is, err := c.Load()
	if err != nil {
		return err
	}
	r := is.Receiver(name)
	if r == nil {
		return &ops.UsageError{Err: fmt.Errorf("--test %s: %s has no receiver of this name", name, c.File)}
	}
	to, err := receive.New(r, c.Getenv, time.Now, c.Log)
	if err != nil {
		return err
	}
	defer to.Close()
	m := testMessage(is, r, time.Now())
	began := time.Now()
	if err := to.Send(ctx, m); err != nil {
		return fmt.Errorf("%s (%s) does not take the message: %s: %w", r.Name, r.Type, receive.Failed(err).Reason, err)
	}
	_, err = fmt.Fprintf(out, "%s (%s) has taken the message %s in %v\n", r.Name, r.Type, m.ID, time.Since(began).Round(time.Millisecond))
	return err
}

// testMessage is of no route's template: it only shows that the receiver is reached.
func testMessage(c *config.Config, r *config.Receiver, now time.Time) *note.Message {
	n := &note.Note{Kind: note.Test, State: note.Happened, At: now, What: "tallygate notify reaches this receiver, " + r.Name}
	m := &note.Message{
		Version: 1, ID: note.Hash("test", r.Name, now.String()) + note.Hash(now.String(), "more")[:10], Kind: n.Kind, State: n.State, Route: "test",
		Count: 1, First: now.UTC(), Last: now.UTC(), Examples: []note.Example{note.ExampleOf(n, r.Shown)}, Link: c.Console,
	}
	m.Describe()
	return m
}
