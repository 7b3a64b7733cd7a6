// Package dev is `tallygate dev`: the whole engine in one process, with nothing to install.
package dev

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/aggregator"
	"github.com/tallygate/tallygate/internal/devstack"
	"github.com/tallygate/tallygate/internal/enforcer"
	"github.com/tallygate/tallygate/internal/ops"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/rules"
)

//go:embed rules.yaml
var sampleRules []byte

const usage = `
tallygate dev runs the whole engine in one process: Kafka and Redis (embedded), an aggregator,
an enforcer, sample rules, and a real access log replayed as live traffic. Every part can be
replaced by one of yours.

  tallygate dev
  tallygate dev --rules my-rules.yaml --input /var/log/nginx/access.log
  tallygate dev --kafka localhost:9092 --redis localhost:6379 --input none
`

// stack is everything that dev runs.
type stack struct {
	rules     *rules.Set
	input     string
	speed     float64
	once      bool
	kafka     *ops.Kafka
	redis     redis.UniversalClient
	redisAddr string
	embedded  string // what of it is embedded, for the banner
	prefix    string
	http, api net.Listener
	registry  *prometheus.Registry
	out       io.Writer
	log       *slog.Logger
}

// Command is `tallygate dev`: it returns the exit status.
func Command(ctx context.Context, args []string, stdout, stderr io.Writer, getenv func(string) string) int {
	s := &stack{out: stdout, registry: ops.NewRegistry("dev")}
	err := s.parse(ctx, args, stderr, getenv)
	if err == nil {
		err = errors.Join(s.run(ctx), s.redis.Close())
	}
	return ops.Exit(stderr, "tallygate dev", err)
}

func (s *stack) parse(ctx context.Context, args []string, stderr io.Writer, getenv func(string) string) error {
	o := ops.NewOptions("tallygate dev", usage, stderr, getenv)
	rulesFile := o.String("rules", "", "rule `FILE` (default: the sample rules)")
	o.StringVar(&s.input, "input", "", "`FILE` to replay: an access log or NDJSON, also gzipped; - for standard input; none for no traffic (default: a sample log)")
	o.Float64Var(&s.speed, "speed", 600, "how many times `faster` than its own time the input is replayed; 0: as fast as it goes")
	o.BoolVar(&s.once, "once", false, "replay the input once instead of again and again")
	kafka := o.String("kafka", "", "Kafka's `HOST:PORT,…` (default: an embedded one)")
	rds := o.String("redis", "", "Redis' `HOST:PORT` (default: an embedded one)")
	listen := o.String("listen", "127.0.0.1:8080", "the decision server on `HOST:PORT`")
	o.StringVar(&s.prefix, "prefix", "tallygate", "`name` that topics, group and Redis keys begin with")
	level := o.String("log-level", "error", "`level` of the engine's own log: debug, info, warn or error")
	if err := o.Parse(args); err != nil {
		return err
	}
	var l slog.Level
	if err := l.UnmarshalText([]byte(*level)); err != nil {
		return &ops.UsageError{Err: fmt.Errorf("--log-level %q: debug, info, warn or error", *level)}
	}
	s.log = slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: l}))
	if s.speed < 0 {
		return &ops.UsageError{Err: fmt.Errorf("--speed %v: 0 or more", s.speed)}
	}
	if err := s.loadRules(*rulesFile); err != nil {
		return &ops.UsageError{Err: err}
	}
	if err := s.listen(*listen); err != nil {
		return err
	}
	return s.servers(ctx, *kafka, *rds)
}

func (s *stack) loadRules(path string) (err error) {
	name, src := "rules.yaml", sampleRules
	if path != "" {
		name = path
		if src, err = os.ReadFile(path); err != nil {
			return fmt.Errorf("read the rules: %w", err)
		}
	}
	s.rules, err = rules.Compile(name, src)
	return err
}

