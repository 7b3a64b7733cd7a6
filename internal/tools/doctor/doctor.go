// Package doctor finds what is wrong with the Kafka and the Redis of an installation, and says how
// to fix it.
//
// A check is a method of examination. Most only read. Two write, unless Config.NoWrite forbids it:
// one tests fencing on a scratch topic PREFIX.doctor-RANDOM under the transactional id
// PREFIX-doctor-RANDOM; one tests the rights in Redis, where they cannot be queried, on scratch
// keys that begin with {PREFIX:0}:doctor-. Topic and keys are deleted afterwards.
package doctor

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/internal/run/health"
	"github.com/tallygate/tallygate/internal/run/kafkaconn"
	"github.com/tallygate/tallygate/pipeline/aggregate/topics"
	"github.com/tallygate/tallygate/rules"
)

// Config names the servers to examine.
type Config struct {
	Kafka        *kafkaconn.Kafka      // required
	Redis        redis.UniversalClient // nil: skipped; the caller closes it
	Prefix       string                // of all names; "" is tallygate
	Shards       int                   // of the blocklist; 0 is 1
	ProducerTime bool                  // records of events carry their producers' time
	Rules        string                // a rule file; "" for none
	NoWrite      bool                  // only read: no scratch topic, no scratch keys
	Timeout      time.Duration         // how long a check waits for a server; 0 is 5 s

	Partitions  int // of topics that an aggregator would create; 0 is 12
	Replication int // of these; 0 is 3, or the number of brokers if that is lower

	SessionTimeout time.Duration // of the aggregators; 0 is 10 s
	MaxStaleness   time.Duration // of the enforcers; 0 is 30 s
}

func (c Config) withDefaults() Config {
	c.Prefix = cmp.Or(c.Prefix, "tallygate")
	c.Shards = cmp.Or(c.Shards, 1)
	c.Timeout = cmp.Or(c.Timeout, 5*time.Second)
	c.SessionTimeout = cmp.Or(c.SessionTimeout, 10*time.Second)
	c.MaxStaleness = cmp.Or(c.MaxStaleness, 30*time.Second)
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Kafka == nil || len(c.Kafka.Brokers) == 0 {
		errs = append(errs, errors.New("no Kafka brokers"))
	}
	if c.Shards < 1 {
		errs = append(errs, fmt.Errorf("%d shards: want at least 1", c.Shards))
	}
	if c.Partitions < 0 || c.Partitions > math.MaxInt32 || c.Replication < 0 || c.Replication > math.MaxInt16 {
		errs = append(errs, fmt.Errorf("%d partitions, %d replicas: want 0, which is the default, or more", c.Partitions, c.Replication))
	}
	if c.Timeout < 100*time.Millisecond {
		errs = append(errs, fmt.Errorf("a timeout of %v: want at least 100ms", c.Timeout))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("doctor: %w", err)
	}
	return nil
}

// examination is one run. Checks change it only through outcome.keep: a check that timed out may
// still be running.
type examination struct {
	kafkaSide

	redisUp bool
	servers []health.Server // that tell how they are
	clocks  []health.Offset
}

// kafkaSide holds the findings about Kafka, and the checks that need no more.
type kafkaSide struct {
	cfg    Config
	names  topics.Names
	random string     // suffix of the names of scratch topics and keys
	set    *rules.Set // nil without rules, or if they are invalid

	client  sarama.Client // nil until Kafka is reached
	admin   sarama.ClusterAdmin
	brokers []*sarama.Broker
	layout  *topics.State // nil until the topics are known
}

// outcome is the result of a check, and what later checks need of it.
type outcome struct {
	results []Result
	keep    func() // stores in the examination what later checks need; may be nil
	drop    func() // called instead of keep after a timeout; may be nil
}

func found(results ...Result) outcome { return outcome{results: results} }

// check is one check of the examination. patience multiplies the timeout for a check that sends
// several requests.
type check struct {
	name     string
	needs    need
	patience int
	run      func(ctx context.Context) outcome
}

type need uint8

const (
	needsKafka need = 1 << iota
	needsTopics
	needsRedis
)

func (e *examination) checks() []check {
	return []check{
		{"rules", 0, 1, e.checkRules},
		{"kafka", 0, 1, e.reachKafka},
		{"kafka-version", needsKafka, 1, e.checkVersions},
		{"kafka-settings", needsKafka, 1, e.checkBrokerSettings},
		{"topics", needsKafka, 2, e.checkTopics},
		{"replication", needsTopics, 1, e.checkReplication},
		{"retention", needsTopics, 1, e.checkRetention},
		{"state-size", needsTopics, 1, e.checkStateSize},
		{"acls", needsKafka, 2, e.checkACLs},
		{"fencing", needsKafka, 4, e.checkFencing},
		{"redis", 0, 1, e.reachRedis},
		{"redis-version", needsRedis, 1, e.checkRedisVersion},
		{"redis-role", needsRedis, 1, e.checkRole},
		{"redis-policy", needsRedis, 1, e.checkPolicy},
		{"redis-rights", needsRedis, 1, e.checkRights},
		{"clocks", 0, 1, e.checkClocks},
		{"strict-clocks", 0, 1, e.checkStrictClocks},
		{"group", needsKafka | needsTopics, 2, e.checkGroup},
		{"events", needsKafka | needsTopics, 2, e.checkEvents},
		{"staleness", 0, 1, e.checkStaleness},
		{"blocklist", needsRedis, 2, e.checkBlocklist},
		{"enforcers", needsRedis, 1, e.checkEnforcers},
	}
}

