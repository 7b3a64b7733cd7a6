// Command latency measures how long it takes from the moment that an application emits an
// event, in its call of Emit, until another process denies, with other traffic going on; and,
// from the timestamps that Kafka keeps of every batch, where that time goes.
//
//	go run ./internal/bench/latency --kafka localhost:9092 --redis localhost:6379 --rates 1000,5000
//	go run ./internal/bench/latency --kafka localhost:9092 --redis localhost:6379 --rates 5000 --attack 10000
package main

import (
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

// settings are what one run is about.
type settings struct {
	kafka, redis string
	rate         int           // events of other traffic a second
	probes       int           // measured events
	every        time.Duration // between two of them
	warmup       time.Duration // traffic and events that are not measured, first
	linger       time.Duration // emit's; 0 is its default
	partitions   int
	attack       int    // uids that go over their limit within a second; 0 for none
	hits         int    // events of each of them
	profile      string // file for a CPU profile of the aggregator
	lines        bool   // also print results in Go's benchmark format
	args         []string
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
	flag.IntVar(&s.attack, "attack", 0, "`uids` that go over their limit within a second, in the middle of each run")
	flag.IntVar(&s.hits, "hits", 5, "events that each of them sends in that second; the third is over the limit")
	flag.StringVar(&s.profile, "cpuprofile", "", "write a CPU profile of the aggregator's first 4 s under measurement, or under attack, to this `FILE`")
	flag.BoolVar(&s.lines, "lines", false, "also print results in Go's benchmark format")
	args := flag.String("aggregator-args", "", "more `options` of the aggregator")
	flag.Parse()
	s.args = strings.Fields(*args)
	exit(run(s, *rates))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(s settings, rates string) error {
	dir, err := os.MkdirTemp("", "latency")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.WriteFile(filepath.Join(dir, "rules.yaml"), []byte(rulesYAML), 0o600); err != nil {
		return err
	}
	bin := filepath.Join(dir, "aggregator")
	if out, err := exec.Command("go", "build", "-o", bin, "./cmd/aggregator").CombinedOutput(); err != nil {
		return fmt.Errorf("build the aggregator: %w\n%s", err, out)
	}
	fmt.Printf("from Emit to denied in another process, %d events each, one every %v, %d partitions, checkpoints every 1s\n", s.probes, s.every, s.partitions)
	for text := range strings.SplitSeq(rates, ",") {
		if s.rate, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("--rates: %w", err)
		}
		b := newBench(s, dir)
		if err := b.run(); err != nil {
			return fmt.Errorf("at %d events/s: %w", s.rate, err)
		}
	}
	return nil
}
