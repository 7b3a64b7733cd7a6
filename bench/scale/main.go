// Command scale measures what one more of everything costs behind the counting: a blocked key
// in Redis and in an enforcer, a change of the blocklist, an enforcer that follows it. The
// page docs/scale.md multiplies.
//
//	go -C bench run ./scale --kafka localhost:9092 --redis localhost:6379
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

type settings struct {
	kafka   []string
	redis   string
	entries int // blocked keys
	feeds   int
	rates   []int // changes a second that the feeds follow
	each    time.Duration
}

func main() {
	s := settings{rates: []int{0, 100, 1000}}
	kafka := flag.String("kafka", "127.0.0.1:9092", "Kafka's `HOST:PORT,…`")
	flag.StringVar(&s.redis, "redis", "127.0.0.1:6379", "Redis' `HOST:PORT`; nobody else should use it meanwhile")
	flag.IntVar(&s.entries, "entries", 200_000, "blocked keys")
	flag.IntVar(&s.feeds, "feeds", 200, "feeds that follow the blocklist, in this process")
	flag.DurationVar(&s.each, "each", 5*time.Second, "time for each rate of changes")
	flag.Parse()
	s.kafka = strings.Split(*kafka, ",")
	if err := run(s); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(s settings) (err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	client := redis.NewClient(&redis.Options{Addr: s.redis})
	defer client.Close()
	src, err := newSource(ctx, s)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.close()) }()
	if err := src.publish(ctx, client); err != nil {
		return err
	}
	if err := s.follow(ctx, client, src); err != nil {
		return err
	}
	if err := s.fill(ctx, client, src); err != nil {
		return err
	}
	if err := s.snapshot(ctx, client, src); err != nil {
		return err
	}
	return s.table(src)
}

// fill blocks all keys, as fast as it goes.
func (s settings) fill(ctx context.Context, client *redis.Client, src *source) error {
	before, err := look(ctx, client)
	if err != nil {
		return err
	}
	if err := src.block(0, s.entries); err != nil {
		return err
	}
	if err := until(ctx, "all verdicts are in Redis", func() bool { return src.applied(ctx, client) }); err != nil {
		return err
	}
	after, err := look(ctx, client)
	if err != nil {
		return err
	}
	n := float64(s.entries)
	fmt.Printf("%d blocked keys in Redis: %.1f µs of its CPU a verdict in full batches, %.0f bytes in, %.0f bytes of memory each without the stream\n",
		s.entries, (after.cpu-before.cpu).Seconds()*1e6/n, (after.in-before.in)/n, src.keyBytes(ctx, client)/n)
	return nil
}

// follow starts the feeds and lets changes flow.
func (s settings) follow(ctx context.Context, client *redis.Client, src *source) (err error) {
	if err := src.block(0, fewKeys); err != nil {
		return err
	}
	if err := until(ctx, "the first verdicts are in Redis", func() bool { return src.applied(ctx, client) }); err != nil {
		return err
	}
	before, err := look(ctx, client)
	if err != nil {
		return err
	}
	feedCtx, stop := context.WithCancel(ctx)
	fs, err := startFeeds(feedCtx, s.redis, src.prefix, s.feeds)
	defer func() {
		stop()
		err = errors.Join(err, fs.wait())
	}()
	if err != nil {
		return err
	}
	began := time.Now()
	if err := until(ctx, "all feeds have a snapshot", fs.ready); err != nil {
		return err
	}
	after, err := look(ctx, client)
	if err != nil {
		return err
	}
	n := float64(s.feeds)
	fmt.Printf("%d feeds start at once, with %d keys: %v, %.1f kB of Redis' memory a connection\n",
		s.feeds, fewKeys, time.Since(began).Round(10*time.Millisecond), (after.clients-before.clients)/n/1e3)
	for _, rate := range s.rates {
		if err := s.flow(ctx, client, src, fs, rate); err != nil {
			return err
		}
	}
	return nil
}

// fewKeys are blocked while the feeds follow: it is changes that are measured then.
const fewKeys = 1000

// snapshot measures a feed's beginning.
func (s settings) snapshot(ctx context.Context, client *redis.Client, src *source) (err error) {
	before, err := look(ctx, client)
	if err != nil {
		return err
	}
	feedCtx, stop := context.WithCancel(ctx)
	ours, began := ownCPU(), time.Now()
	fs, err := startFeeds(feedCtx, s.redis, src.prefix, 1)
	defer func() {
		stop()
		err = errors.Join(err, fs.wait())
	}()
	if err != nil {
		return err
	}
	if err := until(ctx, "the feed has its snapshot", fs.ready); err != nil {
		return err
	}
	took, used := time.Since(began), ownCPU()-ours
	after, err := look(ctx, client)
	if err != nil {
		return err
	}
	n := float64(s.entries)
	fmt.Printf("a snapshot of %d keys: %v; a key takes %.2f µs of Redis' CPU, %.2f µs of the enforcer's, %.0f bytes\n",
		s.entries, took.Round(time.Millisecond), (after.cpu-before.cpu).Seconds()*1e6/n, used.Seconds()*1e6/n, (after.out-before.out)/n)
	return nil
}

// flow publishes changes at a rate, and tells what following them costs.
func (s settings) flow(ctx context.Context, client *redis.Client, src *source, fs *feeds, rate int) error {
	before, err := look(ctx, client)
	if err != nil {
		return err
	}
	ours, seen, began := ownCPU(), fs.changes(), time.Now()
	changes, err := src.flow(ctx, rate, s.each)
	if err != nil {
		return err
	}
	if err := until(ctx, "all feeds have all changes", func() bool { return fs.changes()-seen >= uint64(changes*s.feeds) }); err != nil {
		return err
	}
	took := time.Since(began).Seconds()
	after, err := look(ctx, client)
	if err != nil {
		return err
	}
	cpu, n := (after.cpu - before.cpu).Seconds(), float64(s.feeds)
	fmt.Printf("%5.0f changes/s, %d feeds: Redis %.1f%% of a core, %.1f reads/s a feed, %.0f B/s out a feed; a feed takes %.3f%% of a core",
		float64(changes)/took, s.feeds, 100*cpu/took, (after.reads-before.reads)/took/n, (after.out-before.out)/took/n, 100*(ownCPU()-ours).Seconds()/took/n)
	if changes > 0 {
		fmt.Printf(" (a change and feed: Redis %.1f µs, %.0f B)", cpu*1e6/float64(changes)/n, (after.out-before.out)/float64(changes)/n)
	}
	fmt.Println()
	return nil
}

// table measures an enforcer's memory.
func (s settings) table(src *source) error {
	t, err := enforce.NewTable(enforce.Config{})
	if err != nil {
		return err
	}
	before := heap()
	t.Replace(0, src.verdicts(0, s.entries))
	fmt.Printf("an enforcer with %d keys: %.0f bytes of memory each\n", t.Len(), float64(heap()-before)/float64(t.Len()))
	runtime.KeepAlive(t)
	return nil
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// ownCPU is what this process has used.
func ownCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// until waits for a condition.
func until(ctx context.Context, what string, ok func() bool) error {
	for !ok() {
		select {
		case <-ctx.Done():
			return errors.Join(errors.New("never: "+what), ctx.Err())
		case <-time.After(2 * time.Millisecond):
		}
	}
	return nil
}
