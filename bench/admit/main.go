// Command admit measures permits beside what else asks Redis before an action, in one run whose measurements alternate. Ratios
// travel from machine to machine; times don't.
//
//	make bench-admit
//	make bench-admit ARGS='--clients 16 --rounds 9 --only bare,permit'
//
// Each is asked for users at random, by clients that ask again as soon as they are answered, and lets everybody in. Redis' CPU
// is that of its process, the kernel's part included; the command's is what it says of EVALSHA.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os/signal"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

func main() {
	b := bench{}
	clients := flag.String("clients", "1,16", "how many ask at once")
	only := flag.String("only", "", "measure only those whose names begin with these `words`, and bare")
	addr := flag.String("redis", "", "where a Redis for this is; all that it has is removed")
	rates := flag.String("rates", "100,1000,10000", "requests a second, for the share that needs no round trip; none: leave it out")
	flag.IntVar(&b.rounds, "rounds", 9, "measurements of each, of which the median counts")
	flag.DurationVar(&b.slot, "slot", 500*time.Millisecond, "how long one takes")
	flag.IntVar(&b.users, "users", 10_000, "how many users there are")
	flag.BoolVar(&b.lines, "lines", false, "print results in Go's benchmark format")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, *addr, *clients, *only, *rates); err != nil {
		log.Fatal("bench-admit: ", err)
	}
}

// bench is what is measured, and how.
type bench struct {
	redis  *redis.Client
	rounds int
	slot   time.Duration
	users  int
	lines  bool
}

func (b *bench) run(ctx context.Context, addr, clients, only, rates string) error {
	if addr == "" {
		return errors.New("--redis is required: make bench-admit starts one")
	}
	words := strings.Split(only, ",")
	if err := check(words); err != nil {
		return err
	}
	b.redis = newClient(addr)
	defer b.redis.Close()
	if err := b.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	peers, stop, err := newPeers(ctx, b.redis, addr, b.users, words)
	if err != nil {
		return err
	}
	defer stop()
	counts, err := numbers(clients)
	if err != nil {
		return err
	}
	for _, n := range counts {
		if err := b.compare(ctx, peers, n); err != nil {
			return err
		}
	}
	perSecond, err := numbers(rates)
	if err != nil || len(perSecond) == 0 {
		return err
	}
	return b.shares(ctx, addr, perSecond)
}

func newClient(addr string) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, MaxRetries: -1, PoolSize: 64,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}})
}

func numbers(text string) (out []int, err error) {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool { return r == ',' }) {
		n, err := strconv.Atoi(word)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%q in %q is no number above 0", word, text)
		}
		out = append(out, n)
	}
	return out, nil
}

// result is what one measurement of a peer has seen.
type result struct {
	rate          float64 // admissions a second
	cpu           float64 // µs of Redis' process an admission, or of the server's where it has none
	command       float64 // µs of EVALSHA
	together      float64 // admissions of one call
	settling      float64 // µs of Redis' process an admission, for its event
	times         []time.Duration
	against, slow float64 // cpu and p99, as multiples of the bare script's in the same round
}

// compare measures all peers in turn, as often as rounds says.
func (b *bench) compare(ctx context.Context, peers []*peer, clients int) error {
	all := make([][]result, len(peers))
	for round := -1; round < b.rounds; round++ { // the first one warms up
		var bare result
		for i, p := range peers {
			r, err := b.measure(ctx, p, clients)
			if err != nil {
				return fmt.Errorf("%s: %w", p.name, err)
			}
			if i == 0 {
				bare = r
			}
			r.against, r.slow = r.cpu/bare.cpu, float64(quantile(r.times, 0.99))/float64(quantile(bare.times, 0.99))
			if round >= 0 {
				all[i] = append(all[i], r)
			}
		}
	}
	b.print(peers, all, clients)
	return nil
}

// measure has clients ask a peer for a while.
func (b *bench) measure(ctx context.Context, p *peer, clients int) (r result, err error) {
	if p.before != nil {
		if err := p.before(ctx); err != nil {
			return r, err
		}
	}
	runtime.GC()
	used, ran, calls, err := b.used(ctx, p)
	if err != nil {
		return r, err
	}
	began := time.Now()
	if r.times, err = b.load(ctx, p, clients); err != nil {
		return r, err
	}
	took := time.Since(began)
	used2, ran2, calls2, err := b.used(ctx, p)
	if err != nil {
		return r, err
	}
	n := float64(len(r.times))
	r.rate, r.cpu = n/took.Seconds(), float64((used2-used).Microseconds())/n
	if calls2 > calls {
		r.command, r.together = (ran2-ran)/n, n/(calls2-calls)
	}
	if p.after != nil {
		if err := p.after(ctx); err != nil {
			return r, err
		}
		settled, _, _, err := b.used(ctx, p)
		if err != nil {
			return r, err
		}
		r.settling = float64((settled - used2).Microseconds()) / n
	}
	return r, nil
}