// Run runs all checks. It calls tell with each result as soon as it is known, and returns the
// report. When ctx ends, the remaining checks fail.
func Run(ctx context.Context, cfg Config, tell func(Result)) (*Report, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	e := &examination{kafkaSide: kafkaSide{cfg: cfg, names: topics.NamesOf(cfg.Prefix), random: strings.ToLower(rand.Text()[:10])}}
	defer e.close()
	report := &Report{}
	for _, c := range e.checks() {
		for _, r := range e.perform(ctx, c) {
			report.Results = append(report.Results, r)
			tell(r)
		}
	}
	report.Well = report.count(Fail) == 0
	return report, nil
}

func (e *examination) perform(ctx context.Context, c check) []Result {
	if why := e.lacks(c.needs); why != "" {
		return []Result{skip(c.name, "%s", why)}
	}
	if ctx.Err() != nil {
		return []Result{fail(c.name, "", "interrupted")}
	}
	limit := time.Duration(c.patience) * e.cfg.Timeout
	out, answered := e.await(ctx, c, limit)
	if !answered {
		return []Result{fail(c.name, "check the server's load and the network, or raise --timeout", "no response within %v", limit)}
	}
	if out.keep != nil {
		out.keep()
	}
	return out.results
}

// await runs a check, and waits a little longer than the limit, so that the check can clean up.
// sarama and go-redis do not always honor a context: a check that continues after that is
// abandoned.
func (e *examination) await(ctx context.Context, c check, limit time.Duration) (out outcome, answered bool) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	done, gone := make(chan outcome), make(chan struct{})
	defer close(gone)
	go func() {
		out := c.run(ctx)
		select {
		case done <- out:
		case <-gone:
			if out.drop != nil {
				out.drop()
			}
		}
	}()
	select {
	case out := <-done:
		return out, true
	case <-ctx.Done():
	}
	grace := time.NewTimer(e.cfg.Timeout / 2)
	defer grace.Stop()
	select {
	case out := <-done:
		return out, true
	case <-grace.C:
		return outcome{}, false
	}
}

// lacks says why a check cannot run; "" if it can.
func (e *examination) lacks(n need) string {
	switch {
	case n&(needsKafka|needsTopics) != 0 && e.client == nil:
		return "Kafka was not reached"
	case n&needsTopics != 0 && e.layout == nil:
		return "the topics could not be read"
	case n&needsRedis != 0 && e.cfg.Redis == nil:
		return "no --redis was given"
	case n&needsRedis != 0 && !e.redisUp:
		return "Redis was not reached"
	}
	return ""
}

func (e *examination) close() {
	if e.client != nil {
		_ = e.client.Close() // nothing is buffered
	}
}

// look begins observations: those that a check fills in are its own, since one that timed out may still be running.
func (c Config) look() *health.Observations {
	return &health.Observations{Now: time.Now(), Doctor: &health.Once{Bootstrap: strings.Join(c.Kafka.Brokers, ","), Prefix: c.Prefix}}
}

var statuses = map[health.Level]Status{health.Warn: Warn, health.Bad: Fail}

// judged returns a result for each finding of a check that is the case.
func judged(check string, o *health.Observations) (results []Result) {
	for _, f := range health.Of(o, func(f *health.Finding) bool { return f.Check == check }) {
		r := Result{check, statuses[f.Level], f.Text, f.Fix()}
		if !f.Since.IsZero() {
			r.Detail += ", since " + f.Since.UTC().Format(time.RFC3339)
		}
		results = append(results, r)
	}
	return results
}

// kafkaCommand is a command line for one of Kafka's own tools.
func (e *kafkaSide) kafkaCommand(tool, format string, args ...any) string {
	return fmt.Sprintf("%s --bootstrap-server %s %s", tool, strings.Join(e.cfg.Kafka.Brokers, ","), fmt.Sprintf(format, args...))
}

// exists reports whether a topic is known to exist.
func (e *kafkaSide) exists(topic string) bool {
	if e.layout == nil {
		return false
	}
	_, there := e.layout.Topics[topic]
	return there
}

// worst puts failures before warnings.
func worst(results []Result) []Result {
	order := []Status{Fail, Warn, OK, Skipped}
	slices.SortStableFunc(results, func(a, b Result) int {
		return cmp.Compare(slices.Index(order, a.Status), slices.Index(order, b.Status))
	})
	return results
}
