// Package dev is `tallygate dev`: the whole engine in one process, with nothing to install.
package dev

import (
	"context"
	_ "embed"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/run/redisconn"
	"github.com/tallygate/tallygate/internal/run/tracing"
	"github.com/tallygate/tallygate/internal/tools/accesslog"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/rules"
)

//go:embed rules.yaml
var sampleRules []byte

// sampleName names the sample rules, which are in no file, in mistakes and logs.
const sampleName = "the sample rules"

const usage = `
tallygate dev runs the whole engine in one process: Kafka and Redis (embedded), an aggregator,
an enforcer, sample rules, and a real access log replayed as live traffic. Every part can be
replaced by one of yours. It prints the address of the console first: pages that show all of it.

  tallygate dev
  tallygate dev --rules my-rules.yaml --input /var/log/nginx/access.log
  tallygate dev --kafka localhost:9092 --redis localhost:6379 --input none
  tallygate dev --rules my-rules.yaml --input none --listen 127.0.0.1:0 --ready-file ready.json --json
`

// settings are the options of the command line.
type settings struct {
	rules      *rules.Set
	ruleFile   aggregate.RuleFile // of --rules
	sample     bool               // the rules are the sample ones
	traffic    *traffic           // nil: none
	kafka, rds string             // "": embedded
	lines      accesslog.Lines    // how the input is read; the decision server trusts the same proxies
	listen     string
	prefix     string
	json       bool   // lines of JSON instead of the screen
	readyFile  string // "": none
	log        *slog.Logger
	out        io.Writer
	spans      *tracing.Options
}

// sampleSpeed makes an hour of the sample log pass in six seconds.
const sampleSpeed = 600

// Command is `tallygate dev`: it returns the exit status.
func Command(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) int {
	s, err := parse(args, stdin, stdout, stderr, getenv)
	if err == nil {
		err = s.run(ctx)
	}
	return ops.Exit(stderr, "tallygate dev", err)
}

// Where dev is unless it is said otherwise, and so where commands ask.
const (
	usualListen = "127.0.0.1:8080"
	usualPrefix = "tallygate"
)

func parse(args []string, stdin io.Reader, stdout, stderr io.Writer, getenv func(string) string) (*settings, error) {
	s := &settings{out: stdout}
	o := ops.NewOptions("tallygate dev", usage, stdout, getenv)
	rulesFile := o.String("rules", "", "rule `FILE` (default: the sample rules)")
	input := o.String("input", "", "`FILE` to replay once: an access log or NDJSON, also gzipped; - for standard input; none for no traffic (default: a sample log, repeated)")
	lines := accesslog.NewOptions(o)
	speed := o.Float64("speed", -1, "how many times `faster` than its own time the input is replayed; 0: as fast as possible (default 600 for the sample log, 1 for yours)")
	o.Lookup("speed").DefValue = ""
	o.StringVar(&s.kafka, "kafka", "", "Kafka's `HOST:PORT,…` (default: an embedded one)")
	o.StringVar(&s.rds, "redis", "", "Redis' `HOST:PORT,…` (default: an embedded one)")
	o.StringVar(&s.listen, "listen", usualListen, "the decision server on `HOST:PORT`; the aggregator has the port after it, gRPC the next, and the console the one after that. With port 0, this and everything embedded listens on any free port")
	o.StringVar(&s.prefix, "prefix", usualPrefix, "`name` that topics, group and Redis keys begin with")
	o.BoolVar(&s.json, "json", false, "write what the screen shows as lines of JSON: first where everything is, then verdicts as they are issued")
	o.StringVar(&s.readyFile, "ready-file", "", "`FILE` that is there while everything works: it says where, as JSON")
	s.spans = tracing.NewOptions(o)
	level := o.String("log-level", "error", "`level` of the engine's own log: debug, info, warn or error")
	if err := o.ParseOnly(args); err != nil {
		return nil, err
	}
	var err error
	if s.log, err = ops.NewLogger(stderr, *level, "text"); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	redisconn.LogTo(s.log)
	if *speed < 0 && *speed != -1 {
		return nil, &ops.UsageError{Err: fmt.Errorf("--speed %v: 0 or more", *speed)}
	}
	for option, list := range map[string]string{"kafka": s.kafka, "redis": s.rds} {
		for addr := range strings.SplitSeq(list, ",") {
			if list == "" {
				break
			}
			if err := ops.CheckAddress(strings.TrimSpace(addr)); err != nil {
				return nil, &ops.UsageError{Err: fmt.Errorf("--%s: %w; without the option it is an embedded one", option, err)}
			}
		}
	}
	if err := s.loadRules(*rulesFile); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if s.lines, err = lines.Lines(); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	if s.traffic, err = newTraffic(*input, *speed, stdin, s.lines); err != nil {
		return nil, &ops.UsageError{Err: err}
	}
	return s, nil
}

// loadRules compiles the file, whose changes are followed, or the sample rules.
func (s *settings) loadRules(path string) (err error) {
	if s.sample = path == ""; s.sample {
		s.rules, err = aggregator.CompileRules(sampleName, sampleRules)
	} else {
		s.rules, s.ruleFile, err = aggregator.LoadRules(path)
	}
	return err
}