// load returns how long each answer took, in order.
func (b *bench) load(ctx context.Context, p *peer, clients int) ([]time.Duration, error) {
	times, failed := make([][]time.Duration, clients), make([]error, clients)
	began := time.Now()
	var asking sync.WaitGroup
	for c := range clients {
		asking.Go(func() {
			random := rand.New(rand.NewPCG(uint64(c), rand.Uint64()))
			for last := began; failed[c] == nil && last.Sub(began) < b.slot; {
				failed[c] = p.ask(ctx, c, random.IntN(b.users))
				now := time.Now()
				times[c] = append(times[c], now.Sub(last))
				last = now
			}
		})
	}
	asking.Wait()
	all := slices.Concat(times...)
	slices.Sort(all)
	return all, errors.Join(failed...)
}

// used is the CPU that a peer's server has used, and the time and number of EVALSHA in Redis.
func (b *bench) used(ctx context.Context, p *peer) (cpu time.Duration, ran, calls float64, err error) {
	if p.pid != 0 {
		cpu, err = cpuOf(p.pid)
		return cpu, 0, 0, err
	}
	info, err := b.redis.Info(ctx, "cpu", "commandstats").Result()
	if err != nil {
		return 0, 0, 0, err
	}
	for line := range strings.FieldsSeq(info) {
		name, value, _ := strings.Cut(line, ":")
		switch name {
		case "used_cpu_user", "used_cpu_sys":
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return 0, 0, 0, err
			}
			cpu += time.Duration(seconds * float64(time.Second))
		case "cmdstat_evalsha":
			if _, err := fmt.Sscanf(value, "calls=%f,usec=%f,", &calls, &ran); err != nil {
				return 0, 0, 0, fmt.Errorf("read %q: %w", line, err)
			}
		}
	}
	return cpu, ran, calls, nil
}

func quantile(sorted []time.Duration, q float64) time.Duration {
	return sorted[min(len(sorted)-1, int(q*float64(len(sorted))))]
}

func (b *bench) print(peers []*peer, all [][]result, clients int) {
	if !b.lines {
		fmt.Printf("\n%d clients, %d users, %d rounds of %v each\n\n", clients, b.users, b.rounds, b.slot)
		fmt.Println("| | admissions/s | p50 ms | p99 ms | p99.9 ms | × bare's p99 | CPU µs | × bare's CPU | of it the script µs | in one call | settling µs |")
		fmt.Println("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
	}
	for i, p := range peers {
		var times []time.Duration
		for _, r := range all[i] {
			times = append(times, r.times...)
		}
		slices.Sort(times)
		of := func(f func(r *result) float64) float64 {
			var list []float64
			for j := range all[i] {
				list = append(list, f(&all[i][j]))
			}
			slices.Sort(list)
			return list[len(list)/2]
		}
		ms := func(q float64) float64 { return float64(quantile(times, q).Microseconds()) / 1000 }
		rate, slow, cpu := of(func(r *result) float64 { return r.rate }), of(func(r *result) float64 { return r.slow }), of(func(r *result) float64 { return r.cpu })
		against, command := of(func(r *result) float64 { return r.against }), of(func(r *result) float64 { return r.command })
		settling, together := of(func(r *result) float64 { return r.settling }), of(func(r *result) float64 { return r.together })
		if b.lines {
			fmt.Printf("BenchmarkPermit/clients=%d/%s %d %.0f admissions/s %.3f p50-ms %.3f p99-ms %.3f p99.9-ms %.2f ×bare-p99 %.2f CPU-µs %.2f ×bare-CPU",
				clients, strings.ReplaceAll(p.name, " ", "-"), b.rounds, rate, ms(0.5), ms(0.99), ms(0.999), slow, cpu, against)
			if command > 0 {
				fmt.Printf(" %.2f script-µs %.2f in-a-call", command, together)
			}
			if settling > 0 {
				fmt.Printf(" %.2f settling-µs", settling)
			}
			fmt.Println()
			continue
		}
		fmt.Printf("| %s | %.0f | %.3f | %.3f | %.3f | %.2f | %.2f | %.2f | %s | %s | %s |\n", p.name, rate, ms(0.5), ms(0.99), ms(0.999), slow, cpu, against, some(command), some(together), some(settling))
	}
}

func some(x float64) string {
	if x == 0 {
		return ""
	}
	return fmt.Sprintf("%.2f", x)
}