// listen opens the decision server's port, and the aggregator's beside it.
func (s *stack) listen(addr string) (err error) {
	if s.http, err = ops.Listen("listen", addr); err != nil {
		return err
	}
	s.api, err = net.Listen("tcp", "127.0.0.1:8081")
	if err != nil {
		s.api, err = net.Listen("tcp", "127.0.0.1:0")
	}
	return err
}

// servers starts what is not given: at the usual ports if they are free, else at others.
func (s *stack) servers(ctx context.Context, kafka, rds string) error {
	cfg := devstack.Config{KafkaPort: free(9092), RedisPort: free(6379)}
	var embedded []string
	if kafka == "" || rds == "" {
		st, err := devstack.Start(context.WithoutCancel(ctx), cfg) // ends with the process, after the aggregator
		if err != nil {
			return err
		}
		if kafka == "" {
			kafka, embedded = st.Kafka[0], append(embedded, "Kafka")
		}
		if rds == "" {
			rds, embedded = st.Redis, append(embedded, "Redis")
		}
	}
	s.embedded = strings.Join(embedded, " and ")
	s.kafka = &ops.Kafka{Brokers: strings.Split(kafka, ",")}
	s.redisAddr = rds
	s.redis = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(rds, ",")})
	return nil
}

// free returns port if nobody listens on it, else 0 for any.
func free(port int) int {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return 0
	}
	l.Close()
	return port
}

func (s *stack) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: s.redis, Prefix: s.prefix, Logger: s.log})
	if err != nil {
		return err
	}
	screen := &screen{out: s.out, registry: s.registry, listen: s.http.Addr().String(), shown: map[string]shown{}}
	counting := aggregator.Program{
		Config: aggregate.Config{Rules: s.rules, Prefix: s.prefix, Partitions: 4, Advertise: s.api.Addr().String(),
			CheckpointEvery: time.Second},
		Kafka: s.kafka, Redis: s.redis, HTTP: s.api, Registry: s.registry, Log: s.log,
	}
	deciding := enforcer.Program{Redis: s.redis, Prefix: s.prefix, HTTP: s.http, Registry: s.registry, Log: s.log}
	s.banner()
	g.Go(func() error { return counting.Run(ctx) })
	g.Go(func() error { return deciding.Run(ctx) })
	g.Go(func() error { return ops.UnlessEnded(ctx, feed.Run(ctx, screen)) })
	g.Go(func() error { return screen.summaries(ctx) })
	if s.input != "none" {
		g.Go(func() error { return ops.UnlessEnded(ctx, s.traffic(ctx, screen)) })
	}
	err = g.Wait()
	fmt.Fprintln(s.out, "\nstopped")
	return err
}

func (s *stack) banner() {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Tallygate, all in one process. Stop it with Ctrl-C.\n\n")
	fmt.Fprintf(&b, "  Kafka            %s   topic %s.events\n", strings.Join(s.kafka.Brokers, ","), s.prefix)
	fmt.Fprintf(&b, "  Redis            %s\n", s.redisAddr)
	fmt.Fprintf(&b, "  decision server  http://%s/v1/check\n", s.http.Addr())
	fmt.Fprintf(&b, "  explain          http://%s/v1/explain?uid=…\n", s.api.Addr())
	if s.embedded != "" {
		fmt.Fprintf(&b, "\n%s embedded: what it holds goes with this process.\n", s.embedded)
	}
	fmt.Fprintf(&b, "Rules: %s, %d of them. ", s.rules.Name, len(s.rules.Rules))
	switch s.input {
	case "none":
		fmt.Fprintln(&b, "No traffic: emit some of your own.")
	case "":
		fmt.Fprintf(&b, "Traffic: 10,000 requests of a public web server, %.4g times as fast as they came.\n", s.speed)
	default:
		fmt.Fprintf(&b, "Traffic: %s, %.4g times as fast as it came.\n", s.input, s.speed)
	}
	fmt.Fprintln(&b)
	_, _ = s.out.Write(b.Bytes())
}
