// Command enforce measures a check beside the ways one would otherwise know who is blocked, in one run whose measurements
// alternate, and prints what each takes as a multiple of a bare map's read. Ratios travel from machine to machine; times don't.
//
//	make bench-enforce
//	make bench-enforce ARGS='--sizes 1000,100000 --rounds 7'
//
// Hot: 512 users in turn, all of which is in the processor's nearest cache. Cold: users at random, and before each batch of
// them the caches are filled with something else; only the names asked for are near. The collector is off while it measures.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tallygate/tallygate/pipeline/enforce"
)

// lines is whether results are printed in Go's benchmark format, too.
var lines bool

func main() {
	sizes := flag.String("sizes", "1000,100000,10000000", "how many are blocked")
	rounds := flag.Int("rounds", 9, "measurements of each, of which the median counts")
	redisAddr := flag.String("redis", "", "where a Redis for this is; its database 15 is emptied. Without it Redis is left out")
	flag.BoolVar(&lines, "lines", false, "also print results in Go's benchmark format")
	only := flag.Bool("only", false, "measure nothing but the table and the bare map")
	flag.Parse()
	var client *redis.Client
	if *redisAddr != "" {
		client = redis.NewClient(&redis.Options{Addr: *redisAddr, DB: 15})
		defer client.Close()
	}
	for text := range strings.SplitSeq(*sizes, ",") {
		size, err := strconv.Atoi(text)
		if err != nil {
			log.Fatal(err)
		}
		if err := measure(size, *rounds, client, *only); err != nil {
			log.Fatal(err)
		}
	}
}

func measure(size, rounds int, client *redis.Client, only bool) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if size > 1_000_000 {
		client = nil // a round trip takes as long, however many keys there are
	}
	uids := names("u", size)
	peers, table, err := newPeers(ctx, uids, client, only)
	if err != nil {
		return err
	}
	runtime.GC()
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	fmt.Printf("\n%d blocked; a table of %.1f bytes a user, of which 11 are the name\n", size, float64(table.Bytes())/float64(size))
	if n := testing.AllocsPerRun(1000, func() { table.Check("order.create", uids[7]) }); n != 0 {
		return fmt.Errorf("a check allocates %v times", n)
	}
	fmt.Printf("%-22s", "ns, and × bare map")
	for _, p := range peers {
		fmt.Printf("%20s", p.name)
	}
	fmt.Println()
	others := names("v", min(size, 1_000_000))
	for _, cores := range []int{1, 2} {
		for _, cold := range []bool{false, true} {
			for _, hit := range []bool{false, true} {
				asked := uids
				if !hit {
					asked = others
				}
				c := condition{asked: asked, blocked: size, cold: cold, cores: cores}
				report(c, hit, peers, rounds)
			}
		}
	}
	underChanges(ctx, table, uids, rounds)
	return nil
}

// condition is under which a peer is measured.
type condition struct {
	asked   []string
	blocked int
	cold    bool
	cores   int
}

// report measures all peers in turn, as often as rounds says, and prints their medians.
func report(c condition, hit bool, peers []peer, rounds int) {
	times := make([][]float64, len(peers))
	for range rounds {
		for i, p := range peers {
			times[i] = append(times[i], c.time(p))
		}
		runtime.GC() // what sync.Map and others left
	}
	label := map[bool]string{false: "miss", true: "hit"}[hit] + map[bool]string{false: " hot", true: " cold"}[c.cold]
	line := fmt.Sprintf("BenchmarkAsk/blocked=%d/cores=%d/%s %d", c.blocked, c.cores, strings.ReplaceAll(label, " ", "-"), rounds)
	fmt.Printf("%-22s", fmt.Sprintf("%s, cores: %d", label, c.cores))
	base := median(times[0])
	for i := range peers {
		m := median(times[i])
		fmt.Printf("%20s", fmt.Sprintf("%.1f (%.2f)", m, m/base))
		line += fmt.Sprintf(" %.1f %s-ns", m, strings.ReplaceAll(peers[i].name, " ", "-"))
	}
	fmt.Println()
	if lines {
		fmt.Println(line)
	}
}

