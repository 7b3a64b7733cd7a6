package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/tallygate/tallygate/pipeline/admit"
)

// shares measures how many admissions need no round trip where permits are asked for ahead. No aim: rare keys ask.
func (b *bench) shares(ctx context.Context, addr string, rates []int) error {
	if !b.lines {
		fmt.Printf("\nahead: 1s, users by Zipf's law (s = 1.1), events settled every 2 ms, %v each\n\n", measuring)
		fmt.Println("| requests/s and process | users | without a round trip | questions/s | permits given back unused |")
		fmt.Println("|--:|--:|--:|--:|--:|")
	}
	for _, users := range []int{1000, 100_000} {
		for _, rate := range rates {
			if err := b.share(ctx, addr, rate, users); err != nil {
				return fmt.Errorf("%d requests a second of %d users: %w", rate, users, err)
			}
		}
	}
	return nil
}

// times of one measurement.
const warming, measuring = 2500 * time.Millisecond, 5 * time.Second

func (b *bench) share(ctx context.Context, addr string, rate, users int) error {
	if err := b.redis.FlushAll(ctx).Err(); err != nil {
		return err
	}
	o, err := newOwner(ctx, b.redis)
	if err != nil {
		return err
	}
	admitter, stop, err := newAdmitter(ctx, addr)
	if err != nil {
		return err
	}
	defer stop()
	l := &load{asker: asker{Admitter: admitter, owner: o, api: "ahead"}, asked: make(chan string, 1000)}
	before, err := l.run(ctx, rate, users)
	if err != nil {
		return err
	}
	after := l.Stats()
	admitted := float64(after.Admitted - before.Admitted)
	share := float64(after.Ahead-before.Ahead) / admitted
	questions := float64(after.Questions-before.Questions) / measuring.Seconds()
	given := float64(after.Cancelled-before.Cancelled) / admitted
	if b.lines {
		fmt.Printf("BenchmarkAhead/users=%d/rate=%d 1 %.1f %%-without-a-round-trip %.0f questions/s %.1f %%-given-back\n", users, rate, 100*share, questions, 100*given)
		return nil
	}
	fmt.Printf("| %d | %d | %.1f%% | %.0f | %.1f%% |\n", rate, users, 100*share, questions, 100*given)
	return nil
}

// load asks so many times a second.
type load struct {
	asker
	asked chan string
}

// run returns the numbers of before the time that is measured.
func (l *load) run(ctx context.Context, rate, users int) (before admit.Stats, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var running sync.WaitGroup
	running.Go(func() {
		for ctx.Err() == nil {
			if err := l.settle(ctx); err != nil && ctx.Err() == nil {
				cancel(err)
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	for range 32 {
		running.Go(func() {
			for user := range l.asked {
				if err := l.ask(ctx, 0, user); err != nil && ctx.Err() == nil {
					cancel(err)
				}
			}
		})
	}
	zipf := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), 1.1, 1, uint64(users-1))
	began, sent, measured := time.Now(), 0, false
	for passed := time.Duration(0); ctx.Err() == nil && passed < warming+measuring; passed = time.Since(began) {
		if passed >= warming && !measured {
			before, measured = l.Stats(), true
		}
		for ; sent < int(passed.Seconds()*float64(rate)); sent++ {
			l.asked <- "u" + strconv.FormatUint(zipf.Uint64(), 10)
		}
		time.Sleep(time.Millisecond)
	}
	err = context.Cause(ctx)
	close(l.asked)
	cancel(nil)
	running.Wait()
	return before, err
}
