package dev

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/tallygate/tallygate/internal/console"
	"github.com/tallygate/tallygate/internal/programs/aggregator"
	"github.com/tallygate/tallygate/internal/programs/decision"
	"github.com/tallygate/tallygate/internal/programs/enforcer"
	"github.com/tallygate/tallygate/internal/run/access"
	"github.com/tallygate/tallygate/internal/run/apiclient"
	"github.com/tallygate/tallygate/internal/run/devstack"
	"github.com/tallygate/tallygate/internal/run/health/watch"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/internal/run/ops"
	"github.com/tallygate/tallygate/internal/tools/doctor"
	"github.com/tallygate/tallygate/pipeline/aggregate"
	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/enforce/forwardauth"
)

// stack holds all that dev has opened.
type stack struct {
	*settings
	kafka    *kafkaconn.Kafka
	redis    redis.UniversalClient
	embedded []string // the embedded parts
	registry *prometheus.Registry

	decisions, api, calls, pages, metrics net.Listener
}

// What the screen calls embedded parts.
const (
	embeddedKafka = "Kafka"
	embeddedRedis = "Redis"
)

// partitions is the number of each topic's partitions.
const partitions = 4

// ownKafka reports whether Kafka is embedded.
func (s *stack) ownKafka() bool { return slices.Contains(s.embedded, embeddedKafka) }

// run works until ctx ends.
func (s *settings) run(ctx context.Context) error {
	st := &stack{settings: s, registry: ops.NewRegistry("dev")}
	if err := dropReadyFile(s.readyFile); err != nil {
		return &ops.UsageError{Err: fmt.Errorf("--ready-file: %w", err)}
	}
	if err := st.listenAll(); err != nil {
		return err
	}
	stop, err := st.connect(ctx)
	if err != nil {
		return err
	}
	defer stop()
	return st.work(ctx)
}

// listenAll opens the decision server's port and the others beside it. If one of these is taken,
// any other port is used.
func (s *stack) listenAll() (err error) {
	if s.decisions, err = ops.Listen("listen", s.listen); err != nil {
		return err
	}
	host, text, err := net.SplitHostPort(s.decisions.Addr().String())
	if err != nil {
		return err
	}
	port, err := strconv.Atoi(text)
	if err != nil {
		return err
	}
	if s.api, err = listenNear(commandHost(s.decisions.Addr(), host), s.port(port+1)); err != nil {
		return err
	}
	if s.calls, err = listenNear(host, s.port(port+2)); err != nil {
		return err
	}
	if s.pages, err = listenNear(commandHost(s.decisions.Addr(), host), s.port(port+3)); err != nil {
		return err
	}
	s.metrics, err = listenNear("127.0.0.1", s.port(9090))
	return err
}

// commandHost is the host on which the aggregator and the console listen: loopback, whatever the decision server's
// host is. Every caller there may give commands, without credentials.
func commandHost(addr net.Addr, host string) string {
	if access.Loopback(addr) {
		return host
	}
	return "127.0.0.1"
}

// port is the usual port, or 0 for any if free ports were requested.
func (s *stack) port(usual int) int {
	if strings.HasSuffix(s.listen, ":0") {
		return 0
	}
	return usual
}

func listenNear(host string, port int) (net.Listener, error) {
	l, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
	if err != nil {
		return net.Listen("tcp", net.JoinHostPort(host, "0"))
	}
	return l, nil
}

// connect starts the servers that are not given. stop ends them and the connections.
func (s *stack) connect(ctx context.Context) (stop func(), err error) {
	kafka, rds := s.settings.kafka, s.rds
	stopServers := func() {}
	if kafka == "" || rds == "" {
		cfg := devstack.Config{KafkaPort: free(s.port(9092)), RedisPort: free(s.port(6379))}
		// They end after their clients.
		servers, err := devstack.Start(context.WithoutCancel(ctx), cfg)
		if err != nil {
			return nil, err
		}
		stopServers = servers.Close
		if kafka == "" {
			kafka, s.embedded = servers.Kafka[0], append(s.embedded, embeddedKafka)
		}
		if rds == "" {
			rds, s.embedded = servers.Redis, append(s.embedded, embeddedRedis)
		}
	}
	s.kafka = &kafkaconn.Kafka{Brokers: strings.Split(kafka, ",")}
	s.redis = redis.NewUniversalClient(&redis.UniversalOptions{Addrs: strings.Split(rds, ",")})
	s.rds = rds
	return func() {
		_ = s.redis.Close() // nothing is lost
		stopServers()
	}, nil
}

// free returns port if no program listens on it, else 0 for any.
func free(port int) int {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return 0
	}
	_ = l.Close()
	return port
}

// trace has both programs send spans where the options say. The sample's events have no traces of their own,
// so that each verdict begins one.
func (s *stack) trace(counting *aggregator.Program, deciding *enforcer.Program) error {
	spans, err := s.spans.Build("dev", "", s.registry, s.log)
	counting.Spans, deciding.Spans, counting.Config.TraceEvery = spans, spans, 1
	return err
}