func median(list []float64) float64 {
	slices.Sort(list)
	return list[len(list)/2]
}

// time returns how many nanoseconds one answer takes on each of the cores: the median over many short batches, so that what the
// machine does otherwise counts little.
func (c condition) time(p peer) float64 {
	var all sync.WaitGroup
	times := make([]float64, c.cores)
	for core := range c.cores {
		all.Go(func() { times[core] = c.batches(p, uint64(core)) })
	}
	all.Wait()
	sum := 0.0
	for _, t := range times {
		sum += t
	}
	return sum / float64(c.cores)
}

func (c condition) batches(p peer, seed uint64) float64 {
	random := rand.New(rand.NewPCG(seed, rand.Uint64()))
	batch, times := 512, 400
	if c.cold {
		batch, times = 1024, 9
	}
	if p.slow {
		batch, times = 16, 9
	}
	list := make([]string, batch)
	var spent []float64
	for round := range times {
		if round == 0 || c.cold {
			for i := range list {
				list[i] = strings.Clone(c.asked[random.IntN(len(c.asked))])
			}
		}
		if c.cold {
			pollute()
			touch(list)
		} else if round == 0 {
			p.blocked(list)
		}
		began := time.Now()
		p.blocked(list)
		spent = append(spent, float64(time.Since(began).Nanoseconds())/float64(batch))
	}
	return median(spent)
}

// pollution is larger than the caches of most machines.
var pollution = make([]uint64, 96<<20/8)

var sink atomic.Uint64

func pollute() {
	sum := uint64(0)
	for i := 0; i < len(pollution); i += 8 {
		sum += pollution[i]
	}
	sink.Add(sum)
}

func touch(list []string) {
	sum := 0
	for _, s := range list {
		sum += int(s[0]) + int(s[len(s)-1])
	}
	sink.Add(uint64(sum))
}

// underChanges compares the table's checks with nobody changing it, and under 50,000 changes a second.
func underChanges(ctx context.Context, table *enforce.Table, uids []string, rounds int) {
	const perSecond, perBatch = 50_000, 50
	c := condition{asked: uids, cores: 1}
	p := peer{blocked: func(uids []string) (n int) {
		for _, uid := range uids {
			if !table.Check("order.create", uid).Allowed {
				n++
			}
		}
		return n
	}}
	all := verdicts(uids[:min(len(uids), 200_000)])
	random := rand.New(rand.NewPCG(1, 2))
	var on atomic.Bool
	var changes atomic.Int64
	var writer sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	writer.Go(func() {
		tick := time.NewTicker(time.Second / (perSecond / perBatch))
		defer tick.Stop()
		began, sent := time.Now(), 0
		for ctx.Err() == nil {
			<-tick.C
			if !on.Load() {
				began, sent = time.Now(), 0
				continue
			}
			for ; sent < int(time.Since(began).Seconds()*perSecond); sent += perBatch {
				batch := all[random.IntN(max(len(all)-perBatch, 1)):][:perBatch]
				for i := range batch {
					batch[i].Until++
					batch[i].Seq += int64(len(all))
				}
				table.Apply(0, batch)
				changes.Add(perBatch)
			}
		}
	})
	for _, cold := range []bool{false, true} {
		c.cold = cold
		var still, moving []float64
		var spent time.Duration
		changes.Store(0)
		for range rounds {
			still = append(still, c.time(p))
			on.Store(true)
			began := time.Now()
			moving = append(moving, c.time(p))
			spent += time.Since(began)
			on.Store(false)
		}
		fmt.Printf("a hit, %s: %.1f ns, and %.1f ns (× %.2f) under %.0f changes a second\n", map[bool]string{false: "hot", true: "cold"}[cold],
			median(still), median(moving), median(moving)/median(still), float64(changes.Load())/spent.Seconds())
	}
	cancel()
	writer.Wait()
	_, _ = fmt.Fprintf(os.Stdout, "the table after that: %.1f bytes a user\n", float64(table.Bytes())/float64(len(uids)))
}
