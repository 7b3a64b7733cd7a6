// Command mutants asks whether tests would notice a mistake: it makes one small change at a time
// in the code that a package's tests run, and runs them. A mutant that no test kills shows what
// no test says. scripts/mutants/same.txt lists those that are the same program, and why.
//
// Each mutant is built beside the work tree (go test -overlay), which it never touches. Of the
// tests only those run that reach the changed line, the fastest first.
//
//	go run ./scripts/mutants -n 150 -seed 1 ./windows
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"sync"
	"syscall"
)

func main() {
	n := flag.Int("n", 0, "run `N` mutants of each pattern, drawn at random; 0 runs all")
	seed := flag.Uint64("seed", 0, "draw with this seed; 0 chooses one")
	flag.Parse()
	if *seed == 0 {
		*seed = rand.Uint64N(1e6)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	alive := 0
	for _, pattern := range flag.Args() {
		n, err := runPattern(ctx, pattern, *n, *seed)
		if err != nil {
			fmt.Fprintln(os.Stderr, "mutants:", err)
			os.Exit(1)
		}
		alive += n
	}
	if alive > 0 {
		fmt.Printf("%d lived: add tests, or lines to %s\n", alive, sameFile)
		os.Exit(1)
	}
}

const sameFile = "scripts/mutants/same.txt"

// fate is what became of a mutant.
type fate int

const (
	lived fate = iota
	killed
	invalid // does not compile
	same    // same.txt says so
)

// runPattern runs mutants of the packages that a pattern stands for, and returns how many lived.
func runPattern(ctx context.Context, pattern string, n int, seed uint64) (int, error) {
	work, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	s, err := look(ctx, work, pattern)
	if err != nil {
		return 0, err
	}
	if n == 0 || n > len(s.mutants) {
		n = len(s.mutants)
	}
	fmt.Printf("%s: %d places for a change, and %d that no test reaches. SEED=%d\n", pattern, len(s.mutants), s.unreached, seed)
	rand.New(rand.NewPCG(seed, 0)).Shuffle(len(s.mutants), func(i, j int) {
		s.mutants[i], s.mutants[j] = s.mutants[j], s.mutants[i]
	})
	said, err := os.ReadFile(sameFile)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return 0, err
	}
	count := s.runAll(ctx, s.mutants[:n], strings.Split(string(said), "\n"))
	ran := count[killed] + count[same] + count[lived]
	fmt.Printf("%s: %d mutants, %d killed, %d the same program, %d lived; %d more do not compile. SEED=%d\n",
		pattern, ran, count[killed], count[same], count[lived], count[invalid], seed)
	return count[lived], ctx.Err()
}

// runAll runs mutants, two at a time, and counts what became of them.
func (s *subject) runAll(ctx context.Context, mutants []*mutant, said []string) (count [4]int) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	next := make(chan *mutant)
	for worker := range 2 {
		wg.Go(func() {
			for m := range next {
				f := same
				if !slices.ContainsFunc(said, func(line string) bool { return strings.HasPrefix(line, m.key()+": ") }) {
					f = s.try(ctx, m, worker)
				}
				mu.Lock()
				count[f]++
				if f == lived && ctx.Err() == nil {
					fmt.Printf("line %d lived: %s\n", m.line, m.key())
				}
				mu.Unlock()
			}
		})
	}
	for _, m := range mutants {
		if ctx.Err() == nil {
			next <- m
		}
	}
	close(next)
	wg.Wait()
	return count
}
