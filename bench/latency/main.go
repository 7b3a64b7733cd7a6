// Command latency measures how long it takes from the moment that an application emits an
// event, in its call of Emit, until another process denies, with other traffic going on; and,
// from the timestamps that Kafka keeps of every batch, where that time goes.
//
//	scripts/bench.sh latency --rates 1000,5000
//	scripts/bench.sh latency --rates 5000 --attack 10000
//	scripts/bench.sh writes --rates 500 --delays 0,1ms,5ms,20ms
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

const rulesYAML = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: latency}
spec:
  rules:
    - {name: probe, match: {api: probe}, limit: 1, per: 1h, then: {block: until-reset}}
    - {name: attack, match: {api: attack}, limit: 2, per: 1h, then: {block: 5m}}
    - {name: traffic, match: {api: "search.*"}, limit: 1M, per: 1m, then: {block: 1m}}
    - {name: daily, match: {api: "search.*"}, limit: 1M, per: day, window: calendar, then: {block: until-reset}}
`

// hotRules are what half of the traffic counts under, too, with --hot: one key of all instances. Measured events
// then count on keys that other partitions than theirs own, most of them.
const hotRules = `    - {name: office, key: attrs.office, match: {api: "search.*"}, limit: 1000M, per: 1m, window: tumbling, then: {block: 1m}}
`

// settings are what one run is about.
type settings struct {
	kafka, redis string
	rate         int           // events of other traffic a second
	probes       int           // measured events
	every        time.Duration // between two of them
	warmup       time.Duration // traffic and events that are not measured, first
	linger       time.Duration // emit's; 0 is its default
	partitions   int
	hot          bool   // see hotRules
	attack       int    // uids that go over their limit within a second; 0 for none
	hits         int    // events of each of them
	profile      string // file for a CPU profile of the aggregator
	lines        bool   // also print results in Go's benchmark format
	args         []string

	near     string        // Kafka's addresses without a wire between; for the benchmark's own questions
	delay    time.Duration // a round trip between programs and brokers
	replicas time.Duration // a round trip between brokers
	binary   string        // the aggregator
	timed    bool          // the brokers say when they append
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "deny" {
		exit(deny(os.Args[2], os.Args[3]))
	}
	var s settings
	flag.StringVar(&s.kafka, "kafka", "127.0.0.1:9092", "Kafka's `HOST:PORT,…`")
	flag.StringVar(&s.redis, "redis", "127.0.0.1:6379", "Redis' `HOST:PORT`")
	rates := flag.String("rates", "1000,5000,20000", "events of other traffic a second, one run each")
	flag.IntVar(&s.probes, "probes", 2000, "measured events a run")
	flag.DurationVar(&s.every, "every", 5*time.Millisecond, "interval between measured events")
	flag.DurationVar(&s.warmup, "warmup", 5*time.Second, "time before the first measured event, with traffic and events that are not measured")
	flag.DurationVar(&s.linger, "linger", 0, "emit's linger; 0 is its default")
	flag.IntVar(&s.partitions, "partitions", 4, "partitions")
	flag.BoolVar(&s.hot, "hot", false, "half of the other traffic counts on one key, and measured events on keys of other partitions")
	flag.IntVar(&s.attack, "attack", 0, "`uids` that go over their limit within a second, in the middle of each run")
	flag.IntVar(&s.hits, "hits", 5, "events that each of them sends in that second; the third is over the limit")
	flag.StringVar(&s.profile, "cpuprofile", "", "write a CPU profile of the aggregator's first 4 s under measurement, or under attack, to this `FILE`")
	flag.BoolVar(&s.lines, "lines", false, "also print results in Go's benchmark format")
	args := flag.String("aggregator-args", "", "more `options` of the aggregator")
	binaries := flag.String("binaries", "", "`FILES` of aggregators to compare, each measured in each run; empty: build one")
	brokers := flag.Int("brokers", 0, "start so many brokers, replicate to all of them, and reach them through a proxy each; 0: use --kafka")
	embedded := flag.Bool("embedded", false, "with --brokers: brokers within this process, which wait for no replicas and have no broker time")
	delays := flag.String("delays", "0", "how long a `round trip` through these proxies takes, one run each")
	replicas := flag.String("replica-delays", "0", "how long a `round trip` between these brokers takes, one run each")
	flag.Parse()
	s.args = strings.Fields(*args)
	exit(run(s, plan{*brokers, *embedded, *rates, *delays, *replicas, *binaries}))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// plan is which runs there are.
type plan struct {
	brokers                           int
	embedded                          bool
	rates, delays, replicas, binaries string
}

// each calls f for each value of a list.
func each(list string, f func(string) error) error {
	for v := range strings.SplitSeq(list, ",") {
		if err := f(v); err != nil {
			return err
		}
	}
	return nil
}

func run(s settings, p plan) (err error) {
	dir, err := os.MkdirTemp("", "latency")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	rules := rulesYAML
	if s.hot {
		rules = strings.Replace(rules, "name: probe,", "name: probe, key: attrs.probe,", 1) + hotRules
	}
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rules), 0o600); err != nil {
		return err
	}
	if p.binaries == "" {
		p.binaries = filepath.Join(dir, "aggregator")
		if out, err := exec.Command("go", "build", "-o", p.binaries, "./cmd/aggregator").CombinedOutput(); err != nil {
			return fmt.Errorf("build the aggregator: %w\n%s", err, out)
		}
	}
	c := &cluster{}
	s.near = s.kafka
	if p.brokers > 0 {
		defer func() { c.stop() }()
		if p.embedded {
			c, err = embedCluster(p.brokers)
		} else {
			c, err = startCluster(dir, p.brokers)
		}
		if err != nil {
			return err
		}
		s.near, s.kafka = strings.Join(c.near, ","), strings.Join(c.far, ",")
	}
	if p.brokers > 0 {
		fmt.Println("to warm the brokers up, and not to be compared:")
		warm := s
		warm.binary, _, _ = strings.Cut(p.binaries, ",")
		warm.probes = min(s.probes, 200)
		if err := one(warm, c, dir, "0", "0", "100"); err != nil {
			return err
		}
	}
	fmt.Printf("from Emit to denied in another process, %d events each, one every %v, %d partitions, checkpoints every 1s\n", s.probes, s.every, s.partitions)
	return each(p.delays, func(delay string) error {
		return each(p.replicas, func(replicas string) error {
			return each(p.rates, func(rate string) error {
				return each(p.binaries, func(binary string) error {
					if strings.Contains(p.binaries, ",") {
						fmt.Printf("%s:\n", filepath.Base(binary))
					}
					s.binary = binary
					return one(s, c, dir, delay, replicas, rate)
				})
			})
		})
	})
}

// one is one run.
func one(s settings, c *cluster, dir, delay, replicas, rate string) (err error) {
	if s.rate, err = strconv.Atoi(rate); err != nil {
		return fmt.Errorf("--rates: %w", err)
	}
	if s.delay, err = time.ParseDuration(delay); err != nil {
		return fmt.Errorf("--delays: %w", err)
	}
	if s.replicas, err = time.ParseDuration(replicas); err != nil {
		return fmt.Errorf("--replica-delays: %w", err)
	}
	if (s.delay > 0 || s.replicas > 0) && len(c.near) == 0 {
		return errors.New("--delays are for brokers of the benchmark's own: give --brokers")
	}
	c.set(s.delay, s.replicas)
	if len(c.near) > 0 {
		took, err := measure(&c.trip)
		if err != nil {
			return fmt.Errorf("measure a round trip: %w", err)
		}
		fmt.Printf("%d brokers, a round trip to them takes %v (measured: %v), and %v between them:\n",
			len(c.near), s.delay, took.Round(10*time.Microsecond), s.replicas)
	}
	s.timed = c.embedded == nil
	b := newBench(s, dir)
	if err := b.run(); err != nil {
		return fmt.Errorf("at %d events/s: %w", s.rate, err)
	}
	if len(c.near) > 0 {
		return c.forget(b.prefix)
	}
	return nil
}