func (s *stack) work(ctx context.Context) error {
	g, gctx := errgroup.WithContext(ctx)
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: s.redis, Prefix: s.prefix, Logger: s.log})
	if err != nil {
		return err
	}
	shown := s.sample && s.ownKafka()
	if shown {
		// Services learn of strict rules from what the group has published. The group of another Kafka
		// may have rules of its own, which the sample must not replace.
		s.ruleFile = aggregate.RuleFile{Name: sampleName, Source: sampleRules, Modified: time.Now()}
	}
	screen := newScreen(s.out, s.registry, s.decisions.Addr().String(), s.api.Addr().String())
	screen.json = s.json
	screen.notes.unmatched = askUnmatched(s.api.Addr().String())
	counting := aggregator.Program{
		Config:        aggregate.Config{Rules: s.rules, RuleFile: s.ruleFile, Prefix: s.prefix, Partitions: partitions, Advertise: s.api.Addr().String()},
		RulesInMemory: shown, Kafka: s.kafka, Redis: s.redis, HTTP: s.api, Metrics: s.metrics, Registry: s.registry, Log: s.log,
	}
	deciding := enforcer.Program{Config: decision.Config{MaxWait: enforcer.DefaultMaxWait, Headers: forwardauth.Headers{Proxies: s.lines.Proxies}}, Presence: enforcer.Presence{URL: "http://" + s.decisions.Addr().String()}, Redis: s.redis, Prefix: s.prefix, HTTP: s.decisions, GRPC: s.calls, Registry: s.registry, Log: s.log}
	if err := s.trace(&counting, &deciding); err != nil {
		return err
	}
	pages, err := s.console()
	if err != nil {
		return err
	}
	screen.started(s)
	g.Go(func() error { return counting.Run(gctx) })
	g.Go(func() error { return deciding.Run(gctx) })
	g.Go(func() error { return pages.Run(gctx) })
	g.Go(func() error { return ops.IgnoreCanceled(gctx, feed.Run(gctx, screen)) })
	g.Go(func() error { return screen.summaries(gctx) })
	g.Go(func() error {
		if !s.untilReady(gctx) {
			return nil
		}
		if s.json || s.readyFile != "" {
			g.Go(func() error { return s.announce(gctx, screen) })
		}
		// Before there are topics, nothing can be sent: an input that ended meanwhile was lost.
		if s.traffic != nil {
			g.Go(func() error { return ops.IgnoreCanceled(gctx, s.send(gctx, screen)) })
		}
		if shown && s.traffic != nil {
			g.Go(func() error { return ops.IgnoreCanceled(gctx, s.rushes(gctx, screen)) })
		}
		return nil
	})
	if err := g.Wait(); err != nil {
		return err
	}
	return screen.stopped()
}

// console is the pages.
func (s *stack) console() (*console.Program, error) {
	api := apiclient.New("http://"+s.api.Addr().String(), &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: apiclient.AtOnce}})
	keys, err := console.NewKeys(console.KeysConfig{Kafka: s.kafka, Redis: s.redis, Prefix: s.prefix, Logger: s.log})
	if err != nil {
		return nil, err
	}
	return &console.Program{
		API: api, Keys: keys, Health: watch.New(watch.Config{Kafka: s.kafka, Redis: s.redis, API: api, Prefix: s.prefix, Logger: s.log}),
		Doctor: doctor.Config{Kafka: s.kafka, Redis: s.redis, Prefix: s.prefix, NoWrite: true},
		HTTP:   s.pages, Registry: s.registry, Log: s.log,
	}, nil
}

func (s *stack) banner() {
	var b bytes.Buffer
	fmt.Fprintf(&b, "Tallygate, all in one process. Stop it with Ctrl-C.\n\n")
	fmt.Fprintf(&b, "  console          http://%s/ shows it in a browser\n", s.pages.Addr())
	fmt.Fprintf(&b, "  Kafka            %s, topic %s.events\n", strings.Join(s.kafka.Brokers, ","), s.prefix)
	fmt.Fprintf(&b, "  Redis            %s\n", s.rds)
	fmt.Fprintf(&b, "  decision server  http://%s/v1/check\n", s.decisions.Addr())
	fmt.Fprintf(&b, "  gRPC for Envoy   %s\n", s.calls.Addr())
	fmt.Fprintf(&b, "  aggregator       http://%s/v1/explain?uid=…\n", s.api.Addr())
	fmt.Fprintf(&b, "  commands         tallygate block uid=42 --for 1m --reason \"a test\" --aggregator %s (elsewhere with TALLYGATE_TOKEN=…, https://HOST:PORT and --ca ca.pem)\n", s.api.Addr())
	fmt.Fprintf(&b, "  metrics          http://%s/metrics\n\n", s.metrics.Addr())
	if len(s.embedded) > 0 {
		fmt.Fprintf(&b, "Embedded: %s. What they hold goes with this process.\n", strings.Join(s.embedded, " and "))
	}
	fmt.Fprintf(&b, "Rules: %s, %d of them.\n", s.rules.Name, len(s.rules.All()))
	fmt.Fprintf(&b, "Traffic: %s.\n\n%s", s.traffic, s.exports())
	_, _ = s.out.Write(b.Bytes())
}
