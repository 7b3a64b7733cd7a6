// Command latency measures how long it takes from the moment that an application emits an
// event, in its call of Emit, until another process denies, with other traffic going on.
//
//	go run ./internal/bench/latency --kafka localhost:9092 --redis localhost:6379 --rates 1000,5000
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/blocklist"
	"github.com/tallygate/tallygate/pipeline/emit"
	"github.com/tallygate/tallygate/pipeline/enforce"
	"github.com/tallygate/tallygate/pipeline/event"
	"github.com/tallygate/tallygate/pipeline/verdict"
)

const rulesYAML = `apiVersion: tallygate.dev/v1
kind: RuleSet
metadata: {name: latency}
spec:
  rules:
    - {name: probe, match: {api: probe}, limit: 1, per: 1h, then: {block: until-reset}}
    - {name: traffic, match: {api: "search.*"}, limit: 1M, per: 1m, then: {block: 1m}}
    - {name: daily, match: {api: "search.*"}, limit: 1M, per: day, window: calendar, then: {block: until-reset}}
`

func main() {
	if len(os.Args) > 1 && os.Args[1] == "deny" {
		exit(deny(os.Args[2], os.Args[3]))
	}
	kafka := flag.String("kafka", "127.0.0.1:9092", "Kafka's `HOST:PORT,…`")
	rds := flag.String("redis", "127.0.0.1:6379", "Redis' `HOST:PORT`")
	rates := flag.String("rates", "1000,5000,20000", "events of other traffic a second, one run each")
	probes := flag.Int("probes", 2000, "measured events a run")
	linger := flag.Duration("linger", 0, "emit's linger; 0 is its default")
	every := flag.Duration("every", 5*time.Millisecond, "interval between measured events")
	flag.Parse()
	exit(run(*kafka, *rds, *rates, *probes, *every, *linger))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "latency:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func run(kafka, rds, rates string, probes int, every, linger time.Duration) error {
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
	fmt.Printf("from Emit to denied in another process, %d events each, one every %v, checkpoints every 1s\n", probes, every)
	for text := range strings.SplitSeq(rates, ",") {
		rate, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("--rates: %w", err)
		}
		b := &bench{kafka: kafka, redis: rds, dir: dir, prefix: fmt.Sprintf("latency-%d", time.Now().UnixMilli()),
			rate: rate, probes: probes, every: every, linger: linger, emitted: map[string]time.Time{}}
		took, err := b.measure()
		if err != nil {
			return fmt.Errorf("at %d events/s: %w", rate, err)
		}
		fmt.Printf("%6d events/s of other traffic: p50 %v  p90 %v  p99 %v  p99.9 %v  worst %v\n", rate,
			quantile(took, 0.5), quantile(took, 0.9), quantile(took, 0.99), quantile(took, 0.999), quantile(took, 1))
	}
	return nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))].Round(10 * time.Microsecond)
}

type bench struct {
	kafka, redis, dir, prefix string
	rate, probes              int
	every, linger             time.Duration

	mu      sync.Mutex
	emitted map[string]time.Time
	took    []time.Duration
}

func (b *bench) measure() ([]time.Duration, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	agg := exec.CommandContext(ctx, filepath.Join(b.dir, "aggregator"), "--kafka", b.kafka, "--redis", b.redis, "--prefix", b.prefix,
		"--rules", filepath.Join(b.dir, "rules.yaml"), "--listen", freeAddr(), "--metrics-listen", freeAddr(),
		"--partitions", "4", "--log-level", "error")
	agg.Stderr = os.Stderr
	if err := agg.Start(); err != nil {
		return nil, err
	}
	defer end(agg)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	denier := exec.CommandContext(ctx, self, "deny", b.redis, b.prefix)
	denier.Stderr = os.Stderr
	out, err := denier.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := denier.Start(); err != nil {
		return nil, err
	}
	defer end(denier)
	read := make(chan error, 1)
	ready := make(chan struct{})
	go func() { read <- b.read(out, ready) }()
	em, err := emit.New(emit.Config{Brokers: strings.Split(b.kafka, ","), Prefix: b.prefix, Linger: b.linger})
	if err != nil {
		return nil, err
	}
	defer em.Close(ctx) //nolint:errcheck // what was measured is measured
	select {
	case <-ready:
	case err := <-read:
		return nil, fmt.Errorf("the denying process ended: %w", err)
	case <-ctx.Done():
		return nil, errors.New("the blocklist is never ready")
	}
	go b.traffic(ctx, em)
	b.probe(ctx, em)
	select {
	case err = <-read:
	case <-ctx.Done():
		err = errors.New("not every probe was denied within 5 minutes")
	}
	slices.Sort(b.took)
	return b.took, err
}

func end(c *exec.Cmd) {
	_ = c.Process.Signal(os.Interrupt) // it may have ended
	_ = c.Wait()
}

// traffic emits other events, a few every millisecond.
func (b *bench) traffic(ctx context.Context, em *emit.Emitter) {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	began, sent := time.Now(), 0
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		for due := int(time.Since(began).Seconds() * float64(b.rate)); sent < due; sent++ {
			em.Emit(event.Event{UID: fmt.Sprintf("user-%d", rand.IntN(100_000)), API: "search.query"})
		}
	}
}

func (b *bench) probe(ctx context.Context, em *emit.Emitter) {
	tick := time.NewTicker(b.every)
	defer tick.Stop()
	for i := range b.probes {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		uid := fmt.Sprintf("probe-%d", i)
		b.mu.Lock()
		b.emitted[uid] = time.Now()
		b.mu.Unlock()
		em.Emit(event.Event{UID: uid, API: "probe"})
	}
}

// read takes "uid nanoseconds" lines from the denying process until every probe is there.
func (b *bench) read(out io.Reader, ready chan<- struct{}) error {
	s := bufio.NewScanner(out)
	for s.Scan() {
		uid, text, _ := strings.Cut(s.Text(), " ")
		if uid == "ready" {
			close(ready)
			continue
		}
		ns, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return err
		}
		b.mu.Lock()
		if at, ok := b.emitted[uid]; ok {
			b.took = append(b.took, time.Unix(0, ns).Sub(at))
			delete(b.emitted, uid)
		}
		done := len(b.took) == b.probes
		b.mu.Unlock()
		if done {
			return nil
		}
	}
	return errors.Join(s.Err(), io.ErrUnexpectedEOF)
}

// deny is the other process: an enforcer that says when it begins to deny whom.
func deny(rds, prefix string) error {
	ctx := context.Background()
	table, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		return err
	}
	feed, err := blocklist.NewFeed(blocklist.FeedConfig{Redis: redis.NewClient(&redis.Options{Addr: rds}), Prefix: prefix})
	if err != nil {
		return err
	}
	go table.Run(ctx) //nolint:errcheck // it ends with the process
	go func() {
		for !table.Ready() {
			time.Sleep(10 * time.Millisecond)
		}
		fmt.Println("ready")
	}()
	return feed.Run(ctx, witness{table})
}

// witness is a table that tells when it denies.
type witness struct{ *enforce.Table }

func (w witness) Apply(shard int, changes []verdict.Verdict) {
	w.Table.Apply(shard, changes)
	for _, v := range changes {
		if uid := v.Key[0].Value; !w.CheckAt(event.FromTime(time.Now()), "probe", uid).Allowed {
			fmt.Println(uid, time.Now().UnixNano())
		}
	}
}

func freeAddr() string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "127.0.0.1:0"
	}
	defer l.Close()
	return l.Addr().String()
}
